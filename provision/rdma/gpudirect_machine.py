"""What a machine's answers mean for GPUDirect RDMA: the decision, what is to be done for it, and whether it was. Pure.

``found`` is what the module ``machine_facts`` reports, with its parts ``gpu`` and ``rdma``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.rdma.gpudirect import OLD_PACKAGES, Decision, Machine, Mechanism, decide

#: Where what is loaded at boot is said. All are ours and removed where they say nothing.
AT_BOOT = "/etc/modules-load.d/clusterctl-gpudirect.conf"
OPTIONS = "/etc/modprobe.d/clusterctl-gpudirect.conf"
AFTER_OFED = "/etc/systemd/system/openibd.service.d/clusterctl-gpudirect.conf"

_PROVISION = "clusterctl provision rdma"
_NO_CONFLICTS: dict[str, list[str]] = {"modules": [], "packages": [], "links": []}
#: Bits of Access Control Services that send what goes from one device to another through the processor instead.
_REDIRECTING = ("SrcValid", "ReqRedir", "CmpltRedir")


def decision(found: Mapping[str, Any], settings: Mapping[str, Any]) -> Decision:
    """Return by which mechanism the machine's adapters reach its GPUs.

    ``settings``: ``nccl`` (version that jobs bring, empty: not known), ``release`` (Ubuntu's, else empty),
    ``legacy_allowed``.
    """
    gpu, rdma = found["gpu"], found["rdma"]
    if rdma["adapters"] and not gpu["gpus"]:
        return Decision(Mechanism.NONE, "there is no NVIDIA GPU")
    module = gpu["module"]
    kernel = str(rdma.get("kernel") or gpu["kernel"]["running"])
    on_disk = (module.get("on_disk") or {}).get(kernel) or {}
    machine = Machine(
        adapters=len(rdma["adapters"]),
        driver=str(module["loaded"] or on_disk.get("version", "")),
        open_modules=_is_open(module["open"], str(on_disk.get("license", ""))),
        architectures=tuple(sorted({str(one["architecture"]) for one in gpu["gpus"]})),
        kernel=kernel,
        peer_memory=_peer_memory(rdma),
        ofed=str((rdma.get("ofed") or {}).get("kind", "")),
        ofed_version=str((rdma.get("ofed") or {}).get("version", "")),
        nccl=str(settings.get("nccl") or ""),
        release=str(settings.get("release") or ""),
    )
    return decide(machine, allow_legacy=bool(settings.get("legacy_allowed")))


def _is_open(running: bool | None, licence: str) -> bool | None:
    """The running module tells; where none is loaded, the licence of the one on disk."""
    if running is not None:
        return running
    return {"Dual MIT/GPL": True, "NVIDIA": False}.get(licence)


def _peer_memory(rdma: Mapping[str, Any]) -> bool | None:
    """An OFED's list of symbols is what the driver is built against, also where the old kernel's modules still run."""
    return True if rdma.get("peer_memory_trees") else rdma.get("peer_memory")


def plan(found: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is to be done: plain data for the role.

    ``apply`` is false where there is nothing to do. ``conflicts`` stand in the way and go first; ``build`` is a
    module that must be built anew because an OFED came after it; ``load`` is loaded now and at boot.
    """
    chosen = decision(found, settings)
    rdma = found["rdma"]
    applies = chosen.mechanism in (Mechanism.DMA_BUF, Mechanism.NVIDIA_PEERMEM, Mechanism.NV_PEER_MEM)
    texts = _texts(chosen, rdma) if applies else {}
    loaded = {name for name, module in (rdma.get("modules") or {}).items() if module["loaded"]}
    return {
        "apply": applies,
        "mechanism": str(chosen.mechanism),
        "conflicts": _conflicts(chosen, rdma) if applies else _NO_CONFLICTS,
        "legacy": chosen.mechanism == Mechanism.NV_PEER_MEM,
        "build": _outdated(chosen, rdma) if applies else "",
        "load": chosen.load if chosen.load.replace("-", "_") not in loaded else "",
        "files": [{"path": path, "content": text, "mode": "0644"} for path, text in texts.items()],
        "directories": [{"path": path.rpartition("/")[0], "mode": "0755"} for path in texts],
        "absent": [path for path in (AT_BOOT, OPTIONS, AFTER_OFED) if path not in texts] if applies else [],
    }


def _texts(chosen: Decision, rdma: Mapping[str, Any]) -> dict[str, str]:
    texts = {}
    if chosen.load:
        texts[AT_BOOT] = f"# Nothing loads it by itself, and without it data goes through memory.\n{chosen.load}\n"
        if (rdma.get("ofed") or {}).get("kind"):
            texts[AFTER_OFED] = (
                "# The OFED's service loads its own modules, at boot and when it is restarted. What registers with\n"
                "# them comes after.\n"
                f"[Service]\nExecStartPost=-/sbin/modprobe {chosen.load}\n"
            )
    if chosen.options:
        texts[OPTIONS] = f"# {chosen.reason}.\n{chosen.options}\n"
    return texts


def _conflicts(chosen: Decision, rdma: Mapping[str, Any]) -> dict[str, list[str]]:
    """Only one of the two modules may be loaded; the old one's service would load it again."""
    if chosen.mechanism == Mechanism.NV_PEER_MEM:
        return _NO_CONFLICTS
    modules = rdma.get("modules") or {}
    return {
        "modules": ["nv_peer_mem"] if modules.get("nv_peer_mem", {}).get("loaded") else [],
        "packages": sorted(set(OLD_PACKAGES) & set(rdma.get("packages") or {})),
        "links": list(rdma.get("old_service") or ()),
    }


def _outdated(chosen: Decision, rdma: Mapping[str, Any]) -> str:
    """Return the module that was compiled before the OFED came, and so without what it offers."""
    if chosen.mechanism != Mechanism.NVIDIA_PEERMEM or not rdma.get("peer_memory_trees"):
        return ""
    built = int((rdma["modules"].get("nvidia_peermem") or {}).get("built") or 0)
    return "nvidia" if built and built < int(rdma["peer_memory_changed"]) else ""


def judge(found: Mapping[str, Any], settings: Mapping[str, Any], *, proven: bool) -> list[dict[str, Any]]:
    """Return the checks of one machine: the decision alone before anything is done, with ``proven`` also its outcome.

    ``settings`` are those of ``decision``, and ``required``: whether it is an error that nothing is possible.
    """
    chosen = decision(found, settings)
    result = [_mechanism(chosen, required=bool(settings["required"]))]
    if not proven or chosen.mechanism in (Mechanism.NONE, Mechanism.IMPOSSIBLE, Mechanism.UNKNOWN):
        return result
    return [*result, _modules(chosen, found), _conflict(chosen, found), _acs(found["rdma"]), _iommu(found["rdma"])]


def _mechanism(chosen: Decision, *, required: bool) -> dict[str, Any]:
    verdicts = {
        Mechanism.NONE: "skip",
        Mechanism.UNKNOWN: "unknown",
        Mechanism.IMPOSSIBLE: "fail" if required else "warn",
    }
    verdict = verdicts.get(chosen.mechanism, "warn" if chosen.legacy else "pass")
    better = f"; better: {chosen.offer}" if chosen.offer else ""
    observed = (
        f"nothing to do: {chosen.reason}" if verdict == "skip" else f"{chosen.mechanism}: {chosen.reason}{better}"
    )
    return _check(
        "mechanism",
        verdict,
        observed=observed,
        expected="DMA-BUF or nvidia-peermem",
        source="driver, kernel, GPUs and OFED of the machine",
        cause="adapters cannot reach the GPUs' memory, so that all data goes through the machine's"
        if chosen.mechanism == Mechanism.IMPOSSIBLE
        else "it is not maintained any more"
        if chosen.legacy
        else "the machine did not tell",
        fix="; or ".join(chosen.remedies) or chosen.offer or "clusterctl provision gpu; declare what is not known",
    )


def _modules(chosen: Decision, found: Mapping[str, Any]) -> dict[str, Any]:
    rdma = found["rdma"]
    name = chosen.load.replace("-", "_")
    if not name:
        return _check(
            "module", "pass", observed="none is needed", expected="none", source=str(chosen.mechanism), cause="", fix=""
        )
    module, configured = rdma["modules"].get(name) or {}, rdma["configured"].get(name) or {}
    at_boot = [path for path in configured if "modules-load.d" in path]
    missing = [
        *([] if module.get("loaded") else [f"{chosen.load} is not loaded"]),
        *([] if at_boot else ["no file in /etc/modules-load.d loads it at boot"]),
    ]
    before = _outdated(chosen, rdma)
    if before:
        missing.append("it was compiled before the OFED was installed")
    causes = {
        True: "compiled without peer memory, the module always refuses to be loaded (Invalid argument)",
        False: "GPUDirect RDMA is off: the module is not there, and DMA-BUF needs the open kernel modules",
    }
    fix = f"{_PROVISION}: it builds the driver's modules again" if before else f"modprobe {chosen.load}; {_PROVISION}"
    return _check(
        "module",
        "fail" if missing else "pass",
        observed="; ".join(missing) or f"{chosen.load} {module.get('version', '')}, at boot too".replace(" ,", ","),
        expected=f"{chosen.load}, at boot too",
        source=str(chosen.mechanism),
        cause=causes[bool(before)],
        fix=fix,
    )


def _conflict(chosen: Decision, found: Mapping[str, Any]) -> dict[str, Any]:
    rdma, there = found["rdma"], _conflicts(chosen, found["rdma"])
    wrong = [f"module {name} is loaded" for name in there["modules"]]
    wrong += [f"package {name} is installed" for name in there["packages"]]
    wrong += ["its service is set to start at boot"] if there["links"] else []
    if chosen.mechanism != Mechanism.NV_PEER_MEM:
        wrong += [f"{path} loads nv_peer_mem" for path in rdma["configured"].get("nv_peer_mem") or {}]
    return _check(
        "conflict",
        "fail" if wrong else "pass",
        observed="; ".join(wrong) or "no other module",
        expected=f"{chosen.load or 'no module'} alone",
        source=str(chosen.mechanism),
        cause="nv_peer_mem is the forerunner; the two exclude each other",
        fix=f"{_PROVISION}; remove the line from a file of your own",
    )


def redirecting(rdma: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the bridges that send what goes between two devices through the processor, and the bits that say so."""
    on = {one["bridge"]: [bit for bit in one["set"] if bit in _REDIRECTING] for one in rdma["acs"]["bridges"]}
    return {bridge: bits for bridge, bits in on.items() if bits}


def _acs(rdma: Mapping[str, Any]) -> dict[str, Any]:
    """Where bridges redirect, data is slow, or stops."""
    told, on = rdma["acs"], redirecting(rdma)
    if rdma["virtual"]:
        return _check(
            "acs", "skip", observed="a virtual machine: leave it on, and enable ATS on adapter and GPU", expected="",
            source="lspci", cause="", fix="",
        )  # fmt: skip
    verdict = "warn" if on else "unknown" if told["unread"] else "pass"
    commands = [f"setpci -s {bridge} ECAP_ACS+0x6.w=0000" for bridge in on]
    return _check(
        "acs",
        verdict,
        observed="; ".join(f"{bridge} has {'+'.join(bits)}" for bridge, bits in on.items())
        or (f"not readable: {', '.join(told['unread'])}" if told["unread"] else "off on all bridges"),
        expected="off on all bridges between GPUs and adapters",
        source="/sys/bus/pci/devices/*/config",
        cause="Access Control Services sends what an adapter writes to a GPU up to the processor and back",
        fix=f"switch it off in the firmware (BIOS), or at each boot: {'; '.join(commands)}",
    )


def _iommu(rdma: Mapping[str, Any]) -> dict[str, Any]:
    told = rdma["iommu"]
    translating = [kind for kind in told["types"] if kind.startswith("DMA")]
    state = (
        "off"
        if not told["groups"]
        else "passes through"
        if not translating
        else f"translates ({', '.join(translating)})"
    )
    if rdma["virtual"]:
        return _check(
            "iommu", "skip", observed="a virtual machine", expected="", source="/proc/cmdline", cause="", fix=""
        )
    return _check(
        "iommu",
        "warn" if told["groups"] and translating else "pass",
        observed=" ".join([state, *told["arguments"]]),
        expected="off, or passing through (iommu=pt)",
        source="/sys/kernel/iommu_groups",
        cause="each access from adapter to GPU is translated, which costs speed and sometimes fails",
        fix="add iommu=pt to the kernel's command line, or switch the IOMMU off in the firmware; reboot",
    )


def _check(name: str, verdict: str, **texts: Any) -> dict[str, Any]:
    if verdict in ("pass", "skip"):
        texts.update(cause="", fix="")
    return {"id": f"gpudirect.{name}", "host": "", "level": "host", "simulated": False, "verdict": verdict, **texts}
