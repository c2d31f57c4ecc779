"""Can containers be given a machine's GPUs? Judgements of what the role's program ``ask`` printed there. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from provision.model.checks import Check, Subject
from provision.model.gres import gpus
from provision.model.text import clean, sections
from provision.nvidia.containers import SPEC, driver_of, identities, nodes, spec_in

SUBJECT = Subject("nvidia_containers", names=("toolkit", "cdi", "engine", "boot_order"), fix="clusterctl provision gpu")

#: Characters of an answer that are read; a description of sixteen GPUs has a twentieth of it.
_MAX_ANSWER = 1_000_000
_DESCRIBE = "systemctl restart clusterctl-gpus; if that fails: journalctl -u clusterctl-gpus"
#: Characters of a name or version that are shown.
_SHORT = 100


def checks(text: str, *, installed: bool, version: str, packages: Sequence[str], gres: object) -> list[Check]:
    """Return the checks of one machine.

    ``text`` is what ``ask`` printed; ``installed`` whether the machine is to have NVIDIA's container toolkit, at
    ``version`` in all of ``packages``; ``gres`` its generic resources as declared.
    """
    if not installed:
        return SUBJECT.all_skipped("no real GPUs are declared here (node_gres, nvidia_containers_install)")
    told = sections(text, _MAX_ANSWER)
    return [
        _toolkit(told.get("packages"), version, packages),
        _description(told, gpus(gres)),
        _engine(told.get("engine", "")),
        _order(told.get("order", "")),
    ]


def _toolkit(text: str | None, version: str, packages: Sequence[str]) -> Check:
    if text is None:
        return SUBJECT.unknown("toolkit", "the machine did not answer")
    rows = [row.split() for row in clean(text, 20_000).splitlines() if len(row.split()) == 3]
    there = {name.partition(":")[0]: (found[:_SHORT], held == "hold") for held, found, name in rows}
    wrong = [f"{name} {there[name][0]}" for name in packages if name in there and there[name][0] != version]
    wrong += [f"{name} is missing" for name in packages if name not in there]
    free = [name for name in packages if name in there and not there[name][1]]
    return SUBJECT.check(
        "toolkit",
        not wrong and not free,
        "; ".join([*wrong, *(f"{name} is not held" for name in free)]) or f"{version}, held",
        f"{', '.join(packages)} at {version}, held",
        source="nvidia_containers_version",
        cause="the four packages must be of one version, and an upgrade changes one of them under running containers",
    )


def _description(told: Mapping[str, str], wanted: int) -> Check:
    """Judge the description against the driver that is loaded, the device files that exist, and what is declared."""
    loaded = told.get("driver", "").strip()
    loaded = loaded if re.fullmatch(r"[0-9.]{1,40}", loaded) else ""
    files = {f"/dev/{name}" for name in told.get("files", "").split() if re.fullmatch(r"nvidia[0-9]+", name)}
    spec = spec_in(told.get("spec", ""))
    names, of = identities(spec), driver_of(spec)
    seen = f"{len(names)} GPUs, driver {of or 'unknown'}" if spec else "no description"
    cause = ""
    if not told:
        return SUBJECT.unknown("cdi", "the machine did not answer")
    if not spec:
        cause = f"{SPEC} is missing or invalid: containers cannot get GPUs"
    elif not loaded:
        return SUBJECT.unknown("cdi", f"{seen}; no NVIDIA driver is loaded", cause="no NVIDIA driver is loaded")
    elif of != loaded:
        cause = f"the driver changed from {of or 'an unknown one'} to {loaded}; containers would get the old libraries"
    elif lost := sorted(nodes(spec) - files):
        cause = f"it lists {', '.join(lost[:8])}, which do not exist: a GPU fell off the bus, or the driver is not up"
    elif len(names) != wanted:
        cause = f"{len(names)} GPUs can be given to containers, node_gres says {wanted}"
    return SUBJECT.check(
        "cdi",
        not cause,
        seen,
        f"{wanted} GPUs, driver {loaded or 'unknown'}",
        source=f"node_gres, /sys/module/nvidia/version and {SPEC}",
        cause=cause,
        fix=_DESCRIBE,
    )


def _engine(text: str) -> Check:
    try:
        info = json.loads(text or "{}")
    except (ValueError, RecursionError):
        info = {}
    info = info if isinstance(info, dict) else {}
    release = clean(str(info.get("ServerVersion") or ""), _SHORT)
    fix, source = "clusterctl provision containers", "docker info"
    if not release:
        return SUBJECT.unknown("engine", "no answer", cause="Docker's engine does not answer", fix=fix)
    expected = "Docker finds descriptions, and uses NVIDIA's runtime for nothing but them"
    if info.get("DefaultRuntime") == "nvidia":
        return SUBJECT.check(
            "engine",
            False,
            "NVIDIA's runtime is the default",
            expected,
            source=source,
            cause="containers of its legacy hook lose their GPUs at every systemctl daemon-reload",
            fix=fix,
        )
    directories, runtimes = info.get("CDISpecDirs"), info.get("Runtimes")
    named = [clean(str(item), _SHORT) for item in directories[:8]] if isinstance(directories, list) else []
    by = ", ".join(named) or ("NVIDIA's runtime" if isinstance(runtimes, dict) and "nvidia" in runtimes else "")
    return SUBJECT.check(
        "engine",
        bool(by),
        f"Docker {release}, {by or 'without CDI and without the runtime that replaces it'}",
        expected,
        source=source,
        cause="daemon.json does not name what this release of Docker needs",
        fix=fix,
    )


def _order(text: str) -> Check:
    words = clean(text, 20_000).split()
    if not words:
        return SUBJECT.unknown("boot_order", "systemd did not answer")
    return SUBJECT.check(
        "boot_order",
        "clusterctl-gpus.service" in words,
        f"Docker starts after {' '.join([word for word in words if 'gpus' in word][:4]) or 'nothing of it'}",
        "Docker starts after clusterctl-gpus.service",
        source="systemctl show docker",
        cause="slurmd would start before the GPUs' device files exist",
        fix="clusterctl provision gpu; then systemctl daemon-reload",
    )
