"""Declared hardware against the machine's. Pure.

``facts`` (``found``) is what the module ``machine_facts`` reports under ``hardware``; ``declared`` maps the inventory's
``node_*`` names to their values, None where the inventory says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from provision.model import gres
from provision.model.checks import Check, Subject, Verdict
from provision.model.cluster import Hardware
from provision.model.discovered import gpus_off_sockets
from provision.model.facts import HardwareFacts
from provision.slurm.gres import Site, detection

SUBJECT = Subject(
    "hardware",
    names=(
        "cpus", "sockets", "cores_per_socket", "threads_per_core", "cgroup_version", "real_memory", "gres",
        "gpu_affinity", "gpu_driver", "gpu_id", "gpus_on_bus",
    ),
    fix="correct the inventory for this host, or repair the machine",
)  # fmt: skip

#: What must be equal, by its name in the facts; the inventory's has ``node_`` before it.
_Name = Literal["cpus", "sockets", "cores_per_socket", "threads_per_core", "cgroup_version"]
_COUNTS: tuple[_Name, ...] = get_args(_Name)
_SHAPE: tuple[_Name, ...] = ("sockets", "cores_per_socket")

_DIFFERS = "the machine differs from its inventory: other hardware, a failed part, or a firmware setting"


def checks(
    facts: HardwareFacts, wants: Mapping[str, Any], *, simulated: bool = False, site: Site | None = None
) -> list[Check]:
    """Compare what is declared (``wants``) with the machine: all checks of the subject.

    ``simulated`` marks what is said of GPUs. ``site`` is None where Slurm is not to be configured, yet: then nothing is
    said of what it would take.
    """
    detected = site is not None and _detected(site, wants)
    regrouped = site is not None and site.regroups
    return [
        *(_count(name, facts, wants, regrouped=regrouped) for name in _COUNTS),
        _memory(int(facts["real_memory"]), wants.get("node_real_memory")),
        _gres(facts, wants, simulated, detected=detected),
        _gpu_affinity(facts, site if detected else None, simulated),
        _gpu_driver(facts, simulated),
        _gpu_id(facts, wants.get("node_gres") is not None, simulated),
        _gpus_on_bus(facts, simulated),
    ]


def _detected(site: Site, wants: Mapping[str, Any]) -> bool:
    """Tell whether gres.conf lets Slurm detect the machine's GPUs."""
    try:
        resources = gres.parse(wants.get("node_gres") or ())
    except ValueError:
        return False
    hardware = Hardware.model_construct(
        gres=resources,
        gres_files=wants.get("node_gres_files"),
        gpu_affinity=wants.get("node_gpu_affinity"),
        mig=wants.get("node_mig"),
    )
    return detection(site, hardware)[0] != "files"


def _count(name: _Name, facts: HardwareFacts, wants: Mapping[str, Any], *, regrouped: bool) -> Check:
    declared, has = wants.get(f"node_{name}"), facts[name]
    if declared is None:
        return SUBJECT.skip(name, "not declared")
    source, right = f"node_{name}", _whole(declared) == has
    if regrouped and name in _SHAPE:
        # slurmd -C then prints caches or NUMA nodes as sockets, and Slurm takes either.
        told = [_whole(wants.get(f"node_{part}")) or facts[part] for part in _SHAPE]
        right = right or math.prod(told) == math.prod(facts[part] for part in _SHAPE)
    fix = f"correct {source} for this host, or repair the machine"
    return SUBJECT.check(name, right, has, declared, source=source, cause=_DIFFERS, fix=fix)


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


def _gres(facts: HardwareFacts, wants: Mapping[str, Any], simulated: bool, *, detected: bool) -> Check:
    declared = wants.get("node_gres")
    if declared is None:
        return SUBJECT.skip("gres", "not declared")
    if wants.get("node_mig"):
        # node_gres counts instances, which the role nvidia_mig makes and proves.
        return SUBJECT.skip("gres", "MIG instances are declared, and proven by the checks of MIG")
    without_driver = not facts["gpu_count"] and facts["gpus_on_bus"]
    there, products = str(facts["gres"]), facts.get("gpu_products")
    if without_driver:
        # The driver comes later; what is on the bus is there.
        there = str(facts.get("bus_gres") or f"gpu:{facts['gpus_on_bus']}")
        products = [gpu["product"] for gpu in facts.get("bus_gpus", ())]
    try:
        wanted = gres.parse(declared)
    except ValueError as error:
        return SUBJECT.check("gres", False, there, source="node_gres", cause=str(error), fix="correct node_gres")
    try:
        has = _types(gres.parse(there))
    except ValueError as error:
        return SUBJECT.unknown("gres", f"the machine's GPUs cannot be read: {error}")
    if products is None or len(products) != sum(has.values()):
        products = [kind for kind, count in has.items() for _ in range(count)]
    verdict, cause, fix = _compared(products, _types(wanted), detected=detected)
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


def _compared(products: Sequence[str], wanted: Mapping[str, int], *, detected: bool) -> tuple[Verdict, str, str]:
    """Return verdict, cause and fix of GPUs by their types; with device files a type is any word."""
    if len(products) < sum(wanted.values()):
        cause = "fewer GPUs than declared: one is missing, failed, or has no driver"
        return Verdict.FAIL, cause, "nvidia-smi; lspci -d 10de:; repair the machine or correct node_gres"
    if len(products) > sum(wanted.values()):
        return Verdict.WARN, "more GPUs than declared: Slurm will not hand out the rest", "correct node_gres"
    for kind, count in wanted.items():
        if sum(not gres.other_product(kind, product) for product in products) < count:
            cause = "the machine has GPUs of another type than declared"
            return Verdict.FAIL, cause, "correct node_gres for this host, or repair the machine"
    untaken = gres.untaken(wanted, products)
    if not untaken or not detected:
        return Verdict.PASS, "", ""
    if not all(products):
        cause = "what the driver will call these GPUs is not known, nor whether Slurm will know them by this type"
        return Verdict.WARN, cause, "nvidia-smi --query-gpu=name --format=csv, once the driver runs"
    kind, names = next(iter(untaken)), sorted(set(map(gres.slurms_name, products)))
    return (
        Verdict.FAIL,
        f"the driver's name, in Slurm {' or '.join(names)}, has no '{kind}' in it: Slurm would find no such GPU",
        f"write node_gres=gpu:{gres.spelt_for(kind, names[0])}:{wanted[kind]}; or keep the type: "
        "slurm_conf_gpu_detection=files",
    )


def _gpu_affinity(facts: HardwareFacts, detecting: Site | None, simulated: bool) -> Check:
    """Judge whether Slurm takes the cores that its own detection finds near each GPU."""
    if detecting is None:
        return SUBJECT.skip("gpu_affinity", "Slurm does not detect GPUs here")
    off = [] if detecting.takes_parts else gpus_off_sockets(facts)
    return SUBJECT.check(
        "gpu_affinity",
        not off,
        "; ".join(off[:4]) or "each GPU is near whole sockets",
        "GPUs near whole sockets",
        source="/sys/bus/pci/devices/*/local_cpulist",
        cause="NUMA nodes are parts of sockets (NPS2, NPS4, SNC): Slurm drains a node when its detection finds that",
        fix="declare node_gpu_affinity=numa for this host, so that gres.conf names device files",
        simulated=simulated,
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
