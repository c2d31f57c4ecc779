"""Does slurmd still have the GPUs of its machine? Pure judgement of what nvidia-smi says in its container."""

from __future__ import annotations

import re
from typing import Any

from provision.model.gres import gpus

#: The line that separates what slurmd said from what nvidia-smi said.
HEADING = "== nvidia-smi"

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


def container_check(text: str, declared: object) -> dict[str, Any]:
    """Judge whether slurmd's container has the GPUs that are declared. ``text`` is what its commands printed."""
    _, heading, told = text.partition(HEADING)
    wanted, seen = gpus(declared), visible(told)
    check: dict[str, Any] = {
        "id": "slurm.gpus",
        "host": "",
        "level": "host",
        "observed": f"{seen} GPUs inside slurmd's container",
        "expected": f"{wanted} GPUs inside slurmd's container",
        "source": "node_gres",
        "cause": "",
        "fix": "",
    }
    if not heading:
        return {**check, "verdict": "unknown", "observed": "the container did not answer", "fix": _AGAIN}
    if seen == wanted:
        return {**check, "verdict": "pass"}
    for pattern, cause, fix in _FAILURES:
        if found := re.search(rf"(?m)^.*(?:{pattern}).*$", told):
            return {**check, "verdict": "fail", "observed": found[0].strip(), "cause": cause, "fix": fix}
    cause = f"the driver shows {seen} GPUs, node_gres says {wanted}"
    if seen < wanted:
        cause += ": one fell off the bus, its device file was not there yet, or MIG was changed"
    return {
        **check,
        "verdict": "fail",
        "cause": cause,
        "fix": "nvidia-smi -L and journalctl -k | grep Xid on the node; repair it or correct node_gres; then " + _AGAIN,
    }


def start_cause(listed: str) -> str:
    """Return why slurmd did not list its devices, where it says that their files were not there when it started."""
    found = re.search(r"can't stat gres\.conf file (\S+):|can't stat (/dev/\S+)", listed)
    if not found:
        return ""
    path = (found[1] or found[2]).rstrip(":")
    return f"slurmd was started before {path} existed; at boot, clusterctl-gpus.service waits for it for 60 s"
