# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""What is mounted on a machine, and whether it answers. Reads only. Standard library only, Python 3.8.

The kernel's own list never waits for a server. Whether a server answers is asked by a program of its own, which is left
behind where the kernel holds it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from ansible.module_utils.machine_commands import run as command_run
from ansible.module_utils.machine_hardware import read

#: How a unit begins that the role shared_storage has written: its template mount.j2.
HEADER = "# From cluster_mounts of the inventory."
#: Seconds in which a file system says how large it is.
SECONDS = 5


def _plain(word):
    """Return a word of mountinfo as it was: the kernel writes blanks as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), word)


def mounted(text):
    """Return source, fstype and options of what is on top at each mount point, from /proc/self/mountinfo: proc(5)."""
    found = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if len(left) < 6 or len(right) < 2:
            continue
        options = left[5].split(",") + (right[2].split(",") if len(right) > 2 else [])
        found[_plain(left[4])] = {
            "source": _plain(right[1]),
            "fstype": right[0],
            "options": sorted({_plain(one) for one in options if one}),
        }
    return found


def hidden(root, paths, limit=20):
    """Return what is in each of the directories at which nothing is mounted: a mount would hide it."""
    there = mounted(read(root, "proc/self/mountinfo")) if paths else {}
    found = {}
    for path in paths:
        # Whatever is above it may be a server's that is away.
        if path in there or any(path.startswith(one + "/") for one in paths):
            continue
        try:
            found[path] = sorted(entry.name for entry in Path(root, path.lstrip("/")).iterdir())[:limit]
        except OSError:
            continue
    return found


def own(root, gone=()):
    """Return the mounts for which the role shared_storage has left a unit: ``path``, ``unit``, whether ``mounted``.

    ``users`` are some of the processes that use it, of those paths that are to be ``gone``. No file system is asked.
    """
    there = mounted(read(root, "proc/self/mountinfo"))
    found = []
    for file in sorted(Path(root, "etc/systemd/system").glob("*.mount")):
        text = read(root, f"etc/systemd/system/{file.name}")
        where = re.search(r"(?m)^Where=(/.*)$", text)
        if text.startswith(HEADER) and where:
            path = where.group(1)
            using = users(root, path) if path in gone and path in there else []
            found.append({"path": path, "unit": file.name, "mounted": path in there, "users": using})
    return found


def users(root, path, limit=5):
    """Return the first processes that are at a path, or have something of it open or mapped; jobs see it there, too."""
    found: list = []
    for process in sorted(Path(root, "proc").glob("[0-9]*"), key=lambda one: int(one.name)):
        if len(found) >= limit:
            break
        try:
            links = [*(process / name for name in ("cwd", "root", "exe")), *(process / "fd").iterdir()]
            # Path.readlink needs Python 3.9.
            using = any(_below(os.readlink(link), path) for link in links if link.is_symlink())  # noqa: PTH115
            if using or any(_below(line.partition("/")[2], path[1:]) for line in _lines(process / "maps")):
                name = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
                found.append(f"{name} of uid {process.stat().st_uid} (process {process.name})")
        except OSError:
            continue  # it has ended meanwhile
    return found


def _lines(file):
    with file.open(encoding="utf-8", errors="replace") as stream:
        return list(stream)


def _below(name, path):
    return name.strip() == path or name.startswith(path + "/")


def collect(root, paths, patience=1, run=None):
    """Return of each path what is mounted there, nothing for a path where nothing is.

    ``problem`` says why a file system does not answer, empty where it does; ``late``: it did not in time.
    """
    if not paths:
        return {}
    there = mounted(read(root, "proc/self/mountinfo"))
    found = {}
    for path in paths:
        if path in there:
            code, said = (run or command_run)(["stat", "--file-system", "--format=%T", path], SECONDS * patience)
            problem = "" if code == 0 else said.strip()[-300:] or "stat cannot be run"
            found[path] = {**there[path], "problem": problem, "late": code is None}
    return found
