"""What a machine's answers mean for GPUDirect RDMA: the decision, and what is to be done for it. Pure.

``found`` is what the module ``machine_facts`` reports, with its parts ``gpu`` and ``rdma``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.model.managed import Managed, with_directories
from provision.model.places import Place
from provision.rdma.gpudirect import OLD_PACKAGES, Decision, Machine, Mechanism, decide

#: Where what is loaded at boot is said. All are ours and removed where they say nothing.
AT_BOOT = "/etc/modules-load.d/clusterctl-gpudirect.conf"
OPTIONS = "/etc/modprobe.d/clusterctl-gpudirect.conf"
AFTER_OFED = "/etc/systemd/system/openibd.service.d/clusterctl-gpudirect.conf"
_FILES = (AT_BOOT, OPTIONS, AFTER_OFED)
#: What is asked of a machine: those, and their directories.
PLACES = (*_FILES, *(path.rpartition("/")[0] for path in _FILES))

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
        consumer=tuple(sorted({str(one.get("product")) for one in gpu["gpus"] if one.get("consumer")})),
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
        "conflicts": conflicts(chosen, rdma) if applies else _NO_CONFLICTS,
        "legacy": chosen.mechanism == Mechanism.NV_PEER_MEM,
        "build": outdated(chosen, rdma) if applies else "",
        "load": chosen.load if chosen.load.replace("-", "_") not in loaded else "",
        "files": [{"path": path, "content": text, "mode": "0644"} for path, text in texts.items()],
        "directories": [{"path": path.rpartition("/")[0], "mode": "0755"} for path in texts],
        "absent": [path for path in _FILES if path not in texts] if applies else [],
    }


def managed(chosen: Decision, found: Mapping[str, Any]) -> Managed:
    """Return what a mechanism, which has to be one, leaves at paths."""
    texts = _texts(chosen, found["rdma"])
    files = [Place(path, mode="0644", text=text) for path, text in texts.items()]
    return with_directories(files, [path for path in _FILES if path not in texts])


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


def conflicts(chosen: Decision, rdma: Mapping[str, Any]) -> dict[str, list[str]]:
    """Only one of the two modules may be loaded; the old one's service would load it again."""
    if chosen.mechanism == Mechanism.NV_PEER_MEM:
        return _NO_CONFLICTS
    modules = rdma.get("modules") or {}
    return {
        "modules": ["nv_peer_mem"] if modules.get("nv_peer_mem", {}).get("loaded") else [],
        "packages": sorted(set(OLD_PACKAGES) & set(rdma.get("packages") or {})),
        "links": list(rdma.get("old_service") or ()),
    }


def outdated(chosen: Decision, rdma: Mapping[str, Any]) -> str:
    """Return the module that was compiled before the OFED came, and so without what it offers."""
    if chosen.mechanism != Mechanism.NVIDIA_PEERMEM or not rdma.get("peer_memory_trees"):
        return ""
    built = int((rdma["modules"].get("nvidia_peermem") or {}).get("built") or 0)
    return "nvidia" if built and built < int(rdma["peer_memory_changed"]) else ""


def redirecting(rdma: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the bridges that send what goes between two devices through the processor, and the bits that say so."""
    on = {one["bridge"]: [bit for bit in one["set"] if bit in _REDIRECTING] for one in rdma["acs"]["bridges"]}
    return {bridge: bits for bridge, bits in on.items() if bits}
