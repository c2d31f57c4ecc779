# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""What is mounted on a machine, and whether it answers. Reads only. Standard library only, Python 3.8.

The kernel's own list never waits for a server. Whether a server answers is asked by a program of its own, which is left
behind where the kernel holds it.
"""

from __future__ import annotations

import re
from pathlib import Path

from ansible.module_utils.machine_commands import run as command_run
from ansible.module_utils.machine_hardware import read

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
