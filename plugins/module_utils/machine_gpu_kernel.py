# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernels of a machine, NVIDIA's modules for them, nouveau, and Secure Boot. Reads only. Python 3.8."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ansible.module_utils.machine_hardware import listed, read

_SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

#: Where a release of the kernel keeps modules that are not its own. Ubuntu's signed ones are in kernel/nvidia-*.
_MODULE_PLACES = ("updates", "extra", "kernel/drivers/video", "kernel/drivers/char")


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
    found: dict = {}
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


def nouveau(root, seen, releases):
    """Return whether nouveau is loaded, which GPUs it holds, and whether it is kept from loading.

    ``loads_early`` are the kernels whose initial file system was made before the file was written that keeps it away: a
    copy of that file is in there, and counts at the first moment of a boot.
    """
    blacklists = []
    for directory in ("etc/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d", "run/modprobe.d"):
        for name in listed(root, directory):
            lines = read(root, directory + "/" + name).splitlines() if name.endswith(".conf") else []
            if any(line.split() == ["blacklist", "nouveau"] for line in lines):
                blacklists.append(Path(root, directory, name))
    written = max((modified(path) for path in blacklists), default=0)
    return {
        "loaded": Path(root, "sys/module/nouveau").is_dir(),
        "bound": [gpu["address"] for gpu in seen if gpu["driver"] == "nouveau"],
        "blacklisted": bool(blacklists),
        "loads_early": [release for release in releases if 0 < modified(_initial(root, release)) < written],
    }


def modified(path):
    """Return when a file was written, in seconds since 1970; 0 where there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0


def _initial(root, release):
    """Return a kernel's initial file system, by the name that initramfs-tools gives it."""
    return Path(root, "boot/initrd.img-" + release)


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
