"""Whether a machine's adapters reach its GPUs' memory as decided: mechanism, modules, bridges, IOMMU. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.judge import managed
from provision.model.checks import Check, Subject, Verdict
from provision.rdma.gpudirect import Decision, Mechanism
from provision.rdma.gpudirect_facts import read
from provision.rdma.gpudirect_machine import conflicts, decision, outdated, redirecting
from provision.rdma.gpudirect_machine import managed as managed_of

SUBJECT = Subject(
    "gpudirect", names=("mechanism", "module", "files", "conflict", "acs", "iommu"), fix="clusterctl provision rdma"
)

_VERDICTS = {Mechanism.NONE: Verdict.SKIP, Mechanism.UNKNOWN: Verdict.UNKNOWN}
_NO_WAY = {
    Mechanism.NONE: "there is nothing to reach",
    Mechanism.IMPOSSIBLE: "no mechanism is possible",
    Mechanism.UNKNOWN: "the mechanism is not known",
}


def checks(found: object, settings: Mapping[str, Any], *, proven: bool = True) -> list[Check]:
    """Return the checks of one machine. Without ``proven`` the decision alone, before anything is done.

    ``found`` is what ``machine_facts`` answered, with its parts ``gpu`` and ``rdma``, whatever that is; None where the
    machine has no RDMA adapter and was not asked. ``settings`` are those of ``decision``, and ``required``: whether it
    is an error that nothing is possible.
    """
    if found is None:
        return SUBJECT.all_skipped("there is no RDMA adapter")
    try:
        told = read(found)
    except ValueError as error:
        return SUBJECT.all_unknown(str(error), cause="the machine's Python or one of its programs gives wrong answers")
    chosen = decision(told, settings)
    first = _mechanism(chosen, required=bool(settings["required"]))
    if not proven:
        return [first]
    if chosen.mechanism in _NO_WAY:
        why, left = _NO_WAY[chosen.mechanism], SUBJECT.names[1:]
        open_question = chosen.mechanism is not Mechanism.NONE
        return [first, *(SUBJECT.skip(name, why, unproven=open_question) for name in left)]
    files = managed.files(SUBJECT, managed_of(chosen, told), told["gpu"]["files"], {})
    return [first, _module(chosen, told), files, _conflict(chosen, told), _acs(told["rdma"]), _iommu(told["rdma"])]


def _mechanism(chosen: Decision, *, required: bool) -> Check:
    verdict = _VERDICTS.get(chosen.mechanism, Verdict.WARN if chosen.legacy else Verdict.PASS)
    if chosen.mechanism is Mechanism.IMPOSSIBLE:
        verdict = Verdict.FAIL if required else Verdict.WARN
        cause = "adapters cannot reach the GPUs' memory, so that all data goes through the machine's"
    else:
        cause = "it is not maintained any more" if chosen.legacy else "the machine did not say"
    better = f"; better: {chosen.offer}" if chosen.offer else ""
    seen = f"{chosen.mechanism}: {chosen.reason}{better}"
    return SUBJECT.check(
        "mechanism",
        verdict,
        f"nothing to do: {chosen.reason}" if verdict is Verdict.SKIP else seen,
        "DMA-BUF or nvidia-peermem",
        source="driver, kernel, GPUs and OFED of the machine",
        cause=cause,
        fix="; or ".join(chosen.remedies) or chosen.offer or "clusterctl provision gpu; declare what is not known",
    )


def _module(chosen: Decision, found: Mapping[str, Any]) -> Check:
    rdma = found["rdma"]
    name = chosen.load.replace("-", "_")
    if not name:
        return SUBJECT.check("module", True, "none is needed", "none", source=str(chosen.mechanism))
    module, configured = rdma["modules"].get(name) or {}, rdma["configured"].get(name) or ()
    at_boot = [path for path in configured if "modules-load.d" in path]
    missing = [
        *([] if module.get("loaded") else [f"{chosen.load} is not loaded"]),
        *([] if at_boot else ["no file in /etc/modules-load.d loads it at boot"]),
    ]
    before = outdated(chosen, rdma)
    if before:
        missing.append("it was compiled before the OFED was installed")
        cause = "compiled without peer memory, the module always refuses to be loaded (Invalid argument)"
        fix = f"{SUBJECT.fix}: it builds the driver's modules again"
    else:
        cause = "GPUDirect RDMA is off: the module is not there, and DMA-BUF needs the open kernel modules"
        fix = f"modprobe {chosen.load}; {SUBJECT.fix}"
    return SUBJECT.check(
        "module",
        not missing,
        "; ".join(missing) or f"{chosen.load} {module.get('version', '')}, at boot too".replace(" ,", ","),
        f"{chosen.load}, at boot too",
        source=str(chosen.mechanism),
        cause=cause,
        fix=fix,
    )


def _conflict(chosen: Decision, found: Mapping[str, Any]) -> Check:
    rdma, there = found["rdma"], conflicts(chosen, found["rdma"])
    wrong = [f"module {name} is loaded" for name in there["modules"]]
    wrong += [f"package {name} is installed" for name in there["packages"]]
    wrong += ["its service is set to start at boot"] if there["links"] else []
    if chosen.mechanism != Mechanism.NV_PEER_MEM:
        wrong += [f"{path} loads nv_peer_mem" for path in rdma["configured"].get("nv_peer_mem") or ()]
    return SUBJECT.check(
        "conflict",
        not wrong,
        "; ".join(wrong) or "no other module",
        f"{chosen.load or 'no module'} alone",
        source=str(chosen.mechanism),
        cause="nv_peer_mem is the forerunner; the two exclude each other",
        fix=f"{SUBJECT.fix}; remove the line from a file of your own",
    )


def _acs(rdma: Mapping[str, Any]) -> Check:
    """Where bridges redirect, data is slow, or stops."""
    told, on = rdma["acs"], redirecting(rdma)
    if rdma["virtual"]:
        return SUBJECT.skip("acs", "a virtual machine: leave it on, and enable ATS on adapter and GPU")
    commands = [f"setpci -s {bridge} ECAP_ACS+0x6.w=0000" for bridge in on]
    return SUBJECT.check(
        "acs",
        Verdict.WARN if on else Verdict.UNKNOWN if told["unread"] else Verdict.PASS,
        "; ".join(f"{bridge} has {'+'.join(bits)}" for bridge, bits in on.items())
        or (f"not readable: {', '.join(told['unread'])}" if told["unread"] else "off on all bridges"),
        "off on all bridges between GPUs and adapters",
        source="/sys/bus/pci/devices/*/config",
        cause="Access Control Services sends what an adapter writes to a GPU up to the processor and back",
        fix=f"switch it off in the firmware (BIOS), or at each boot: {'; '.join(commands)}",
    )


def _iommu(rdma: Mapping[str, Any]) -> Check:
    told = rdma["iommu"]
    if rdma["virtual"]:
        return SUBJECT.skip("iommu", "a virtual machine")
    translating = [kind for kind in told["types"] if kind.startswith("DMA")]
    state = "passes through"
    if translating:
        state = f"translates ({', '.join(translating)})"
    if not told["groups"]:
        state = "off"
    return SUBJECT.check(
        "iommu",
        Verdict.WARN if told["groups"] and translating else Verdict.PASS,
        " ".join([state, *told["arguments"]]),
        "off, or passing through (iommu=pt)",
        source="/sys/kernel/iommu_groups",
        cause="each access from adapter to GPU is translated, which costs speed and sometimes fails",
        fix="add iommu=pt to the kernel's command line, or switch the IOMMU off in the firmware; reboot",
    )
