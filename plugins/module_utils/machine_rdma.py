# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine's RDMA adapters and what carries data between them and GPUs. Reads only. Standard library, Python 3.8.

Files are read below ``root``; commands go through ``run``, which takes a list and returns what was printed, or None.
"""

from __future__ import annotations

import json
import os
import platform
import re
from pathlib import Path

from ansible.module_utils import machine_commands, machine_pci, machine_peer_memory, machine_system
from ansible.module_utils.machine_hardware import listed, read

_CLASS = "sys/class/infiniband"


#: What the kernel writes in ``gids/`` where there is nothing.
_NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"


def first_number(text):
    """Return the first number of a text such as ``4: ACTIVE`` or ``400 Gb/sec (4X NDR)``; None where there is none."""
    found = re.match(r"\d+(?:\.\d+)?", text.strip())
    return float(found.group()) if found else None


def word(text):
    """Return what the kernel writes after the number: ``LinkUp`` of ``5: LinkUp``."""
    return text.partition(":")[2].strip()


def link_name(root, path):
    """Return the last part of what a symbolic link leads to; empty where there is none."""
    place = Path(root, path)
    return place.resolve().name if place.is_symlink() else ""


def counters(root, device, port):
    """Return all counters of a port by name; those of the driver do not hide those of the standard."""
    found = {}
    for kind in ("hw_counters", "counters"):
        place = f"{_CLASS}/{device}/ports/{port}/{kind}"
        for name in listed(root, place):
            text = read(root, f"{place}/{name}")
            if text.isdigit():
                found[name] = int(text)
    return found


def gids(root, device, port):
    """Return the addresses that a port has, with type and network interface."""
    place = f"{_CLASS}/{device}/ports/{port}"
    found = []
    for index in sorted(filter(str.isdigit, listed(root, f"{place}/gids")), key=int):
        gid = read(root, f"{place}/gids/{index}")
        if gid and gid != _NO_GID and not gid.endswith(":0000:0000:0000:0000"):
            kind = read(root, f"{place}/gid_attrs/types/{index}")
            netdev = read(root, f"{place}/gid_attrs/ndevs/{index}")
            found.append({"index": int(index), "gid": gid, "type": kind, "netdev": netdev})
    return found


def port(root, device, number):
    """Return one port in ibstat's words, from the kernel itself."""
    place = f"{_CLASS}/{device}/ports/{number}"
    rate = read(root, f"{place}/rate")
    state = word(read(root, f"{place}/state"))
    width = re.search(r"\((\d+X)", rate)
    addresses = gids(root, device, number)
    return {
        "number": int(number),
        "state": {"INIT": "Initializing"}.get(state, state.capitalize()),
        "physical_state": word(read(root, f"{place}/phys_state")),
        "rate": first_number(rate),
        "width": width.group(1) if width else "",
        "link_layer": read(root, f"{place}/link_layer"),
        "lid": int(read(root, f"{place}/lid") or "0", 0),
        "sm_lid": int(read(root, f"{place}/sm_lid") or "0", 0),
        "gids": addresses,
        "netdev": next((gid["netdev"] for gid in addresses if gid["netdev"]), ""),
        "counters": counters(root, device, number),
    }


def driver(root, device):
    """Return the kernel module that makes a device, and whether it is made of software."""
    bound = link_name(root, f"{_CLASS}/{device}/device/driver")
    if bound:
        return bound, False
    # A software device has no bus device of its own. Software iWARP is of another type than soft-RoCE.
    return ("siw" if "RNIC" in read(root, f"{_CLASS}/{device}/node_type") else "rdma_rxe"), True


def devices(root):
    """Return the RDMA devices that a driver runs."""
    found = []
    for name in listed(root, _CLASS):
        place = f"{_CLASS}/{name}"
        module, software = driver(root, name)
        found.append(
            {
                "name": name,
                "driver": module,
                "software": software,
                "node_type": word(read(root, f"{place}/node_type")),
                "firmware": read(root, f"{place}/fw_ver"),
                "board": read(root, f"{place}/board_id"),
                "address": link_name(root, f"{place}/device"),
                "ports": [port(root, name, number) for number in listed(root, f"{place}/ports") if number.isdigit()],
            }
        )
    return found


def memlock(root):
    """Return the locked memory in bytes, or ``unlimited``, of slurmd, whose children are jobs, and of containers.

    Containers have what daemon.json says, else what the engine's own processes have.
    """
    found = {}
    for pid in filter(str.isdigit, listed(root, "proc")):
        comm = read(root, f"proc/{pid}/comm")
        name = {"slurmd": "slurmd", "containerd": "containers"}.get(machine_system.slurm_daemon(comm) or comm)
        limit = re.search(r"^Max locked memory\s+(\S+)", read(root, f"proc/{pid}/limits"), re.M) if name else None
        if limit and (name not in found or limit.group(1) != "unlimited"):
            found[name] = limit.group(1)
    try:
        options = json.loads(read(root, "etc/docker/daemon.json") or "{}")
        hard = options["default-ulimits"]["memlock"]["Hard"]
        found["containers"] = "unlimited" if int(hard) < 0 else str(int(hard))
    except (ValueError, LookupError, TypeError):
        pass
    return found


def unloaded(root):
    """Return the kernel modules, built in or not, that are not there yet and that users of adapters need."""
    signs = {
        "ib_umad": "sys/class/infiniband_mad",
        "ib_uverbs": "sys/class/infiniband_verbs",
        "rdma_ucm": "sys/class/misc/rdma_cm",
    }
    return [module for module, sign in signs.items() if not Path(root, sign).exists()]


def device_files(root):
    """Return the modes of the files through which programs reach adapters."""
    found = {}
    for name in listed(root, "dev/infiniband"):
        if name.startswith("uverbs") or name == "rdma_cm":
            found[f"/dev/infiniband/{name}"] = f"{Path(root, 'dev/infiniband', name).stat().st_mode & 0o777:04o}"
    return found


def foreign(root, contained):
    """Tell whether what the kernel shows is not its own: a container sees its computer's adapters and has none."""
    return contained and not listed(root, "dev/infiniband")


def port_count(root="/", contained=False):
    """Return how many ports the machine's devices have."""
    if foreign(root, contained):
        return 0
    return sum(len(listed(root, f"{_CLASS}/{name}/ports")) for name in listed(root, _CLASS))


def collect(root="/", run=None, login_user="", packages=(), contained=False):
    """Return everything above as one mapping of plain values; most of it only where there is an adapter."""
    run = run or _run
    none: dict = {"adapters": [], "gpus": [], "bridges": []}
    bus, running = (none, []) if foreign(root, contained) else (machine_pci.on_bus(root), devices(root))
    found = {
        "devices": running,
        "adapters": sorted({*bus["adapters"], *(one["address"] or one["name"] for one in running)}),
        "on_bus": bus["adapters"],
        "gpus": bus["gpus"],
        "unloaded": unloaded(root),
        "configured": machine_peer_memory.mentions(root),
        "lacking": machine_system.packages_missing(packages, run),
    }
    if not found["adapters"]:
        return found
    kernel = read(root, "proc/sys/kernel/osrelease") or platform.release()
    offered, trees = machine_peer_memory.peer_memory(root, kernel)
    symbols = [machine_peer_memory.changed(root, f"{tree}/Module.symvers") for tree in trees]
    stack = machine_peer_memory.ofed(run)
    found.update(
        kernel=kernel,
        ibstat=run(["ibstat"]),
        peer_memory=offered,
        peer_memory_trees=trees,
        peer_memory_changed=max(symbols, default=0),
        ofed=stack,
        modules=machine_peer_memory.modules(root, run, kernel),
        old_service=machine_peer_memory.old_service(root),
        packages=machine_peer_memory.installed(run),
        prebuilt=bool(re.search(r"/kernel/nvidia-", run(["modinfo", "-k", kernel, "-n", "nvidia"]) or "")),
        device_files=device_files(root),
        memlock=memlock(root),
        login=machine_system.memlock(root, True, login_user)["login"],
        acs=machine_pci.acs(root, bus),
        iommu=machine_pci.iommu(root),
        virtual=machine_pci.virtual(root),
    )
    return found


def _run(command):
    """Return what a command printed on standard output, also when it failed; None where it cannot be run."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/bin:/bin"
    return machine_commands.printed(command, seconds=30, environment={"PATH": path})
