"""Made-up machines with RDMA adapters: the kernel's files as an InfiniBand, a RoCE and a soft-RoCE machine has them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machines import plugin, tree

plugin("plugins/module_utils/machine_system.py", "ansible.module_utils.machine_system")
pci_utils = plugin("plugins/module_utils/machine_pci.py", "ansible.module_utils.machine_pci")
peer_memory = plugin("plugins/module_utils/machine_peer_memory.py", "ansible.module_utils.machine_peer_memory")
rdma = plugin("plugins/module_utils/machine_rdma.py", "ansible.module_utils.machine_rdma")

Run = Callable[[list[str]], str | None]
_NONE = "0000:0000:0000:0000:0000:0000:0000:0000"

#: Values of /sys/class/infiniband/<device>/ports/<port>/ by what the port is.
INFINIBAND = {"rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand", "lid": "0x11", "sm_lid": "0x1"}
ROCE = {"rate": "200 Gb/sec (4X HDR)", "link_layer": "Ethernet", "lid": "0x0", "sm_lid": "0x0"}
SOFT = {"rate": "2.5 Gb/sec (1X SDR)", "link_layer": "Ethernet", "lid": "0x0", "sm_lid": "0x0"}
UP = {"state": "4: ACTIVE", "phys_state": "5: LinkUp"}


def told(**answers: str) -> Run:
    """Answer commands by their first word; all others cannot be run."""
    return lambda command: answers.get(command[0].replace("-", "_"))


def device(root: Path, name: str, port: dict[str, str], *, address: str = "", gid: str = "", **values: str) -> Path:
    """Add a device with one port; without a PCI address it is one of software."""
    place = f"sys/class/infiniband/{name}"
    files = {
        f"{place}/node_type": values.pop("node_type", "1: CA") + "\n",
        f"{place}/ports/1/counters/link_downed": "0\n",
        f"{place}/ports/1/gids/0": f"{_NONE}\n",
    }
    if address:
        files.update({f"{place}/fw_ver": "28.39.1002\n", f"{place}/board_id": "MT_0000000838\n"})
        files[f"{place}/ports/1/counters/port_xmit_data"] = "4096\n"
    else:
        files[f"{place}/ports/1/hw_counters/sent_pkts"] = "17\n"
    if gid:
        files[f"{place}/ports/1/gids/1"] = f"{gid}\n"
        files[f"{place}/ports/1/gid_attrs/types/1"] = "RoCE v2\n"
        files[f"{place}/ports/1/gid_attrs/ndevs/1"] = "eth1\n"
    files.update({f"{place}/ports/1/{key}": f"{value}\n" for key, value in {**UP, **port, **values}.items()})
    tree(root, files)
    if address:
        (root / place / "device").symlink_to(pci(root, address, vendor="0x15b3", kind="0x020700"))
        driver = root / "sys/bus/pci/drivers/mlx5_core"
        driver.mkdir(parents=True, exist_ok=True)
        if not (root / "sys/bus/pci/devices" / address / "driver").exists():
            (root / "sys/bus/pci/devices" / address / "driver").symlink_to(driver)
    return root


def pci(root: Path, *path: str, vendor: str = "0x8086", kind: str = "0x060400", config: bytes = b"") -> Path:
    """Add the last of ``path`` to the bus, below the bridges before it, and return its place."""
    place = root.joinpath("sys/devices/pci0000:00", *path)
    link = root / "sys/bus/pci/devices" / path[-1]
    if not link.exists():
        tree(place, {"vendor": f"{vendor}\n", "class": f"{kind}\n"})
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(place)
    if config:
        (place / "config").write_bytes(config)
    return link


def capabilities(acs: int | None, *, first: int = 0x0001) -> bytes:
    """Return a configuration space with one extended capability, then, where ``acs`` is given, that of ACS."""
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, first | 1 << 16 | (0x148 if acs is not None else 0) << 20)
    if acs is not None:
        struct.pack_into("<I", space, 0x148, 0x000D | 1 << 16)
        struct.pack_into("<HH", space, 0x14C, 0x5F, acs)
    return bytes(space)


_SILENT = told()


def found(root: Path, run: Run = _SILENT, **more: Any) -> dict[str, Any]:
    """Return what the module reports of a made-up machine."""
    result: dict[str, Any] = rdma.collect(str(root), run=run, **more)
    return result
