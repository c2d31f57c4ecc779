# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who holds a machine's GPUs open, and which of these processes Slurm knows. Reads only. Python 3.8.

A process can call itself anything. Whether it is Slurm's is told by its control group and by its ancestors, which it
cannot choose; what it says of itself (its name, its environment) does not count.
"""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path

from ansible.module_utils.machine_hardware import listed, read

#: Of the services that a driver brings, processes and units, and of the one that asks it for monitoring. Who changes
#: the driver stops and starts them.
SERVICE_PROCESSES = ("nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "dcgm-exporter", "nvidia-imex")
#: Root's questions, of a monitor for example; they have ended before anything is changed.
_QUESTIONS = ("nvidia-smi", "nvidia-ctk")
_SERVICE_UNIT = re.compile(
    r"^/system\.slice/(nvidia-persistenced|nvidia-fabricmanager|nvidia-dcgm|dcgm|dcgm-exporter|nvidia-imex"
    r"|clusterctl-node-metrics)\.service$"
)
_SLURM_DAEMONS = ("slurmd", "slurmstepd")
_JOB = re.compile(r"/([^/]*slurmstepd\.scope|slurm[^/]*)(/[^/]+)*/job_[0-9]+(/|$)")
_CONTAINER = re.compile(r"[/-]([0-9a-f]{64})(\.scope)?(/|$)")

#: Characters of a command that are reported, and processes.
MAX_COMMAND, MAX_PROCESSES = 200, 200


def holders(root):
    """Return the processes that hold a GPU's device file open, the driver's own services left out.

    Each has ``pid``, ``name``, ``user``, ``command``, ``container`` (the beginning of its id, empty for none), and
    ``slurm``: whether it is slurmd's or a job's.
    """
    found = []
    for pid in sorted(filter(str.isdigit, listed(root, "proc")), key=int):
        if not _holds(root, pid):
            continue
        groups = [line.rsplit(":", 1)[-1] for line in read(root, "proc/" + pid + "/cgroup").splitlines()]
        name, owner = _name(root, pid), _owner(root, pid)
        if (owner == 0 and name in (*SERVICE_PROCESSES, *_QUESTIONS)) or any(
            _SERVICE_UNIT.search(group) for group in groups
        ):
            continue
        inside = [match.group(1)[:12] for match in map(_CONTAINER.search, groups) if match]
        found.append(
            {
                "pid": int(pid),
                "name": name,
                "user": _user(owner),
                "command": _command(root, pid) or name,
                "container": inside[0] if inside else "",
                "slurm": any(_JOB.search(group) for group in groups) or _below_slurm(root, pid),
            }
        )
        if len(found) == MAX_PROCESSES:
            break
    return found


def _holds(root, pid):
    for handle in listed(root, "proc/" + pid + "/fd"):
        try:
            target = os.readlink(Path(root, "proc", pid, "fd", handle))  # noqa: PTH115 - Python 3.8
        except OSError:
            continue
        if target.startswith("/dev/nvidia"):
            return True
    return False


def _below_slurm(root, pid):
    """Tell whether the process is one of Slurm's daemons, run by root, or descends from one."""
    for _ in range(64):
        if _name(root, pid) in _SLURM_DAEMONS and _owner(root, pid) == 0:
            return True
        parent = re.search(r"^PPid:\s*([0-9]+)$", read(root, "proc/" + pid + "/status"), re.M)
        if not parent or parent.group(1) in ("0", "1"):
            return False
        pid = parent.group(1)
    return False


def _owner(root, pid):
    """Return the number of a process's real user; None where the process is gone."""
    found = re.search(r"^Uid:\s*([0-9]+)", read(root, "proc/" + pid + "/status"), re.M)
    return int(found.group(1)) if found else None


def _user(number):
    if number is None:
        return "unknown"
    try:
        return pwd.getpwuid(number).pw_name
    except (KeyError, OverflowError):
        return str(number)


def _name(root, pid):
    return _printable(read(root, "proc/" + pid + "/comm"))[:20]


def _command(root, pid):
    """Return a command's words, as its process shows them: anything, so that nothing but printable text is left."""
    try:
        with Path(root, "proc", pid, "cmdline").open("rb") as stream:
            words = stream.read(4 * MAX_COMMAND)
    except OSError:
        return ""
    return _printable(words.replace(b"\0", b" ").decode("utf-8", "replace")).strip()[:MAX_COMMAND]


def _printable(text):
    return "".join(letter if letter.isprintable() else "?" for letter in text)
