"""Which of a machine's RDMA ports did a job's NCCL use? Pure reading of its log beside what the machine has.

NCCL numbers the ports that it was shown, and names the numbers over which it connects. With fewer ports than there are,
training runs and is slow: nothing else says so.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from provision.rdma.rounds import rails_of

#: ``NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_3:1/IB/SHARP [RO]; OOB eno1:10.0.0.1<0>``.
_SHOWN = re.compile(r"NET/IB\S* : Using (?P<ports>\[0\].*)")
_PORT = re.compile(r"\[(\d{1,4})\]([A-Za-z0-9_.-]{1,64}:\d{1,3})/")
#: Several ports of one adapter as one, from 2.23 on: ``NET/IB : Made virtual device [8] name=mlx5_0+mlx5_1 speed=...``.
_MERGED = re.compile(r"NET/IB\S* : Made virtual device \[(\d{1,4})\] name=([A-Za-z0-9_.:+-]{1,255})")


def shown(text: str) -> dict[int, tuple[str, ...]]:
    """Return the ports that NCCL was shown, by its numbers; a merged device has several."""
    found: dict[int, tuple[str, ...]] = {}
    for line in _SHOWN.finditer(text):
        found |= {int(number): (name,) for number, name in _PORT.findall(line["ports"])}
    by_device = {name.partition(":")[0]: name for names in found.values() for name in names}
    for number, merged in _MERGED.findall(text):
        parts = [part.partition(":")[0] for part in merged.split("+")]
        if all(part in by_device for part in parts):
            found[int(number)] = tuple(by_device[part] for part in parts)
    return found


def idle(
    text: str, nics: Collection[int], told: Any, gpus: int, unused: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """Return the ports that a job should have used and did not: those that NCCL was not shown, and the others.

    ``nics`` are the numbers over which it connected, ``told`` is what the machine says under ``rdma``, ``unused`` what
    the inventory leaves out. Each GPU takes the ports beside it, so that ``gpus`` use as many ports at least, if there
    are as many of one kind. Ports of another kind than those that it used are for something else, such as storage.
    Nothing is returned where the log or the machine does not say enough.
    """
    names = shown(text)
    try:
        kinds = _kinds(told, unused)
    except (AttributeError, KeyError, TypeError, ValueError):
        return [], []
    if not nics or any(nic not in names for nic in nics):
        return [], []
    used = {name for nic in nics for name in names[nic]}
    like = {kinds[name] for name in used if name in kinds}
    fit = [name for name, kind in kinds.items() if kind in like]
    left = [name for name in fit if name not in used]
    if len(fit) - len(left) >= min(gpus, len(fit)):
        return [], []
    seen = {name for every in names.values() for name in every}
    return [name for name in left if name not in seen], [name for name in left if name in seen]


def _kinds(told: Any, unused: Sequence[str]) -> Mapping[str, tuple[Any, ...]]:
    """Return rate and link layer of each port that jobs can use, by name, as the machine told them."""
    layers = {
        f"{device['name']}:{port['number']}": str(port.get("link_layer", ""))
        for device in told.get("devices", ())
        for port in device["ports"]
    }
    rails = [rail for rail in rails_of(told, unused) if not rail.software]
    return {f"{rail.device}:{rail.port}": (rail.rate, layers[f"{rail.device}:{rail.port}"]) for rail in rails}
