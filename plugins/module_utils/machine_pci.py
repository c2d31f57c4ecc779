# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is on a machine's PCI bus between adapters and GPUs. Reads only. Standard library, Python 3.8."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from ansible.module_utils.machine_hardware import listed, read

_BUS = "sys/bus/pci/devices"
#: A network controller of Mellanox, or an InfiniBand or fabric controller of anybody: an RDMA adapter without a driver.
_MELLANOX = "0x15b3"
_NETWORK = "0x02"
_FABRICS = ("0x0207", "0x0208")
_GPU = ("0x10de", ("0x0300", "0x0302"))
_BRIDGE = "0x0604"
#: PCI Express: extended capabilities begin here, and this one is Access Control Services.
_EXTENDED = 0x100
_ACS = 0x000D
#: Bits of its control register, by lspci's names, in their order.
_ACS_BITS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")


def on_bus(root):
    """Return the PCI addresses of RDMA adapters, GPUs and bridges, whether or not a driver runs them."""
    found: dict = {"adapters": [], "gpus": [], "bridges": []}
    for address in listed(root, _BUS):
        vendor, kind = read(root, f"{_BUS}/{address}/vendor"), read(root, f"{_BUS}/{address}/class")
        if kind[:6] in _FABRICS or (vendor == _MELLANOX and kind.startswith(_NETWORK)):
            found["adapters"].append(address)
        elif vendor == _GPU[0] and kind[:6] in _GPU[1]:
            found["gpus"].append(address)
        elif kind.startswith(_BRIDGE):
            found["bridges"].append(address)
    return found


def acs_control(config):
    """Return the control register of Access Control Services in a PCI configuration space; None where it has none."""
    offset = _EXTENDED
    for _ in range(64):
        if offset < _EXTENDED or offset + 8 > len(config):
            return None
        (header,) = struct.unpack_from("<I", config, offset)
        if header & 0xFFFF == _ACS:
            return struct.unpack_from("<H", config, offset + 6)[0]
        offset = header >> 20
    return None


def acs(root, bus):
    """Return, for each bridge above a GPU or an adapter, what Access Control Services does there.

    ``set`` are the bits by lspci's names; ``unread`` bridges could not be asked (only root reads that far).
    """
    ends = bus["gpus"] + bus["adapters"]
    above: set = set()
    for end in ends:
        above.update(part for part in Path(root, _BUS, end).resolve().parts if part in bus["bridges"])
    found, unread = [], []
    for bridge in sorted(above):
        try:
            config = Path(root, _BUS, bridge, "config").read_bytes()
        except OSError:
            config = b""
        if len(config) <= _EXTENDED:
            unread.append(bridge)
            continue
        control = acs_control(config)
        if control is not None:
            names = [name for bit, name in enumerate(_ACS_BITS) if control >> bit & 1]
            found.append({"bridge": bridge, "control": control, "set": names})
    return {"bridges": found, "unread": unread}


def iommu(root):
    """Return how many groups the IOMMU has made, of which types their mappings are, and what the kernel was told."""
    groups = listed(root, "sys/kernel/iommu_groups")
    kinds = {read(root, f"sys/kernel/iommu_groups/{group}/type") for group in groups} - {""}
    words = read(root, "proc/cmdline").split()
    return {
        "groups": len(groups),
        "types": sorted(kinds),
        "arguments": [word for word in words if "iommu" in word.partition("=")[0]],
    }


def virtual(root):
    """Tell whether the machine is a virtual one."""
    flags = re.search(r"^flags\s*:(.*)$", read(root, "proc/cpuinfo"), re.M)
    return bool(flags and "hypervisor" in flags.group(1).split()) or bool(read(root, "sys/hypervisor/type"))
