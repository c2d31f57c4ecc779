"""From what a machine says of its hardware to what becomes inventory. Pure.

Whatever is recorded is read again as inventory: by us, by Ansible, by Slurm, on every administrator's computer. So each
value passes the model that reads inventories before it is written; a text from a machine is never a template, ends no
line and no quotes, and is short. What does not pass is that machine's own failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from provision.model.cluster import LEAST_MEMORY, Hardware
from provision.model.gres import parse
from provision.model.numbers import whole

#: A node that registers with less memory than declared is refused by Slurm, and kernel or firmware updates take a few
#: MB. So 2 % are left out, and of the rest three digits are kept (less than 1 %), so that like machines are described
#: alike and share a line in slurm.conf.
MEMORY_SHARE = 0.98
MEMORY_DIGITS = 3

#: Ports of InfiniBand or RoCE that anybody can mean on one machine.
MAX_PORTS = 1024

#: Characters of a ``node_gres`` and of what a machine says about where a value comes from.
MAX_GRES, MAX_SOURCE = 1000, 200

_TOPOLOGY = "/sys/devices/system/cpu"

#: Inventory name -> the machine's name for it, and where a machine reads it.
_NUMBERS = {
    "node_cpus": ("cpus", _TOPOLOGY),
    "node_sockets": ("sockets", _TOPOLOGY),
    "node_cores_per_socket": ("cores_per_socket", _TOPOLOGY),
    "node_threads_per_core": ("threads_per_core", _TOPOLOGY),
    "node_real_memory": ("real_memory", "/proc/meminfo"),
    "node_cgroup_version": ("cgroup_version", "/proc/1/cgroup"),
}

#: What every machine has, so that a discovery records it.
ALWAYS = tuple(_NUMBERS)

Recorded = tuple[str, int | str, str]


@dataclass(frozen=True)
class Refused:
    """A value that a machine answered and no inventory may hold; ``observed`` is fit for a terminal."""

    name: str
    observed: str
    reason: str


@dataclass(frozen=True)
class Discovered:
    """``values`` are name, value and source of what to record; ``refused`` what must not be, nor anything beside it."""

    values: tuple[Recorded, ...] = ()
    refused: tuple[Refused, ...] = ()


def read(found: Mapping[str, Any], declared: Mapping[str, Any]) -> Discovered:
    """Return everything that the inventory leaves open and the machine answers.

    ``found`` is what the module ``machine_facts`` reports under ``hardware``, of any type and length; ``declared`` maps
    the inventory's ``node_*`` names to their values, None where the inventory says nothing.
    """
    values: list[Recorded] = []
    refused: list[Refused] = []
    for name, (key, source) in _NUMBERS.items():
        try:
            number = whole(found.get(key))
            if name == "node_real_memory":
                accepted = _accepted(name, number)
                source = f"{source} has {accepted}; 2 to 3 % less, because Slurm refuses a node with less"
                number = recorded_memory(number)
                if number < LEAST_MEMORY:
                    raise ValueError(f"it must leave {LEAST_MEMORY} or more")
            values.append((name, _accepted(name, number), source))
        except ValueError as error:
            refused.append(Refused(name, shown(found.get(key)), str(error)))
    try:
        values += _gres(found)
    except ValueError as error:
        observed = found.get("gres") or found.get("bus_gres") or found.get("gpu_count")
        refused.append(Refused("node_gres", shown(observed), str(error)))
    if off := gpus_off_sockets(found):
        more = f" and {len(off) - 1} more" if len(off) > 1 else ""
        values.append(("node_gpu_affinity", "numa", f"local_cpulist: {off[0]}{more}, no whole socket"))
    try:
        # The count alone: what a port runs at today may be what is wrong with it, and is compared between machines.
        if ports := _bounded(found.get("rdma_ports") or 0, MAX_PORTS):
            values.append(("node_rdma_ports", ports, "/sys/class/infiniband"))
    except ValueError as error:
        refused.append(Refused("node_rdma_ports", shown(found.get("rdma_ports")), str(error)))
    return Discovered(
        tuple(value for value in values if declared.get(value[0]) is None),
        tuple(value for value in refused if declared.get(value.name) is None),
    )


def gpus_off_sockets(found: Mapping[str, Any]) -> list[str]:
    """Return the GPUs on the bus that are near a part of a socket only, with their CPUs: NPS4, NPS2, SNC.

    Slurm's detection reads the same file of the kernel, which lists CPUs in one way only.
    """
    sockets, gpus = found.get("socket_cpus"), found.get("bus_gpus")
    if not isinstance(sockets, Sequence) or isinstance(sockets, str) or not sockets or not isinstance(gpus, Sequence):
        return []
    near = [(gpu.get("address"), gpu.get("cpus")) for gpu in gpus if isinstance(gpu, Mapping)]
    return [f"{shown(address)} has {shown(cpus)}" for address, cpus in near if cpus and cpus not in sockets]


def recorded_memory(found: int) -> int:
    """Return the memory in MiB to declare for a machine that has ``found`` MiB."""
    share = int(found * MEMORY_SHARE)
    step = int(10 ** max(0, len(str(share)) - MEMORY_DIGITS))
    return max(1, share // step * step)


def shown(value: object) -> str:
    """Return what a machine answered so that it can be printed and is no template, cut after some characters."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except (ValueError, RecursionError):  # a number of more digits than Python writes
        text = f"a {type(value).__name__} that cannot be written"
    return plain(text, 80)


def plain(text: str, limit: int = MAX_SOURCE) -> str:
    """Return ``text`` as one line of printable ASCII without braces, ``limit`` characters at most."""
    cut = " ".join(text[: limit * 4].split())
    kept = (one for one in cut if one.isascii() and one.isprintable() and one not in "{}")
    return "".join(kept).strip()[:limit]


def _accepted(name: str, value: int | str) -> Any:
    """Return a value as the inventory's own model reads it.

    Raises:
        ValueError: the model refuses it.
    """
    field = name.removeprefix("node_")
    try:
        accepted = Hardware(**{field: value})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        context = first.get("ctx", {})
        bounds = {"greater_than_equal": f"it must be {context.get('ge')} or more",
                  "less_than_equal": f"it must be {context.get('le')} or less"}  # fmt: skip
        raise ValueError(bounds.get(first["type"]) or plain(str(context.get("error") or first["msg"]))) from None
    return value if field == "gres" else getattr(accepted, field)


def _bounded(value: object, most: int) -> int:
    number = whole(value)
    if not 0 <= number <= most:
        raise ValueError(f"it must be a number from 0 to {most}")
    return number


def _gres(found: Mapping[str, Any]) -> list[Recorded]:
    """Return ``node_gres``, or nothing where the GPUs' kind is open.

    Where no driver runs yet, PCI ids say which GPUs these are: the driver is installed before Slurm is configured. GPUs
    whose ids are not known are not recorded: their type is open, and "none" would be wrong.
    """
    if _bounded(found.get("gpu_count") or 0, 1024):
        return [("node_gres", _gpus(found.get("gres")), plain(str(found.get("gpu_source"))))]
    if not _bounded(found.get("gpus_on_bus") or 0, 1024):
        return [("node_gres", "", "no NVIDIA device on the bus, no driver")]
    if not found.get("bus_gres"):
        return []
    listed = found.get("bus_gpus")
    there = [gpu for gpu in listed if isinstance(gpu, Mapping)] if isinstance(listed, Sequence) else []
    known = dict.fromkeys(
        f"PCI id {plain(str(gpu.get('id')), 20)} is {plain(str(gpu.get('product')), 60)}" for gpu in there
    )
    return [("node_gres", _gpus(found.get("bus_gres")), plain(f"{', '.join(known)}; no driver runs yet"))]


def _gpus(value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_GRES:
        raise ValueError("it must be a text such as gpu:a40:4")
    items = parse(_accepted("node_gres", value))
    if any(item.name != "gpu" for item in items):
        raise ValueError("a machine names GPUs here and nothing else")
    return ",".join(str(item) for item in items)
