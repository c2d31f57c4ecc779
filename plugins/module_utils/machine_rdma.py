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
import struct
from pathlib import Path

from ansible.module_utils import machine_system
from ansible.module_utils.machine_hardware import listed, read

_CLASS = "sys/class/infiniband"
_BUS = "sys/bus/pci/devices"

#: A network controller of Mellanox, or an InfiniBand or fabric controller of anybody: an RDMA adapter without a driver.
_MELLANOX = "0x15b3"
_NETWORK = "0x02"
_FABRICS = ("0x0207", "0x0208")
_GPU = ("0x10de", ("0x0300", "0x0302"))
_BRIDGE = "0x0604"

#: What the kernel writes in ``gids/`` where there is nothing.
_NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"

_PEER_SYMBOL = "ib_register_peer_memory_client"
#: Packages and the service of the forerunner of nvidia-peermem.
_OLD_PACKAGES = ("nvidia-peer-memory", "nvidia-peer-memory-dkms", "nvidia_peer_memory", "nv_peer_mem")
_OFED_PACKAGES = ("mlnx-ofed-kernel-dkms", "mlnx-ofed-kernel", "doca-ofed", "mlnx-ofa_kernel")

#: PCI Express: extended capabilities begin here, and this one is Access Control Services.
_EXTENDED = 0x100
_ACS = 0x000D
#: Bits of its control register, by lspci's names, in their order.
_ACS_BITS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")


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


def on_bus(root):
    """Return the PCI addresses of RDMA adapters, GPUs and bridges, whether or not a driver runs them."""
    found = {"adapters": [], "gpus": [], "bridges": []}
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
    above = set()
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


def has_symbol(path):
    """Tell whether a kernel's list of symbols names the peer memory interface; None where there is no list."""
    try:
        with Path(path).open(encoding="ascii", errors="replace") as lines:
            wanted = re.compile(rf"(^|\s){_PEER_SYMBOL}(\s|$)")
            empty = True
            for line in lines:
                empty = False
                if _PEER_SYMBOL in line and wanted.search(line):
                    return True
    except OSError:
        return None
    return None if empty else False


def peer_memory(root, kernel):
    """Return whether the running kernel offers peer memory (None: not known), and the OFED trees that say so.

    The kernel's own list tells only while ib_core is loaded. What the driver's modules are built against is OFED's list
    of symbols, where there is one, whatever runs.
    """
    trees = [
        f"usr/src/ofa_kernel/{platform.machine()}/{kernel}",
        f"usr/src/ofa_kernel/{kernel}",
        "usr/src/ofa_kernel/default",
        *sorted(f"var/lib/dkms/mlnx-ofed-kernel/{one}/build" for one in listed(root, "var/lib/dkms/mlnx-ofed-kernel")),
    ]
    built = [tree for tree in trees if has_symbol(Path(root, tree, "Module.symvers"))]
    running = None
    if Path(root, "sys/module/ib_core").is_dir() or listed(root, _CLASS):
        running = has_symbol(Path(root, "proc/kallsyms"))
    if running is None and has_symbol(Path(root, f"lib/modules/{kernel}/build/Module.symvers")):
        running = True
    return running, [f"/{tree}" for tree in built]


def ofed(run):
    """Return kind and version of an OFED; both empty for the distribution's own drivers."""
    told = (run(["ofed_info", "-s"]) or "").strip().rstrip(":")
    found = re.match(r"(MLNX_OFED_LINUX|OFED-internal|MLNX_EN)-?(\S*)$", told)
    if not found:
        return {"kind": "", "version": ""}
    # DOCA-OFED calls itself so since it replaced MLNX_OFED.
    return {"kind": "DOCA-OFED" if found.group(1) == "OFED-internal" else "MLNX_OFED", "version": found.group(2)}


def installed(run, names):
    """Return the versions of those packages that are installed."""
    answer = run(["dpkg-query", "-W", "-f=${Package} ${Version} ${db:Status-Status}\n", *names])
    if answer is not None:
        lines = (line.split() for line in answer.splitlines())
        return {words[0]: words[1] for words in lines if words[2:] == ["installed"]}
    lines = (
        line.split()
        for line in (run(["rpm", "-q", "--qf", "%{NAME} %{VERSION}-%{RELEASE}\n", *names]) or "").splitlines()
    )
    return {words[0]: words[1] for words in lines if len(words) == 2}


def modules(root, run, kernel):
    """Return both modules that register GPUs as peer memory: loaded version, and what lies on disk for this kernel."""
    found = {}
    for name in ("nvidia_peermem", "nv_peer_mem"):
        loaded = Path(root, "sys/module", name).is_dir()
        file = (run(["modinfo", "-k", kernel, "-n", name]) or "").strip()
        found[name] = {
            "loaded": loaded,
            "version": read(root, f"sys/module/{name}/version") if loaded else "",
            "file": file if file.startswith("/") else "",
            "built": changed(root, file) if file.startswith("/") else 0,
        }
    return found


def changed(root, path):
    """Return when a file was last changed, in whole seconds; 0 where there is none."""
    try:
        return int(Path(root, path.lstrip("/")).stat().st_mtime)
    except OSError:
        return 0


def mentions(root):
    """Return the files that load a module at boot or give it options, by module."""
    found = {}
    for directory in ("etc/modules-load.d", "etc/modprobe.d", "usr/lib/modules-load.d", "lib/modules-load.d"):
        for name in listed(root, directory):
            for line in read(root, f"{directory}/{name}").splitlines():
                words = line.split("#")[0].split()
                for module in ("nvidia_peermem", "nv_peer_mem", "ib_umad"):
                    if module in (one.replace("-", "_") for one in words) and name.endswith(".conf"):
                        found.setdefault(module, {})[f"/{directory}/{name}"] = " ".join(words)
    return found


def old_service(root):
    """Return the links that start the forerunner's service at boot: systemd's, and those of its old script.

    Names are compared, because the links of a package that was removed lead nowhere.
    """
    units = "etc/systemd/system"
    places = [f"{units}/{name}" for name in listed(root, units) if name.endswith(".wants")]
    places += [f"etc/rc{level}.d" for level in "2345"]
    wanted = re.compile(r"nv_peer_mem\.service|S\d+nv_peer_mem")
    return [f"/{place}/{name}" for place in places for name in listed(root, place) if wanted.fullmatch(name)]


def memlock(root):
    """Return the locked memory in bytes, or ``unlimited``, of slurmd, whose children are jobs, and of containers.

    Containers have what daemon.json says, else what the engine's own processes have.
    """
    found = {}
    for pid in filter(str.isdigit, listed(root, "proc")):
        name = {"slurmd": "slurmd", "containerd": "containers"}.get(read(root, f"proc/{pid}/comm"))
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
    none = {"adapters": [], "gpus": [], "bridges": []}
    bus, running = (none, []) if foreign(root, contained) else (on_bus(root), devices(root))
    found = {
        "devices": running,
        "adapters": sorted({*bus["adapters"], *(one["address"] or one["name"] for one in running)}),
        "on_bus": bus["adapters"],
        "gpus": bus["gpus"],
        "unloaded": unloaded(root),
        "configured": mentions(root),
        "lacking": machine_system.packages_missing(packages, run),
    }
    if not found["adapters"]:
        return found
    kernel = read(root, "proc/sys/kernel/osrelease") or platform.release()
    offered, trees = peer_memory(root, kernel)
    symbols = [changed(root, f"{tree}/Module.symvers") for tree in trees]
    stack = ofed(run)
    found.update(
        kernel=kernel,
        ibstat=run(["ibstat"]),
        peer_memory=offered,
        peer_memory_trees=trees,
        peer_memory_changed=max(symbols, default=0),
        ofed=stack,
        modules=modules(root, run, kernel),
        old_service=old_service(root),
        packages=installed(run, [*_OLD_PACKAGES, *_OFED_PACKAGES]),
        prebuilt=bool(re.search(r"/kernel/nvidia-", run(["modinfo", "-k", kernel, "-n", "nvidia"]) or "")),
        device_files=device_files(root),
        memlock=memlock(root),
        login=machine_system.memlock(root, True, login_user)["login"],
        acs=acs(root, bus),
        iommu=iommu(root),
        virtual=virtual(root),
    )
    return found


def _run(command):
    """Return what a command printed on standard output, also when it failed; None where it cannot be run."""
    environment = {**os.environ, "LC_ALL": "C", "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/bin:/bin"}
    return machine_system.output(command, seconds=30, env=environment)
