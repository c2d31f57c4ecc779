# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's and Mellanox's devices on a machine's PCI bus, by the kernel's files. Reads only. Python 3.8."""

from __future__ import annotations

import os
from pathlib import Path

from ansible.module_utils import machine_gpu_ids as ids
from ansible.module_utils.machine_hardware import gres, listed, read

_NVIDIA, _MELLANOX = "10de", "15b3"
#: Classes, by their first two bytes: VGA and 3D controllers are GPUs, other bridges are NVSwitches.
_GPU_CLASSES, _BRIDGE_CLASS, _NETWORK_CLASSES = ("0300", "0302"), "0680", ("0200", "0207")
#: Drivers that keep a device for a virtual machine. It is on the bus, and is none of this machine's.
_PASSED_THROUGH = ("vfio-pci", "nvgrace_gpu_vfio_pci", "pci-stub", "pciback", "xen-pciback")


def _hexadecimal(text):
    return text[2:] if text.startswith("0x") else text


def devices(root):
    """Return every PCI device of NVIDIA and Mellanox: address, ids, class, and the kernel driver bound to it."""
    found = []
    for address in listed(root, "sys/bus/pci/devices"):
        place = "sys/bus/pci/devices/" + address
        vendor = _hexadecimal(read(root, place + "/vendor"))
        if vendor not in (_NVIDIA, _MELLANOX):
            continue
        try:
            driver = os.readlink(Path(root, place, "driver")).rsplit("/", 1)[-1]  # noqa: PTH115 - Python 3.8
        except OSError:
            driver = ""
        device = _hexadecimal(read(root, place + "/device"))
        found.append(
            {
                "address": address,
                "vendor": vendor,
                "device": device,
                "id": vendor + ":" + device,
                "board": _hexadecimal(read(root, place + "/subsystem_device")),
                "class": _hexadecimal(read(root, place + "/class"))[:4],
                "driver": driver,
            }
        )
    return found


def gpus(found):
    """Return the GPUs among ``devices`` that are this machine's own.

    Product and architecture are empty where the id is not known, but for the architecture of what is older than all ids
    in the table; ``consumer`` is None where it is not known.
    """
    result = []
    for device in found:
        if not _is_gpu(device) or device["driver"] in _PASSED_THROUGH:
            continue
        product, architecture = ids.GPUS.get(device["device"], ("", ids.older(device["device"])))
        product = ids.BOARDS.get((device["device"], device["board"]), product)
        known = {"product": product, "architecture": architecture, "grace": device["device"] in ids.GRACE}
        consumer = any(word in product for word in ids.CONSUMER) if product else None
        result.append({**_brief(device), **known, "consumer": consumer})
    return result


def passed_through(found):
    """Return the addresses of GPUs that were given to virtual machines."""
    return [device["address"] for device in found if _is_gpu(device) and device["driver"] in _PASSED_THROUGH]


def virtual(root, found):
    """Return the addresses of GPUs that are a part of another machine's (vGPU): a capability of NVIDIA's own is VF."""
    return [
        one["address"] for one in found if _is_gpu(one) and b"VF" in _capabilities(_bytes(root, one, "config") or b"")
    ]


def _capabilities(config):
    """Yield how the vendor's own capabilities (9) in a device's configuration space begin."""
    place = config[0x34] & 0xFC if len(config) >= 256 and config[6] & 0x10 else 0
    for _ in range(48):  # so many have room: a chain may be a circle
        if place and config[place] == 9:
            yield config[place + 3 : place + 5]
        place = config[place + 1] & 0xFC if place else 0


def vgpu_manager(root):
    """Tell whether NVIDIA's vGPU manager is loaded, which gives parts of GPUs to virtual machines."""
    return Path(root, "sys/module/nvidia_vgpu_vfio").exists()


def _is_gpu(device):
    return device["vendor"] == _NVIDIA and device["class"] in _GPU_CLASSES


def bus(root, contained=False):
    """Return what hardware records of GPUs need: ids, products, CPUs, and Slurm's Gres if every product is known.

    A container (``contained``) sees the bus of the computer that it runs on, and none of it is its own.
    """
    seen = [] if contained else gpus(devices(root))
    products = [gpu["product"] for gpu in seen]
    return {
        "gpus_on_bus": len(seen),
        "bus_gpus": [
            {
                **{key: gpu[key] for key in ("address", "id", "product")},
                # Where Slurm's detection has a GPU's cores from. The kernel knows it without a driver.
                "cpus": read(root, f"sys/bus/pci/devices/{gpu['address']}/local_cpulist"),
            }
            for gpu in seen
        ],
        "bus_gres": gres(products) if products and all(products) else "",
    }


def nvswitches(root, found):
    """Return the NVSwitches on the bus, and the bridges that stand for those of Blackwell boards."""
    mine = [device for device in found if device["driver"] not in _PASSED_THROUGH]
    switches = [_brief(device) for device in mine if device["vendor"] == _NVIDIA and device["class"] == _BRIDGE_CLASS]
    return switches + [_brief(device) for device in _bridges(mine) if b"SW_MNG" in (_vpd(root, device) or b"")]


def unread_bridges(root, found):
    """Return the addresses of adapters that may stand for NVSwitches, and do not say what they are."""
    return [device["address"] for device in _bridges(found) if _vpd(root, device) is None]


def _bridges(found):
    # Asked on these boards alone: some adapters take long to answer.
    if not any(device["vendor"] == _NVIDIA and device["device"] in ids.HIDDEN_NVSWITCH for device in found):
        return []
    return [device for device in found if device["vendor"] == _MELLANOX]


def _vpd(root, device):
    """Return an adapter's vital product data; None where it cannot be read."""
    return _bytes(root, device, "vpd")


def _bytes(root, device, name):
    try:
        return Path(root, "sys/bus/pci/devices", device["address"], name).read_bytes()
    except OSError:
        return None


def adapters(found):
    """Return Mellanox's network adapters; product is empty where the id is not known."""
    return [
        {**_brief(device), "product": ids.ADAPTERS.get(device["device"], "")}
        for device in found
        if device["vendor"] == _MELLANOX and device["class"] in _NETWORK_CLASSES
    ]


def _brief(device):
    return {key: device[key] for key in ("address", "id", "driver")}
