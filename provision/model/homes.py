"""On which machine a user's home is made: once, where its file system is. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from provision.model.mounts import LOCAL, innermost
from provision.model.users import Users


def homes_on(people: Users, mounts: Iterable[Mapping[str, Any]], machine: str, controller: str) -> tuple[str, ...]:
    """Return the names of the users whose homes are made on a machine.

    A home that is not shared is made on each. One on a directory that a machine of the cluster exports is made there:
    root is nobody on a client of NFS. One on a file system that the site brings is made on the controller. ``mounts``
    are as :meth:`provision.model.mounts.Mount.as_dict` gives them.
    """
    shared = list(mounts)
    return tuple(user.name for user in people.present if _maker(user.home, shared, machine, controller) == machine)


def _maker(home: str, mounts: list[Mapping[str, Any]], machine: str, controller: str) -> str:
    mount = innermost(mounts, home)
    if mount is None or mount["fstype"] == LOCAL:
        return machine
    if mount["served_by"] or controller in mount["hosts"]:
        return str(mount["served_by"] or controller)
    return str(mount["hosts"][0]) if mount["hosts"] else ""
