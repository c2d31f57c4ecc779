"""Declared hardware against found hardware, and what to record where nothing was declared. Pure.

``found`` is what the module ``machine_facts`` reports under ``hardware``; ``declared`` maps the inventory's ``node_*``
names to their values, None where the inventory says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: A node that registers with less memory than declared is refused by Slurm, and kernel or firmware updates take a few
#: MB. So 2 % are left out, and of the rest three digits are kept (less than 1 %), so that like machines are described
#: alike and share a line in slurm.conf.
MEMORY_SHARE = 0.98
MEMORY_DIGITS = 3

_TOPOLOGY_SOURCE = "/sys/devices/system/cpu"

#: Inventory name -> name in ``found``, for what must be equal.
_COUNTS = {
    "node_cpus": "cpus",
    "node_sockets": "sockets",
    "node_cores_per_socket": "cores_per_socket",
    "node_threads_per_core": "threads_per_core",
    "node_cgroup_version": "cgroup_version",
}


def recorded_memory(found: int) -> int:
    """Return the memory in MiB to declare for a machine that has ``found`` MiB."""
    share = int(found * MEMORY_SHARE)
    step = int(10 ** max(0, len(str(share)) - MEMORY_DIGITS))
    return max(1, share // step * step)


def to_record(found: Mapping[str, Any], declared: Mapping[str, Any]) -> list[tuple[str, int | str, str]]:
    """Return name, value and source of everything that the inventory leaves open and the machine answers.

    Where no driver runs yet, PCI ids say which GPUs these are: the driver is installed before Slurm is configured. GPUs
    whose ids are not known are not recorded: their type is open, and "none" would be wrong.
    """
    values: list[tuple[str, int | str, str]] = [
        ("node_cpus", int(found["cpus"]), _TOPOLOGY_SOURCE),
        ("node_sockets", int(found["sockets"]), _TOPOLOGY_SOURCE),
        ("node_cores_per_socket", int(found["cores_per_socket"]), _TOPOLOGY_SOURCE),
        ("node_threads_per_core", int(found["threads_per_core"]), _TOPOLOGY_SOURCE),
        (
            "node_real_memory",
            recorded_memory(int(found["real_memory"])),
            f"/proc/meminfo has {found['real_memory']}; 2 to 3 % less, because Slurm refuses a node with less",
        ),
        ("node_cgroup_version", int(found["cgroup_version"]), "/proc/1/cgroup"),
    ]
    if found["gpu_count"]:
        values.append(("node_gres", str(found["gres"]), str(found["gpu_source"])))
    elif not found["gpus_on_bus"]:
        values.append(("node_gres", "", "no NVIDIA device on the bus, no driver"))
    elif found.get("bus_gres"):
        known = dict.fromkeys(f"PCI id {gpu['id']} is {gpu['product']}" for gpu in found["bus_gpus"])
        values.append(("node_gres", str(found["bus_gres"]), f"{', '.join(known)}; no driver runs yet"))
    if found.get("rdma_ports"):
        # The count alone: what a port runs at today may be what is wrong with it, and is compared between machines.
        values.append(("node_rdma_ports", int(found["rdma_ports"]), "/sys/class/infiniband"))
    return [entry for entry in values if declared.get(entry[0]) is None]


def judge(found: Mapping[str, Any], declared: Mapping[str, Any], *, simulated: bool = False) -> list[dict[str, Any]]:
    """Compare what is declared with what was found; return check dictionaries, none for what is not declared."""
    checks = []
    for name, key in _COUNTS.items():
        if declared.get(name) is not None:
            checks.append(_check(name, str(found[key]), str(declared[name]), _whole(declared[name]) == found[key]))
    if declared.get("node_real_memory") is not None:
        wanted, has = _whole(declared["node_real_memory"]), int(found["real_memory"])
        check = _check("node_real_memory", f"{has} MB", f"at most {has} MB", wanted is not None and wanted <= has)
        check.update(expected=f"{declared['node_real_memory']} MB or more")
        checks.append(check)
    # Of a machine with MIG, node_gres counts instances, which the role nvidia_mig makes and proves.
    if declared.get("node_gres") is not None and not declared.get("node_mig"):
        checks.append(_gres(found, str(declared["node_gres"]), simulated))
    if found["gpus_on_bus"] and not found["gpu_count"]:
        checks += _without_driver(found, declared.get("node_gres") is not None)
    elif found["gpu_count"] < found["gpus_on_bus"]:
        checks.append(_fallen_off(found))
    return checks


def gres_counts(text: str) -> dict[str, int]:
    """Return how many of each GPU type a ``Gres`` value names; entries that are no GPUs are left out."""
    counts: dict[str, int] = {}
    for entry in filter(None, text.replace(" ", "").split(",")):
        name, *middle, count = entry.split("(")[0].split(":")
        if name == "gpu" and count.isdigit():
            kind = middle[0].lower() if middle else ""
            counts[kind] = counts.get(kind, 0) + int(count)
    return counts


def _without_driver(found: Mapping[str, Any], declared: bool) -> list[dict[str, Any]]:
    """Judge GPUs that only the bus shows."""
    check = _check("node_gres", f"{found['gpus_on_bus']} NVIDIA devices on the bus, no driver", "a driver", False)
    checks = [{**check, "id": "hardware.gpu_driver", "verdict": "warn", "cause": "no driver is loaded yet",
               "fix": "clusterctl provision gpu"}]  # fmt: skip
    unknown = [f"{gpu['address']} (PCI id {gpu['id']})" for gpu in found.get("bus_gpus", ()) if not gpu["product"]]
    if unknown:
        check = _check("node_gres", f"unknown GPUs: {', '.join(unknown)}", "GPUs that are known by their PCI id", False)
        checks.append({**check, "id": "hardware.gpu_id", "verdict": "warn" if declared else "unknown",
                       "cause": "these ids are not in clusterctl's table, so the GPUs' type is not known",
                       "fix": "declare node_gres for this host, such as gpu:a40:4"})  # fmt: skip
    return checks


def _fallen_off(found: Mapping[str, Any]) -> dict[str, Any]:
    """Judge a driver that runs fewer GPUs than the bus has."""
    there = set(found.get("gpu_addresses", ()))
    missing = [gpu["address"] for gpu in found.get("bus_gpus", ()) if gpu["address"] not in there]
    seen = f"the bus has {found['gpus_on_bus']} GPUs, {found['gpu_source']} lists {found['gpu_count']}"
    if there and missing:
        seen += f": {', '.join(missing)} is missing"
    check = _check("node_gres", seen, f"{found['gpus_on_bus']} GPUs", False)
    return {**check, "id": "hardware.gpus_on_bus", "source": "the PCI bus",
            "cause": "a GPU fell off the bus or could not be initialised (Xid 79): hardware, not configuration",
            "fix": "on the machine: dmesg | grep -i xid; power it off and on, reseat or replace the GPU"}  # fmt: skip


def _gres(found: Mapping[str, Any], declared: str, simulated: bool) -> dict[str, Any]:
    wanted, has = gres_counts(declared), gres_counts(str(found["gres"]))
    shown = str(found["gres"])
    if not found["gpu_count"] and found["gpus_on_bus"]:
        # The driver comes later; what is on the bus is there.
        shown = str(found.get("bus_gres") or f"gpu:{found['gpus_on_bus']}")
        has, shown = gres_counts(shown), f"{shown} (by PCI id; no driver runs yet)"
    has_all, wanted_all = sum(has.values()), sum(wanted.values())
    check = _check("node_gres", shown or "no GPU", declared or "no GPU", True)
    check["simulated"] = simulated
    if has_all < wanted_all:
        check.update(verdict="fail", cause="fewer GPUs than declared: one is missing, failed, or has no driver",
                     fix="nvidia-smi; lspci -d 10de:; repair the machine or correct node_gres")  # fmt: skip
    elif has_all > wanted_all:
        check.update(verdict="warn", cause="more GPUs than declared: Slurm will not hand out the rest",
                     fix="correct node_gres")  # fmt: skip
    elif not all(_matched(kind, count, has) for kind, count in wanted.items()):
        # Slurm accepts any part of the driver's name as a type, so a declared "a40" fits a found "nvidia_a40".
        check.update(verdict="warn", cause="the types are spelled differently",
                     fix="write the type as found, so that automatic detection agrees with it")  # fmt: skip
    return check


def _matched(kind: str, count: int, has: Mapping[str, int]) -> bool:
    return sum(number for name, number in has.items() if kind in name) >= count


def _check(name: str, observed: str, expected: str, passed: bool) -> dict[str, Any]:
    check = {
        "id": f"hardware.{name.removeprefix('node_')}",
        "observed": observed,
        "expected": expected,
        "source": name,
        "verdict": "pass" if passed else "fail",
        "cause": "",
        "fix": "",
        "level": "host",
        "simulated": False,
    }
    if not passed:
        check["cause"] = "the machine differs from its inventory: other hardware, a failed part, or a firmware setting"
        check["fix"] = f"correct {name} for this host, or repair the machine"
    return check


def _whole(value: Any) -> int | None:
    text = str(value).strip()
    return int(text) if text.isdigit() else None
