# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine is made of, in Slurm's terms, read from files below ``root``. Standard library only, Python 3.8."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from ansible.module_utils import machine_commands

#: A driver in trouble makes nvidia-smi hang; a healthy one without persistence answers within seconds.
_NVIDIA_SMI_SECONDS = 30

#: Vendor NVIDIA; classes 0x0300 (VGA) and 0x0302 (3D): a GPU on the bus, whether or not a driver runs it.
_NVIDIA_VENDOR = "0x10de"
_GPU_CLASSES = ("0x0300", "0x0302")


def read(root, path):
    """Return a file's text below ``root``, stripped; empty when it cannot be read."""
    try:
        return Path(root, path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def listed(root, path):
    """Return the sorted names in a directory below ``root``; empty when there is none."""
    try:
        return sorted(entry.name for entry in Path(root, path).iterdir())
    except OSError:
        return []


def numbers(text):
    """Return the numbers of a kernel list such as ``0-3,8``."""
    found: list = []
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        found.extend(range(int(low), int(high or low) + 1))
    return found


def topology(root):
    """Return CPUs, sockets, cores per socket and threads per core of all online CPUs, and which CPUs a socket has.

    ``socket_cpus`` are those of each socket, and of all together, as the kernel lists them.

    CPUs = sockets * cores * threads always holds. Where the machine is not that regular (hybrid processors, some CPUs
    offline), it is described as one socket of as many single-threaded cores, as ``slurmd -C`` would be content with.
    A cpuset of the container or service that asks does not count: slurmd sees the whole machine too.
    """
    online = read(root, "sys/devices/system/cpu/online")
    cpus = numbers(online)
    if not cpus:
        cpus = list(range(len(re.findall(r"^processor\s*:", read(root, "proc/cpuinfo"), re.M))))
    sockets, cores, lists = set(), set(), {online}
    for cpu in cpus:
        place = f"sys/devices/system/cpu/cpu{cpu}/topology"
        package = read(root, f"{place}/physical_package_id") or "0"
        # Core numbers repeat from die to die, so a core is known by the CPUs that share it.
        siblings = read(root, f"{place}/core_cpus_list") or read(root, f"{place}/thread_siblings_list") or str(cpu)
        sockets.add(package)
        cores.add((package, siblings))
        lists.add(read(root, f"{place}/package_cpus_list") or read(root, f"{place}/core_siblings_list"))
    shape: dict = {"cpus": len(cpus), "sockets": len(sockets) or 1}
    shape["cores_per_socket"] = len(cores) // shape["sockets"] or 1
    shape["threads_per_core"] = len(cpus) // (shape["sockets"] * shape["cores_per_socket"]) or 1
    shape["regular"] = shape["cpus"] == shape["sockets"] * shape["cores_per_socket"] * shape["threads_per_core"]
    if not shape["regular"]:
        shape.update(sockets=1, cores_per_socket=shape["cpus"], threads_per_core=1)
        lists = {online}
    shape["socket_cpus"] = sorted(filter(None, lists))
    return shape


def memory(root):
    """Return the memory in MiB as slurmd counts it: what the kernel manages, rounded down."""
    match = re.search(r"^MemTotal:\s+(\d+) kB", read(root, "proc/meminfo"), re.M)
    return int(match.group(1)) // 1024 if match else 0


def cgroup_version(root):
    """Return 2 only where cgroup v2 rules alone; hybrid machines are 1, as they are to Slurm."""
    first = read(root, "proc/1/cgroup").split("\n", 1)[0]
    mounts = read(root, "proc/mounts").splitlines()
    unified = any(line.split()[1:3] == ["/sys/fs/cgroup", "cgroup2"] for line in mounts)
    return 2 if first.startswith("0::") and unified else 1


def gres_type(product):
    """Return a type for a GPU, ``a40`` for ``NVIDIA A40``: the longest part of Slurm's name for it that a type can be.

    Slurm takes a type only if it is such a part (machine's ``gpu_products`` say more). ``TITAN X (Pascal)``: titan_x.
    """
    name = re.sub(r"^nvidia_", "", product.strip().lower().replace(" ", "_"))
    return re.split(r"[^a-z0-9_.-]", name)[0].rstrip("_.-") or "gpu"


def gpus(root, run=None):
    """Return products and addresses of the GPUs that a driver runs, where that was read, and how many are on the bus.

    ``run`` takes a command as a list and returns its standard output, or None when it did not work.
    """
    run = run or _run
    bus = 0
    for device in listed(root, "sys/bus/pci/devices"):
        place = f"sys/bus/pci/devices/{device}"
        is_gpu = read(root, f"{place}/class")[:6] in _GPU_CLASSES
        bus += read(root, f"{place}/vendor") == _NVIDIA_VENDOR and is_gpu
    answer = run(["nvidia-smi", "--query-gpu=name,pci.bus_id", "--format=csv,noheader"])
    rows = [[cell.strip() for cell in row] for row in csv.reader((answer or "").splitlines())]
    products = [row[0] for row in rows if row and row[0]]
    # Its domain has eight digits; the kernel's has four.
    addresses = [row[1][4:].lower() for row in rows if len(row) > 1]
    if products:
        return {"products": products, "addresses": addresses, "source": "nvidia-smi", "on_bus": bus}
    addresses = listed(root, "proc/driver/nvidia/gpus")
    for device in addresses:
        match = re.search(r"^Model:\s*(.+)$", read(root, f"proc/driver/nvidia/gpus/{device}/information"), re.M)
        products.append(match.group(1) if match else "gpu")
    source = "/proc/driver/nvidia/gpus" if products else ""
    return {"products": products, "addresses": addresses, "source": source, "on_bus": bus}


def gres(products):
    """Return Slurm's ``Gres`` value for these GPUs: ``gpu:a40:4``, one entry for each type, in order of first sight."""
    types = [gres_type(product) for product in products]
    return ",".join(f"gpu:{name}:{types.count(name)}" for name in dict.fromkeys(types))


def collect(root="/", run=None):
    """Return everything above as one mapping of plain values."""
    found = topology(root)
    found.update(real_memory=memory(root), cgroup_version=cgroup_version(root))
    seen = gpus(root, run)
    devices = sorted(int(name[6:]) for name in listed(root, "dev") if re.match(r"nvidia\d+$", name))
    found.update(
        gres=gres(seen["products"]),
        gpu_products=seen["products"],
        gpu_count=len(seen["products"]),
        gpu_source=seen["source"],
        gpu_addresses=seen["addresses"],
        gpus_on_bus=seen["on_bus"],
        gpu_devices=devices,
    )
    return found


def _run(command):
    code, text = machine_commands.run(command, _NVIDIA_SMI_SECONDS, errors=False)
    return text if code == 0 else None
