"""Whether a machine's MIG instances are those that the inventory declares. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from provision.model.checks import Check, Subject
from provision.model.text import clean
from provision.nvidia.mig import devices, layout, listed, same

SUBJECT = Subject("mig", names=("layout", "devices"), fix="journalctl -u nvidia-mig")

#: Characters of nvidia-smi's table that are read; 32 GPUs of 7 instances print a tenth of it.
_MAX_TABLE = 262_144


def checks(
    declared: Iterable[str], recorded: Iterable[str], answer: Mapping[str, Any], *, by_files: bool
) -> list[Check]:
    """Compare a machine's instances with the inventory's ``node_mig`` and ``node_mig_devices``.

    ``answer`` is the finished ``nvidia-smi mig -lci``, empty where it was not asked. ``by_files``: gres.conf names each
    instance's device files, so the inventory must name them.

    Raises:
        ValueError: the inventory's layout or devices are written wrongly.
    """
    wanted, known = layout(declared), tuple(recorded)
    if not wanted:
        return SUBJECT.all_skipped("no MIG instances are declared (node_mig)")
    text = str(answer.get("stdout") or "")[:_MAX_TABLE]
    there = listed(text)
    if not there and (answer.get("rc") != 0 or not text) and "No compute instances found" not in text:
        told = clean(str(answer.get("stderr") or answer.get("msg") or text), 300).strip()
        return SUBJECT.all_unknown("nvidia-smi did not answer", cause=told or f"it ended with {answer.get('rc')}")
    told, right = clean(", ".join(str(device) for device in there)), same(wanted, there)
    first = SUBJECT.check(
        "layout",
        right,
        told or "no MIG instance",
        _told(wanted),
        source="node_mig",
        cause="the layout was not made at boot, or was changed since",
        fix="journalctl -u nvidia-mig; with the node drained: systemctl restart nvidia-mig clusterctl-gpus; "
        "then clusterctl provision slurm",
    )
    if not right:
        return [first, SUBJECT.skip("devices", "not judged, because the layout is another one", unproven=True)]
    if not by_files:
        return [first, SUBJECT.skip("devices", "Slurm finds instances by itself (slurm_conf_gpu_detection)")]
    fix = (
        f"declare node_mig_devices={told.replace(' ', '')} for this host; then clusterctl provision slurm"
        if len(there) <= len([name for names in wanted.values() for name in names])
        else None
    )
    return [
        first,
        SUBJECT.check(
            "devices",
            devices(known) == there,
            told,
            ", ".join(known) or "not declared",
            source="node_mig_devices",
            cause="gres.conf names each instance's device files, and these are known once the instances are there",
            fix=fix,
        ),
    ]


def _told(wanted: Mapping[int, Sequence[str]]) -> str:
    return "; ".join(
        f"GPU {gpu}: {', '.join(f'{count} x {name}' for name, count in Counter(profiles).items())}"
        for gpu, profiles in wanted.items()
    )
