"""Does slurmd still have the GPUs of its machine? Pure judgement of what nvidia-smi says in its container."""

from __future__ import annotations

import re

from provision.judge.slurm_answers import line
from provision.judge.slurm_facts import Facts, Wants, answered
from provision.model.checks import Check, Subject, Verdict
from provision.model.gres import gpus

SUBJECT = Subject("slurm", ("gpus",), fix="clusterctl provision gpu")

_AGAIN = "clusterctl provision slurm replaces the container; jobs go on"
#: What nvidia-smi prints, why, and what to do.
_FAILURES = (
    (
        r"Driver/library version mismatch",
        "the driver was changed under the container, which still has the old one's libraries",
        f"clusterctl provision gpu; then {_AGAIN}",
    ),
    (
        r"NVML: Unknown Error|Insufficient Permissions",
        "access to the GPUs was revoked inside slurmd's container, as systemctl daemon-reload does to containers that "
        "got them from NVIDIA's legacy hook",
        _AGAIN,
    ),
    (
        r"No devices (?:were )?found",
        "the driver answers and shows no GPU: the device files are not in slurmd's container, or it may not open them",
        f"ls -l /dev/nvidia* on the node; then {_AGAIN}",
    ),
    (
        r"not found|No such file",
        "the container was started without the driver's libraries and programs",
        f"clusterctl provision gpu; then {_AGAIN}",
    ),
    (
        r"couldn't communicate with the NVIDIA driver|Driver Not Loaded",
        "the driver is not loaded on the machine",
        "clusterctl provision gpu",
    ),
)


def visible(text: str) -> int:
    """Return how many GPUs ``nvidia-smi -L`` lists; a divided GPU counts as its MIG instances."""
    whole, instances = 0, 0
    for part in re.split(r"(?m)^(?=GPU \d+: )", text)[1:]:
        mine = len(re.findall(r"(?m)^\s+MIG ", part))
        whole, instances = whole + (mine == 0), instances + mine
    return whole + instances


def checks(facts: Facts, wants: Wants) -> list[Check]:
    """Return whether slurmd's container has the GPUs that are declared, where it is to have real ones."""
    if not wants.compute or not wants.gpus:
        why = "no jobs run on this machine" if not wants.compute else "slurmd is given no real GPUs here"
        return SUBJECT.all_skipped(why)
    if silent := facts.trouble("slurmd"):
        return SUBJECT.all_unknown(silent, cause="slurmd's container does not answer", fix=_AGAIN)
    return [_container(facts.machine.get("nvidia-smi", ""), wants.gres)]


def _container(text: str, declared: object) -> Check:
    """Judge what nvidia-smi printed inside slurmd's container."""
    said, code = answered(text)
    if code is None:
        return SUBJECT.unknown("gpus", "the container did not answer", fix=_AGAIN)
    if code in (124, 137):
        return SUBJECT.unknown(
            "gpus",
            "nvidia-smi did not answer in time",
            cause="a GPU or its driver hangs",
            fix="journalctl -k | grep Xid",
        )
    try:
        wanted = gpus(declared)
    except ValueError as error:
        return SUBJECT.unknown("gpus", f"node_gres cannot be read: {error}", fix="correct node_gres")
    seen = visible(said)
    expected, source = f"{wanted} GPUs inside slurmd's container", "node_gres"
    observed = f"{seen} GPUs inside slurmd's container"
    if seen == wanted:
        return SUBJECT.check("gpus", Verdict.PASS, observed, expected, source=source)
    for pattern, cause, fix in _FAILURES:
        if found := re.search(rf"(?m)^.*(?:{pattern}).*$", said):
            return SUBJECT.check("gpus", False, line(found[0]), expected, source=source, cause=cause, fix=fix)
    cause = f"the driver shows {seen} GPUs, node_gres says {wanted}"
    if seen < wanted:
        cause += ": one fell off the bus, its device file was not there yet, or MIG was changed"
    return SUBJECT.check(
        "gpus",
        False,
        observed,
        expected,
        source=source,
        cause=cause,
        fix="nvidia-smi -L and journalctl -k | grep Xid on the node; repair it or correct node_gres; then " + _AGAIN,
    )


def start_cause(listed: str) -> str:
    """Return why slurmd did not list its devices, where it says that their files were not there when it started."""
    found = re.search(r"can't stat gres\.conf file (\S+):|can't stat (/dev/\S+)", listed)
    if not found:
        return ""
    path = line(found[1] or found[2]).rstrip(":")[:100]
    return f"slurmd did not find {path}; at boot, clusterctl-gpus.service waits for it for 60 s"
