# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""What a machine knows of users and groups. Reads only. Standard library only, Python 3.8.

Its own files are read, because they are what is managed; the name services are asked, because what they answer is what
counts, also that of the site's directory. They may hang, as a home on a network may: both have a process of their own.
"""

from __future__ import annotations

import re

from ansible.module_utils.machine_commands import run as command_run
from ansible.module_utils.machine_hardware import read

#: Seconds in which name services answer, and file systems; and names and numbers for which there is one more: a
#: directory that is asked for the first time takes some milliseconds for each.
SECONDS, KEYS = 10, 100

#: Numbers of people, as login.defs has them (UID_MIN, UID_MAX); below are the system's, which differ between machines.
PEOPLE = range(1000, 60000)


def rows(root, path, fields):
    """Return the lines of a file of the user data base that have so many fields, split."""
    split = (line.split(":") for line in read(root, path).splitlines())
    return [row for row in split if len(row) == fields and row[0][:1] not in ("", "#", "+", "-")]


def number(text):
    """Return the number that a field holds; -1 for what is none."""
    return int(text) if text.isdigit() and len(text) < 11 else -1


def answered(database, keys, patience, run):
    """Return the rows that the name services have of these names and numbers; None where they do not answer."""
    if not keys:
        return []
    seconds = (SECONDS + len(keys) // KEYS) * patience
    code, said = run(["getent", database, *keys], seconds, errors=False)
    # 2: one of them is not there.
    return [line.split(":") for line in said.splitlines()] if code in (0, 2) else None


def own_groups(root):
    """Return number and members of each group of the machine's own files."""
    found = rows(root, "etc/group", 4)
    return {name: (number(gid), [one for one in members.split(",") if one]) for name, _, gid, members in found}


def own_users(root, names):
    """Return what the machine's own files say of these users; those that they do not have are left out."""
    passwords = {row[0]: row[1] for row in rows(root, "etc/shadow", 9)}
    members: dict = {}
    for name, (_, listed) in own_groups(root).items():
        for member in listed:
            members.setdefault(member, []).append(name)
    found = {}
    for name, _, uid, gid, comment, home, shell in rows(root, "etc/passwd", 7):
        if name in names:
            found[name] = {
                "uid": number(uid),
                "gid": number(gid),
                "comment": comment,
                "home": home,
                "shell": shell,
                "groups": sorted(set(members.get(name, []))),
                # No password fits what begins so: crypt(5).
                "locked": passwords.get(name, "!")[:1] in ("!", "*"),
            }
    return found


def homes(paths, patience, run):
    """Return uid and kind of what is at each path that is there; None where a file system does not answer.

    The kind is ``closed`` where root may not look: on a server that makes root nobody, in a directory of a group's.
    """
    if not paths:
        return {}
    code, said = run(["stat", "--dereference", "--format=%u:%F:%n", *paths], SECONDS * patience)
    if code is None:
        return None
    found = {path: {"uid": -1, "kind": "closed"} for path in paths if f"'{path}': Permission denied" in said}
    for uid, kind, path in re.findall(r"(?m)^(\d+):([^:\n]+):(/.*)$", said):
        found[path] = {"uid": number(uid), "kind": kind}
    return found


def subordinate(root, kind):
    """Return owner, first number and how many of each line of ``subuid`` or ``subgid``."""
    return [
        {"owner": owner, "first": number(first), "count": number(count)}
        for owner, first, count in rows(root, f"etc/{kind}", 3)
    ]


def collect(root, ask, patience=1, run=None):
    """Return what is asked: ``users`` and ``groups`` by name, ``uids`` and ``gids`` by number, ``homes`` by path.

    ``ordinary_users`` and ``ordinary_groups`` are all people's of the machine's own files, for other machines to be
    compared with. ``known_users`` and ``known_groups`` are name, number and whether the machine's own files have it, of
    all that the name services know of those. What did not answer is None.
    """
    run = run or command_run
    found: dict = {"users": own_users(root, set(ask.get("users") or ()))}
    for database, names, numbers, fields in (("passwd", "users", "uids", 7), ("group", "groups", "gids", 4)):
        keys = [*(ask.get(names) or ()), *(str(one) for one in ask.get(numbers) or ())]
        told = answered(database, keys, patience, run)
        own = {row[0]: number(row[2]) for row in rows(root, f"etc/{database}", fields)}
        known = {(row[0], number(row[2])) for row in told or () if len(row) == fields}
        found[f"known_{names}"] = told and [
            {"name": name, "number": its, "own": name in own} for name, its in sorted(known)
        ]
        found[f"ordinary_{names}"] = {name: its for name, its in own.items() if its in PEOPLE}
    found["homes"] = homes(ask.get("homes") or (), patience, run)
    found.update({kind: subordinate(root, kind) for kind in ("subuid", "subgid")})
    return found
