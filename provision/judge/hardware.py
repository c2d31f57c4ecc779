"""Declared hardware against the machine's. Pure.

``facts`` (``found``) is what the module ``machine_facts`` reports under ``hardware``; ``declared`` maps the inventory's
``node_*`` names to their values, None where the inventory says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from provision.model import gres
from provision.model.checks import Check, Subject, Verdict
from provision.model.facts import HardwareFacts

SUBJECT = Subject(
    "hardware",
    names=(
        "cpus", "sockets", "cores_per_socket", "threads_per_core", "cgroup_version", "real_memory", "gres",
        "gpu_driver", "gpu_id", "gpus_on_bus",
    ),
    fix="correct the inventory for this host, or repair the machine",
)  # fmt: skip

#: What must be equal, by its name in the facts; the inventory's has ``node_`` before it.
_Name = Literal["cpus", "sockets", "cores_per_socket", "threads_per_core", "cgroup_version"]
_COUNTS: tuple[_Name, ...] = get_args(_Name)

_DIFFERS = "the machine differs from its inventory: other hardware, a failed part, or a firmware setting"


def checks(facts: HardwareFacts, wants: Mapping[str, Any], *, simulated: bool = False) -> list[Check]:
    """Compare what is declared (``wants``) with the machine: all checks of the subject.

    ``simulated`` marks what is said of GPUs.
    """
    return [
        *(_count(name, facts[name], wants.get(f"node_{name}")) for name in _COUNTS),
        _memory(int(facts["real_memory"]), wants.get("node_real_memory")),
        _gres(facts, wants, simulated),
        _gpu_driver(facts, simulated),
        _gpu_id(facts, wants.get("node_gres") is not None, simulated),
        _gpus_on_bus(facts, simulated),
    ]


def _count(name: str, has: int, declared: object) -> Check:
    if declared is None:
        return SUBJECT.skip(name, "not declared")
    source = f"node_{name}"
    fix = f"correct {source} for this host, or repair the machine"
    return SUBJECT.check(name, _whole(declared) == has, has, declared, source=source, cause=_DIFFERS, fix=fix)


def _memory(has: int, declared: object) -> Check:
    if declared is None:
        return SUBJECT.skip("real_memory", "not declared")
    wanted = _whole(declared)
    return SUBJECT.check(
        "real_memory",
        wanted is not None and wanted <= has,
        f"{has} MB",
        f"{declared} MB or more",
        source="node_real_memory",
        cause=_DIFFERS,
        fix="correct node_real_memory for this host, or repair the machine",
    )


def _gres(facts: HardwareFacts, wants: Mapping[str, Any], simulated: bool) -> Check:
    declared = wants.get("node_gres")
    if declared is None:
        return SUBJECT.skip("gres", "not declared")
    if wants.get("node_mig"):
        # node_gres counts instances, which the role nvidia_mig makes and proves.
        return SUBJECT.skip("gres", "MIG instances are declared, and proven by the checks of MIG")
    without_driver = not facts["gpu_count"] and facts["gpus_on_bus"]
    there = str(facts["gres"])
    if without_driver:
        # The driver comes later; what is on the bus is there.
        there = str(facts.get("bus_gres") or f"gpu:{facts['gpus_on_bus']}")
    try:
        wanted = gres.parse(declared)
    except ValueError as error:
        return SUBJECT.check("gres", False, there, source="node_gres", cause=str(error), fix="correct node_gres")
    try:
        has = _types(gres.parse(there))
    except ValueError as error:
        return SUBJECT.unknown("gres", f"the machine's GPUs cannot be read: {error}")
    verdict, cause, fix = _compared(has, _types(wanted))
    return SUBJECT.check(
        "gres",
        verdict,
        f"{there} (by PCI id; no driver runs yet)" if without_driver else there or "no GPU",
        ",".join(map(str, wanted)) or "no GPU",
        source="node_gres",
        cause=cause,
        fix=fix,
        simulated=simulated,
    )


def _compared(has: Mapping[str, int], wanted: Mapping[str, int]) -> tuple[Verdict, str, str]:
    """Return verdict, cause and fix of GPUs by their types."""
    if sum(has.values()) < sum(wanted.values()):
        cause = "fewer GPUs than declared: one is missing, failed, or has no driver"
        return Verdict.FAIL, cause, "nvidia-smi; lspci -d 10de:; repair the machine or correct node_gres"
    if sum(has.values()) > sum(wanted.values()):
        return Verdict.WARN, "more GPUs than declared: Slurm will not hand out the rest", "correct node_gres"
    said = {(kind, name): gres.same_type(kind, name) for kind in wanted for name in has}
    if all(sum(has[name] for name in has if said[kind, name]) >= count for kind, count in wanted.items()):
        return Verdict.PASS, "", ""
    if any(sum(has[name] for name in has if said[kind, name] is not False) < count for kind, count in wanted.items()):
        cause = "the machine has GPUs of another type than declared"
        return Verdict.FAIL, cause, "correct node_gres for this host, or repair the machine"
    return (
        Verdict.WARN,
        "the types are spelled differently",
        "write the type as the machine has it, so that automatic detection agrees with it",
    )


def _types(resources: tuple[gres.Gres, ...]) -> dict[str, int]:
    """Return how many GPUs there are of each type, in lower case; an empty text for those without one."""
    return {
        kind.removeprefix("gpu").removeprefix(":"): count
        for kind, count in gres.counts(one for one in resources if one.name == "gpu").items()
    }


def _gpu_driver(facts: HardwareFacts, simulated: bool) -> Check:
    if facts["gpu_count"]:
        observed = f"{facts['gpu_source']} lists {facts['gpu_count']}"
        return SUBJECT.check("gpu_driver", True, observed, "a driver", simulated=simulated)
    if not facts["gpus_on_bus"]:
        return SUBJECT.skip("gpu_driver", "no NVIDIA GPU")
    return SUBJECT.check(
        "gpu_driver",
        Verdict.WARN,
        f"{facts['gpus_on_bus']} NVIDIA devices on the bus, no driver",
        "a driver",
        cause="no driver is loaded yet",
        fix="clusterctl provision gpu",
    )


def _gpu_id(facts: HardwareFacts, declared: bool, simulated: bool) -> Check:
    if facts["gpu_count"]:
        return SUBJECT.skip("gpu_id", "the driver names the GPUs")
    if not facts["gpus_on_bus"]:
        return SUBJECT.skip("gpu_id", "no NVIDIA GPU")
    strange = [f"{gpu['address']} (PCI id {gpu['id']})" for gpu in facts.get("bus_gpus", ()) if not gpu["product"]]
    return SUBJECT.check(
        "gpu_id",
        Verdict.PASS if not strange else Verdict.WARN if declared else Verdict.UNKNOWN,
        f"unknown GPUs: {', '.join(strange)}" if strange else "all known",
        "GPUs that are known by their PCI id",
        cause="these ids are not in clusterctl's table, so the GPUs' type is not known",
        fix="declare node_gres for this host, for example gpu:a40:4",
        simulated=simulated,
    )


def _gpus_on_bus(facts: HardwareFacts, simulated: bool) -> Check:
    """Judge a driver that runs fewer GPUs than the bus has."""
    if not facts["gpus_on_bus"]:
        return SUBJECT.skip("gpus_on_bus", "no NVIDIA GPU on the bus")
    if not facts["gpu_count"]:
        return SUBJECT.skip("gpus_on_bus", "no driver runs that could list them")
    there = set(facts.get("gpu_addresses", ()))
    missing = [gpu["address"] for gpu in facts.get("bus_gpus", ()) if gpu["address"] not in there]
    observed = f"the bus has {facts['gpus_on_bus']} GPUs, {facts['gpu_source']} lists {facts['gpu_count']}"
    passed = facts["gpu_count"] >= facts["gpus_on_bus"]
    if not passed and there and missing:
        observed += f": {', '.join(missing)} is missing"
    return SUBJECT.check(
        "gpus_on_bus",
        passed,
        observed,
        f"{facts['gpus_on_bus']} GPUs",
        source="the PCI bus",
        cause="a GPU fell off the bus or could not be initialised (Xid 79): hardware, not configuration",
        fix="on the machine: dmesg | grep -i xid; power it off and on, reseat or replace the GPU",
        simulated=simulated,
    )


def _whole(value: object) -> int | None:
    text = str(value).strip()
    return int(text) if text.isascii() and text.isdigit() else None
