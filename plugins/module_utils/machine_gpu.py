# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's hardware and driver as a machine's files and package database show them. Reads only. Python 3.8.

Nothing here judges. What cannot be told is None or an empty text, never a guess: ``product`` of an id that the table
does not know, ``secure_boot`` where the firmware's variables are not mounted, a module that modinfo does not describe.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from ansible.module_utils import machine_gpu_ids as ids
from ansible.module_utils.machine_hardware import gres, listed, read

_NVIDIA, _MELLANOX = "10de", "15b3"
#: Classes, by their first two bytes: VGA and 3D controllers are GPUs, other bridges are NVSwitches.
_GPU_CLASSES, _BRIDGE_CLASS, _NETWORK_CLASSES = ("0300", "0302"), "0680", ("0200", "0207")

_SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

#: Packages of a driver. GPUs in containers and developers' tools carry NVIDIA's name too and are none.
_DRIVER_PACKAGE = re.compile(
    r"(lib)?nvidia-|libnvidia|cuda-drivers|libcuda1$|libnvcuvid1$|libnvoptix1$|kmod-nvidia|firmware-nvidia"
    r"|linux-(modules|objects|signatures)-nvidia|xserver-xorg-video-nvidia|glx-alternative-nvidia|libnvsdm|libxnvctrl|dnf-plugin-nvidia"
)
_OTHER_PACKAGE = re.compile(r"(lib)?nvidia-(container|ctk|docker|cuda-toolkit|nsight|vaapi|texture|profiler|visual)")
_PATTERNS = ("*nvidia*", "cuda-drivers*", "libcuda1", "libnvcuvid1", "libnvsdm*", "libxnvctrl*")

#: Where a release of the kernel keeps modules that are not its own. Ubuntu's signed ones are in kernel/nvidia-*.
_MODULE_PLACES = ("updates", "extra", "weak-updates", "kernel/drivers/video", "kernel/drivers/char")

_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib")

#: They hold the GPU open, and whoever changes the driver stops and starts them.
SERVICES = ("nvidia-persistenced", "nvidia-fabricmanager", "nvidia-dcgm", "dcgm-exporter")
_SERVICE_PROCESSES = ("nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "dcgm-exporter")


def _run(command):
    """Return exit code and output of a command; a code of None where it could not be run at all."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None, ""
    return done.returncode, done.stdout.decode("utf-8", "replace")


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
    """Return the GPUs among ``devices``; product and architecture are empty where the id is not known."""
    result = []
    for device in found:
        if device["vendor"] == _NVIDIA and device["class"] in _GPU_CLASSES:
            product, architecture = ids.GPUS.get(device["device"], ("", ""))
            product = ids.BOARDS.get((device["device"], device["board"]), product)
            grace = device["device"] in ids.GRACE
            result.append({**_brief(device), "product": product, "architecture": architecture, "grace": grace})
    return result


def bus(root, contained=False):
    """Return what hardware records of GPUs need: their ids and products, and Slurm's Gres if every product is known.

    A GPU that was given to a virtual machine is on the bus, and is none of this machine's. A container (``contained``)
    sees the bus of the computer that it runs on, and none of it is its own.
    """
    seen = [] if contained else [gpu for gpu in gpus(devices(root)) if gpu["driver"] != "vfio-pci"]
    products = [gpu["product"] for gpu in seen]
    return {
        "gpus_on_bus": len(seen),
        "bus_gpus": [{key: gpu[key] for key in ("address", "id", "product")} for gpu in seen],
        "bus_gres": gres(products) if products and all(products) else "",
    }


def nvswitches(root, found):
    """Return the NVSwitches on the bus, and the bridges that stand for those of Blackwell boards."""
    switches = [_brief(device) for device in found if device["vendor"] == _NVIDIA and device["class"] == _BRIDGE_CLASS]
    if any(device["vendor"] == _NVIDIA and device["device"] in ids.HIDDEN_NVSWITCH for device in found):
        for device in found:
            # Read for these boards alone: some adapters take long to answer.
            if device["vendor"] == _MELLANOX and b"SW_MNG" in _bytes(root, device["address"]):
                switches.append(_brief(device))
    return switches


def adapters(found):
    """Return Mellanox's network adapters; product is empty where the id is not known."""
    return [
        {**_brief(device), "product": ids.ADAPTERS.get(device["device"], "")}
        for device in found
        if device["vendor"] == _MELLANOX and device["class"] in _NETWORK_CLASSES
    ]


def kernels(root):
    """Return the running release, those installed with an image (oldest first), the newest, and who has headers."""
    running = read(root, "proc/sys/kernel/osrelease")
    releases = listed(root, "lib/modules")
    installed = [
        release
        for release in releases
        if Path(root, "boot/vmlinuz-" + release).exists() or Path(root, "lib/modules", release, "vmlinuz").exists()
    ]
    installed.sort(key=release_order)
    return {
        "running": running,
        "installed": installed,
        "newest": installed[-1] if installed else "",
        "headers": {release: _has_headers(root, release) for release in {*releases, running} if release},
    }


def release_order(release):
    """Return what orders kernel releases as boot loaders do: numbers by their value."""
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.findall(r"\d+|[^\d.-]+", release)]


def secure_boot(root):
    """Return whether Secure Boot is on; None where the firmware knows it and this machine cannot ask."""
    try:
        return Path(root, _SECURE_BOOT).read_bytes()[-1:] == b"\x01"
    except OSError:
        return None if Path(root, "sys/firmware/efi").is_dir() else False


def modules(root, releases, run):
    """Return for each kernel release its nvidia module: version, license, signer; None where modinfo cannot say."""
    found = {}
    for release in releases:
        name = _module_name(root, release)
        if not name:
            found[release] = {}
            continue
        code, text = run(["modinfo", "-k", release, name])
        fields = dict(re.findall(r"^(version|license|signer):\s*(.*?)\s*$", text, re.M))
        found[release] = {key: fields.get(key, "") for key in ("version", "license", "signer")} if code == 0 else None
    return found


def loaded_module(root):
    """Return the loaded module's version (empty for none), and whether it is the open one (None if not told)."""
    told = read(root, "proc/driver/nvidia/version")
    return {
        "loaded": read(root, "sys/module/nvidia/version"),
        "open": "Open Kernel Module" in told if told else None,
    }


def libraries(root):
    """Return the versions of the user-space libraries on disk, oldest first."""
    found = set()
    for place in _LIBRARIES:
        for directory in (place, place + "/nvidia/current", place + "/nvidia"):
            for name in listed(root, directory):
                match = re.match(r"libnvidia-ml\.so\.(\d{3}\.[\d.]+)$", name)
                if match:
                    found.add(match.group(1))
    return sorted(found, key=release_order)


#: "Debian NVIDIA Maintainers <pkg-nvidia-devel@lists.alioth.debian.org>" are not NVIDIA.
_OF_THE_DISTRIBUTION = re.compile(r"debian|ubuntu|canonical", re.IGNORECASE)


def packages(root, run):
    """Return the driver's packages: version without epoch, whether held, who made them, and whether complete."""
    question = r"${Package}\t${Version}\t${db:Status-Want}\t${db:Status-Status}\t${Maintainer}\n"
    code, text = run(["dpkg-query", "-W", "-f=" + question, *_PATTERNS])
    locks = []
    if code is None:
        question = r"%{NAME}\t%{VERSION}-%{RELEASE}\tinstall\tinstalled\t%{VENDOR}\n"
        code, text = run(["rpm", "-qa", "--qf", question, *_PATTERNS])
        locks = read(root, "etc/dnf/plugins/versionlock.list").splitlines()
    found = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) != 5 or fields[3] in ("not-installed", "config-files"):
            continue
        name, version, want, status, maker = fields
        if _DRIVER_PACKAGE.match(name) and not _OTHER_PACKAGE.match(name):
            found[name] = {
                "version": version.split(":", 1)[-1],
                "held": want == "hold" or any(re.match(re.escape(name) + r"-\d", line) for line in locks),
                "complete": status == "installed",
                "origin": "nvidia"
                if "nvidia" in maker.lower() and not _OF_THE_DISTRIBUTION.search(maker)
                else "distribution",
            }
    return found


def kernel_packages(run):
    """Return the metapackages that bring new kernels, and whether each is held."""
    question = r"${Package}\t${db:Status-Want}\t${db:Status-Status}\n"
    _, text = run(["dpkg-query", "-W", "-f=" + question, "linux-image-*", "linux-headers-*", "linux-generic*"])
    rows = [line.split("\t") for line in text.splitlines()]
    # A digit right after the name is a release: that package never becomes another kernel.
    return {
        row[0]: row[1] == "hold"
        for row in rows
        if len(row) == 3 and row[2] == "installed" and not re.match(r"linux-(image|headers)-(unsigned-)?\d", row[0])
    }


def apt_sources(run):
    """Return address, suite and component of every package list that apt uses."""
    shown = "$(REPO_URI)\t$(RELEASE)\t$(COMPONENT)"
    code, text = run(["apt-get", "indextargets", "--format", shown, "Created-By: Packages"])
    rows = [line.split("\t") for line in text.splitlines()] if code == 0 else []
    return [{"uri": row[0], "suite": row[1], "component": row[2]} for row in rows if len(row) == 3]


def texts(root, paths):
    """Return the content of small files of ours; None for one that is not there."""
    found = {}
    for path in paths:
        try:
            found[path] = Path(root, path.lstrip("/")).read_text(encoding="utf-8", errors="replace")
        except OSError:
            found[path] = None
    return found


def services(run):
    """Return the state of the services that a driver brings, those that systemd knows."""
    asked = [name + ".service" for name in SERVICES[:2]]
    _, text = run(["systemctl", "show", "--property=Id,LoadState,ActiveState,UnitFileState", *asked])
    found = {}
    for block in text.split("\n\n"):
        fields = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if fields.get("LoadState") == "loaded":
            found[fields["Id"].rsplit(".", 1)[0]] = {
                "active": fields.get("ActiveState") == "active",
                "enabled": fields.get("UnitFileState") == "enabled",
            }
    return found


def smi(run):
    """Return the GPUs that nvidia-smi lists, and its complaint where it does not."""
    code, text = run(["nvidia-smi", "--query-gpu=pci.bus_id,name,driver_version", "--format=csv,noheader"])
    if code is None:
        return {"gpus": [], "driver": "", "error": "there is no nvidia-smi, or it does not end"}
    found, driver = [], ""
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 3 and re.match(r"[0-9A-Fa-f]{8}:", fields[0]):
            found.append({"address": fields[0][4:].lower(), "product": fields[1]})
            driver = fields[2]
    return {"gpus": found, "driver": driver, "error": "" if code == 0 else " ".join(text.split())[:300]}


def users(root):
    """Return the processes that hold a GPU's device file open, the driver's own services left out."""
    found = []
    for pid in filter(str.isdigit, listed(root, "proc")):
        for handle in listed(root, "proc/" + pid + "/fd"):
            try:
                target = os.readlink(Path(root, "proc", pid, "fd", handle))  # noqa: PTH115 - Python 3.8
            except OSError:
                continue
            if target.startswith("/dev/nvidia"):
                name = read(root, "proc/" + pid + "/comm")
                if name not in _SERVICE_PROCESSES:
                    found.append(name + " (pid " + pid + ")")
                break
    return found


def nouveau(root, seen):
    """Return whether nouveau is loaded, which GPUs it holds, and whether it is kept from loading."""
    lines = []
    for directory in ("etc/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d", "run/modprobe.d"):
        for name in listed(root, directory):
            if name.endswith(".conf"):
                lines += read(root, directory + "/" + name).splitlines()
    return {
        "loaded": Path(root, "sys/module/nouveau").is_dir(),
        "bound": [gpu["address"] for gpu in seen if gpu["driver"] == "nouveau"],
        "blacklisted": any(line.split() == ["blacklist", "nouveau"] for line in lines),
    }


def collect(root="/", run=None, files=(), apt=False, contained=False):
    """Return everything above as one mapping of plain values."""
    run = run or _run
    on_bus = [] if contained else devices(root)
    seen = gpus(on_bus)
    kernel = kernels(root)
    installed = packages(root, run)
    module = loaded_module(root)
    concerned = bool(seen or installed or module["loaded"])
    releases = sorted(kernel["headers"], key=release_order) if concerned else []
    module["on_disk"] = modules(root, releases, run)
    there = libraries(root) if concerned else []
    known = services(run) if concerned else {}
    _, dkms = run(["dkms", "status"]) if installed else (None, "")
    manager = next((info for name, info in installed.items() if re.match(r"nvidia-fabric-?manager", name)), None)
    return {
        "gpus": seen,
        "nvswitches": nvswitches(root, on_bus),
        "rdma_adapters": adapters(on_bus),
        "kernel": kernel,
        "secure_boot": secure_boot(root),
        "nouveau": nouveau(root, seen),
        "module": module,
        "library": there[-1] if there else "",
        "libraries": there,
        "packages": installed,
        "dkms": [line.strip() for line in dkms.splitlines() if line.startswith("nvidia")],
        "runfile": Path(root, "usr/bin/nvidia-uninstall").exists(),
        "fabric_manager": {
            "version": manager["version"].rsplit("-", 1)[0] if manager else "",
            "active": known.get("nvidia-fabricmanager", {}).get("active", False),
            "enabled": known.get("nvidia-fabricmanager", {}).get("enabled", False),
        },
        "services": known,
        "smi": smi(run) if seen else {"gpus": [], "driver": "", "error": ""},
        "users": users(root) if module["loaded"] else [],
        "reboot_required": Path(root, "run/reboot-required").exists(),
        "kernel_packages": kernel_packages(run) if concerned else {},
        "apt": apt_sources(run) if apt else [],
        "files": texts(root, files),
    }


def _brief(device):
    return {key: device[key] for key in ("address", "id", "driver")}


def _bytes(root, address):
    try:
        return Path(root, "sys/bus/pci/devices", address, "vpd").read_bytes()
    except OSError:
        return b""


def _has_headers(root, release):
    build = Path(root, "lib/modules", release, "build")
    # The link is absolute, and below another root it would lead out of it.
    if build.is_symlink():
        build = Path(root, os.readlink(build).lstrip("/"))  # noqa: PTH115 - Python 3.8
    return (build / "Makefile").exists()


def _module_name(root, release):
    base = Path(root, "lib/modules", release)
    places = [base / place for place in _MODULE_PLACES]
    places += [base / "kernel" / name for name in listed(base, "kernel") if name.startswith("nvidia")]
    for place in places:
        for _, _, names in os.walk(place):
            for name in names:
                # Debian's packages call the file nvidia-current.ko, and an alias nvidia.
                match = re.match(r"(nvidia(-current(-open)?)?)\.ko(\.(xz|zst|gz))?$", name)
                if match:
                    return match.group(1)
    return ""
