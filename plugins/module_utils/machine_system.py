# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What state a machine is in, as far as provisioning cares. Reads only. Standard library only, Python 3.8."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import resource
import socket
import struct
import time
from pathlib import Path

from ansible.module_utils.machine_commands import printed
from ansible.module_utils.machine_hardware import listed, read

#: Bits of CapEff in /proc/<pid>/status, from capability.h.
_SYS_RESOURCE = 24
_SYS_TIME = 25

_SLURM_DAEMONS = ("slurmctld", "slurmd", "slurmdbd", "slurmrestd")

#: What a daemon of Slurm's that was started by systemd adds to its name when it reconfigures itself by a new process.
_RECONFIGURED = "-wlm"

#: As /proc/<pid>/comm shows them, cut to 15 characters.
_TIME_DAEMONS = ("chronyd", "ntpd", "systemd-timesyn", "openntpd")

_PACKAGE_LOCKS = ("var/lib/dpkg/lock-frontend", "var/lib/dpkg/lock")

#: Whether users may make namespaces of their own; Debian's kernels have the second, Ubuntu's the third.
_USER_NAMESPACES = (
    "user.max_user_namespaces",
    "kernel.unprivileged_userns_clone",
    "kernel.apparmor_restrict_unprivileged_userns",
)

#: What adjtimex(2) returns while the clock is not synchronised.
_TIME_ERROR = 5


def os_release(root):
    """Return ``id``, ``version`` and ``name`` of the operating system, and whether it is a DGX OS."""
    lines = read(root, "etc/os-release").splitlines()
    fields = {key: value.strip("\"'") for key, _, value in (line.partition("=") for line in lines)}
    return {
        "id": fields.get("ID", ""),
        "version": fields.get("VERSION_ID", ""),
        "name": fields.get("PRETTY_NAME", ""),
        "dgx": Path(root, "etc/dgx-release").exists(),
    }


def container(root):
    """Return what kind of container the machine is (``docker``, ``lxc``, ``podman``, ...); empty for none."""
    kind = read(root, "run/systemd/container")
    if not kind:
        environment = read(root, "proc/1/environ").split("\0")
        kind = next((word[10:] for word in environment if word.startswith("container=")), "")
    if not kind and Path(root, ".dockerenv").exists():
        kind = "docker"
    return kind


def capabilities(root):
    """Return whether this process may raise resource limits and set the clock."""
    match = re.search(r"^CapEff:\s*([0-9a-f]+)", read(root, "proc/self/status"), re.M)
    mask = int(match.group(1), 16) if match else 0
    return {"sys_resource": bool(mask >> _SYS_RESOURCE & 1), "sys_time": bool(mask >> _SYS_TIME & 1)}


def slurm_daemon(name):
    """Return which of Slurm's daemons a process of this name is; empty where it is none."""
    name = name.removesuffix(_RECONFIGURED)
    return name if name in _SLURM_DAEMONS else ""


def processes(root):
    """Yield pid, name and whether the process has the machine's own root directory, for every process."""
    own = Path("/").stat()
    for pid in filter(str.isdigit, listed(root, "proc")):
        name = read(root, f"proc/{pid}/comm")
        try:
            seen = Path(root, f"proc/{pid}/root").stat()
            native = (seen.st_dev, seen.st_ino) == (own.st_dev, own.st_ino)
        except OSError:
            continue
        yield int(pid), name, native


def daemons(root):
    """Return Slurm's daemons that run outside of any container or are set to start at boot, and time daemons."""
    slurm, clock = [], []
    for pid, name, native in processes(root):
        if native and slurm_daemon(name):
            slurm.append(f"{slurm_daemon(name)} (pid {pid})")
        if native and name in _TIME_DAEMONS:
            clock.append(name)
    for name in _SLURM_DAEMONS:
        if any(Path(root, "etc/systemd/system").glob(f"*.wants/{name}.service")):
            slurm.append(f"{name}.service (enabled)")
    return {"slurm_daemons": slurm, "time_daemons": sorted(set(clock))}


def clock_synchronised():
    """Return whether the kernel holds the clock for synchronised; None where it cannot be asked."""
    try:
        # Modes 0: only asks. The structure is 208 bytes on 64-bit machines; nothing of it is read.
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _TIME_ERROR


def kernel_settings(root):
    """Return those of the kernel's settings above that it has, as sysctl(8) prints them."""
    found = {name: read(root, f"proc/sys/{name.replace('.', '/')}").strip() for name in _USER_NAMESPACES}
    return {name: value for name, value in found.items() if value}


def disks(root, paths):
    """Return for each path the free MiB, its file system, and whether the path holds something.

    A path that does not exist yet is measured where it will be made: at its nearest existing parent.
    """
    found = {}
    for path in paths:
        place = Path(root, path.lstrip("/"))
        used = bool(listed(place, ""))
        while not place.exists():
            place = place.parent
        state = os.statvfs(place)
        found[path] = {
            "free": state.f_bavail * state.f_frsize // 2**20,
            "device": place.stat().st_dev,
            "used": used,
        }
    return found


def package_lock(root):
    """Return who holds dpkg's locks as ``{"pid", "command"}``, or None. Asks without taking them.

    dpkg and apt use fcntl locks; a lock's file is always there, so its existence says nothing.
    """
    for name in _PACKAGE_LOCKS:
        try:
            with Path(root, name).open("rb") as file:
                wanted = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
                kind, _, _, _, pid = struct.unpack("hhqqi", fcntl.fcntl(file, fcntl.F_GETLK, wanted))
        except OSError:
            continue
        if kind != fcntl.F_UNLCK:
            command = read(root, f"proc/{pid}/cmdline").replace("\0", " ").strip()
            return {"pid": pid, "command": command or read(root, f"proc/{pid}/comm") or "unknown"}
    return None


def wait_for_package_lock(root, seconds):
    """Wait up to ``seconds`` for dpkg's locks; return the last holder (or None) and the seconds spent."""
    begun = time.monotonic()
    holder = package_lock(root)
    while holder and time.monotonic() - begun < seconds:
        time.sleep(1)
        holder = package_lock(root)
    return holder, int(time.monotonic() - begun)


def packages_interrupted(root):
    """Return the packages that dpkg was stopped in the middle of; ``dpkg`` itself where its journal is unfinished."""
    stanzas = read(root, "var/lib/dpkg/status").split("\n\n")
    broken = []
    for stanza in stanzas:
        match = re.search(r"^Status: \S+ \S+ (half-\w+|unpacked|triggers-\w+)$", stanza, re.M)
        if match:
            broken.append(stanza.split("\n", 1)[0].partition(": ")[2])
    if any(name.isdigit() for name in listed(root, "var/lib/dpkg/updates")):
        broken.append("dpkg")
    return broken


def packages_missing(names, run=None):
    """Return those of ``names`` that are not installed, asked of dpkg."""
    run = run or printed
    if not names:
        return []
    answer = run(["dpkg-query", "-W", "-f=${Package} ${db:Status-Status}\n", *names]) or ""
    there = {line.split()[0] for line in answer.splitlines() if line.endswith(" installed")}
    return [name for name in names if name not in there]


def resolved(names):
    """Return the addresses that each name has on this machine, without duplicates, in the resolver's order."""
    found = {}
    for name in names:
        try:
            entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            entries = []
        found[name] = list(dict.fromkeys(entry[4][0] for entry in entries))
    return found


def memlock(root, can_raise, user=""):
    """Return memlock limits in KiB or as ``unlimited``: the highest possible ones, and what ``user`` gets at login.

    Without the capability to raise limits, a login ends where the daemon does that lets it in, and a service where
    process 1 does. A higher value in limits.conf would not be ignored there: it would refuse the login.
    """
    own = str(resource.getrlimit(resource.RLIMIT_MEMLOCK)[1])
    first = _hard_memlock(root, 1) or own
    told = printed(["su", "-s", "/bin/sh", user, "-c", "ulimit -l"]) if user else None
    return {
        "login_highest": "unlimited" if can_raise else _kib(max(_above(root, os.getpid()) or [own], key=_size)),
        "service_highest": "unlimited" if can_raise else _kib(first),
        "login": told.strip() if told else "",
    }


def _above(root, pid):
    """Return the hard limits of the processes that this one comes from, up to a daemon of process 1.

    Not this one's own alone: what limits.conf says now has lowered it, and would never be found to be too low.
    """
    found = []
    while pid > 1 and (limit := _hard_memlock(root, pid)):
        found.append(limit)
        parent = re.search(r"^PPid:\s*(\d+)", read(root, f"proc/{pid}/status"), re.M)
        pid = int(parent.group(1)) if parent else 0
    return found


def _hard_memlock(root, pid):
    match = re.search(r"^Max locked memory\s+\S+\s+(\S+)", read(root, f"proc/{pid}/limits"), re.M)
    return match.group(1) if match else ""


def _size(limit):
    return int(limit) if limit.isdigit() else float("inf")


def _kib(limit):
    return str(int(limit) // 1024) if limit.isdigit() else "unlimited"


def identity(root):
    """Return what a decision about packages needs to know; ``collect`` reports far more."""
    return {
        "os": os_release(root),
        "architecture": os.uname().machine,
        "container": container(root),
        "lock": {"holder": package_lock(root), "waited": 0},
        "packages_interrupted": packages_interrupted(root),
    }


def collect(root="/", names=(), disk_paths=(), lock_timeout=0, login_user=""):
    """Return everything above as one mapping of plain values."""
    holder, waited = wait_for_package_lock(root, lock_timeout)
    found = {
        "os": os_release(root),
        "kernel": os.uname().release,
        "systemd": Path(root, "run/systemd/system").is_dir(),
        "container": container(root),
        "uid": os.geteuid(),
        "hostname": socket.gethostname(),
        "addresses": resolved([socket.gethostname(), *names]),
        "capabilities": capabilities(root),
        "clock_synchronised": clock_synchronised(),
        "kernel_settings": kernel_settings(root),
        "disks": disks(root, disk_paths),
        "lock": {"holder": holder, "waited": waited},
        "packages_interrupted": packages_interrupted(root),
    }
    found.update(daemons(root))
    found["memlock"] = memlock(root, found["capabilities"]["sys_resource"], login_user)
    return found
