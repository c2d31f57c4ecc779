# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""The text of a hosts file with our block in it. Standard library only, Python 3.8."""

from __future__ import annotations

import ipaddress
from pathlib import Path

BEGIN = "# BEGIN hosts of the cluster, written by clusterctl"
END = "# END hosts of the cluster"


def is_loopback(address):
    """Return whether an address leads back to the machine itself."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def without_own_names(line, own):
    """Return a line without the machine's names if its address is a loopback one; None when no name is left.

    ``own`` holds first labels: a name belongs to the machine in whatever domain it is written.
    """
    words = line.split("#", 1)[0].split()
    left = [word for word in words[1:] if word.split(".", 1)[0] not in own]
    if len(words) < 2 or not is_loopback(words[0]) or left == words[1:]:
        return line
    return f"{words[0]}\t{' '.join(left)}" if left else None


def planned(before, entries, own_names):
    """Return the text of the file as it should be.

    Raises:
        ValueError: the block begins and does not end, so that nobody can say which lines are ours.
    """
    lines = before.splitlines()
    at = len(lines)
    if BEGIN in lines:
        at = lines.index(BEGIN)
        if END not in lines[at:]:
            raise ValueError(f"line {at + 1} begins our block, and no line ends it")
        del lines[at : lines.index(END, at) + 1]
    block = [f"{entry['address']}\t{' '.join(entry['names'])}" for entry in entries]
    named = {name.split(".", 1)[0] for entry in entries for name in entry["names"]}
    own = {name.split(".", 1)[0] for name in own_names} - {"localhost"}
    # A machine that the block does not name keeps its line: a loopback address is better than none.
    own &= named
    head = [line for line in (without_own_names(line, own) for line in lines[:at]) if line is not None]
    tail = [line for line in (without_own_names(line, own) for line in lines[at:]) if line is not None]
    return "\n".join([*head, BEGIN, *block, END, *tail]) + "\n"


def copied(root, path, entries):
    """Return whether a container's hosts file, which the engine copied when it was started, holds ``entries``.

    None where that is nobody's question: the machine's own file has no block of ours, or there is no copy.
    """
    try:
        own, copy = (
            Path(root, place.lstrip("/")).read_text(encoding="utf-8", errors="surrogateescape")
            for place in ("/etc/hosts", str(path or ""))
        )
        return planned(copy, entries, []) == copy if BEGIN in own.splitlines() else None
    except (OSError, ValueError):
        return None


def collect(root, ask):
    """Return whether the file at ``path`` is as ``entries`` and ``own_names`` want it, or why that is not known."""
    path = Path(root, str(ask["path"]).lstrip("/"))
    try:
        before = path.read_text(encoding="utf-8", errors="surrogateescape") if path.exists() else ""
        return {"current": planned(before, ask["entries"], ask["own_names"]) == before}
    except (OSError, ValueError) as error:
        return {"error": str(error)}
