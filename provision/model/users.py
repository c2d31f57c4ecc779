"""Users and groups of all machines, as the site declares them: ``cluster_users`` and ``cluster_groups``. Pure.

Numbers are the same on all machines because they are declared: files on shared storage and jobs go by them.
"""

from __future__ import annotations

from dataclasses import dataclass

#: How many subordinate numbers each user has: as many as an image may use, so that rootless Podman unpacks any.
SUBORDINATE = 65536


class UsersError(ValueError):
    """An entry cannot be used. ``variable``, ``number`` and ``key`` say where it stands, ``fix`` what to do."""

    def __init__(self, variable: str, number: int | None, key: str, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.variable, self.number, self.key, self.problem, self.fix = variable, number, key, problem, fix


@dataclass(frozen=True)
class Group:
    """A group of all machines. ``absent``: it is to be removed; its number is -1 where none is given."""

    name: str
    gid: int
    absent: bool = False


@dataclass(frozen=True)
class User:
    """A user of all machines, in the words of ``ansible.builtin.user``.

    ``groups`` are all that the user is in beside ``group``. ``subordinate`` is the first of the user's SUBORDINATE
    subordinate numbers, of users and of groups. ``absent``: to be removed; nothing but the name then counts.
    """

    name: str
    uid: int = -1
    group: str = ""
    groups: tuple[str, ...] = ()
    comment: str = ""
    shell: str = "/bin/bash"
    home: str = ""
    authorized_keys: tuple[str, ...] = ()
    password_lock: bool = True
    subordinate: int = 0
    absent: bool = False


@dataclass(frozen=True)
class Users:
    """All of them. ``groups`` has also each user's own group, where ``cluster_groups`` does not name it."""

    users: tuple[User, ...] = ()
    groups: tuple[Group, ...] = ()

    @property
    def present(self) -> tuple[User, ...]:
        """The users that there are to be."""
        return tuple(user for user in self.users if not user.absent)

    @property
    def gids(self) -> dict[str, int]:
        """The number of each group that there is to be."""
        return {group.name: group.gid for group in self.groups if not group.absent}
