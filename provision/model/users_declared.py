"""From both lists of the inventory to users and groups that do not contradict each other. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from provision.model.user_entries import GROUP_KEYS, USER_KEYS, Entry, entries_from, group_from, user_from
from provision.model.users import SUBORDINATE, Group, User, Users, UsersError


def users_from(users: object, groups: object = ()) -> Users:
    """Read both lists, as they stand in the inventory.

    Raises:
        UsersError: what is wrong with which entry, and what to do.
    """
    listed = [group_from(entry) for entry in entries_from("cluster_groups", groups, GROUP_KEYS)]
    _once("cluster_groups", "name", [group.name for group in listed])
    declared = {group.name: group for group in listed}
    entries = entries_from("cluster_users", users, USER_KEYS)
    found = [user_from(entry, declared) for entry in entries]
    _once("cluster_users", "name", [user.name for user in found])
    _once("cluster_groups", "gid", [None if one.absent else one.gid for one in listed], [one.name for one in listed])
    names = [user.name for user in found]
    _once("cluster_users", "uid", [None if user.absent else user.uid for user in found], names)
    _once("cluster_users", "home", [None if user.absent else user.home for user in found], names)
    own = [Group(user.name, user.uid) for user in found if not user.absent and user.group == user.name]
    numbers = {group.gid: group.name for group in listed if not group.absent}
    for user, entry in zip(found, entries, strict=True):
        if not user.absent and user.group == user.name not in declared and (other := numbers.get(user.uid)):
            entry.refuse(
                "uid",
                f"its own group would have the number {user.uid}, which is {other}'s",
                f"give it a group (group: {other}), or another uid",
            )
    _subordinate(found, entries, numbers)
    return Users(tuple(found), (*listed, *(group for group in own if group.name not in declared)))


def _once(variable: str, key: str, values: Sequence[object], names: Sequence[str] = ()) -> None:
    """Refuse the second of two that have the same."""
    seen: dict[object, int] = {}
    for number, value in enumerate(values):
        if value is None or (first := seen.setdefault(value, number)) == number:
            continue
        who = f"{names[first]} and {names[number]}" if names else f"{value}"
        problem = f"{who} both have {key} {value}" if names else f"{value} is named twice"
        raise UsersError(variable, number, key, f"{variable}: {problem}", "give each its own, or remove one of the two")


def _subordinate(users: Sequence[User], entries: Sequence[Entry], gids: Mapping[int, str]) -> None:
    """Refuse ranges that overlap, or that hold somebody's own number: a container's user would be that one."""
    people = {**gids, **{user.uid: user.name for user in users if not user.absent}}
    ranges = sorted((user.subordinate, number) for number, user in enumerate(users) if not user.absent)
    for (start, first), (after, second) in itertools.pairwise(ranges):
        if after < start + SUBORDINATE:
            late = max(first, second)
            other = users[first + second - late].name
            entries[late].refuse(
                "subordinate_ids" if "subordinate_ids" in entries[late].values else "uid",
                f"its subordinate numbers are {other}'s, too",
                f"give one of the two a range of its own: subordinate_ids: N, the first of {SUBORDINATE} free numbers",
            )
    for number, name in sorted(people.items()):
        for start, index in ranges:
            if start <= number < start + SUBORDINATE:
                entries[index].refuse(
                    "uid", f"{name}'s number {number} is among its subordinate numbers",
                    "give it others: subordinate_ids: N",
                )  # fmt: skip
