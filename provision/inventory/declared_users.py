"""Users and groups as the inventory declares them, refused where they contradict what else it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.errors import ClusterctlError
from provision.inventory.declared_proof import READ, name_of, number_of
from provision.model.users import Users, UsersError
from provision.model.users_declared import users_from


def people_from(users: object, groups: object, hostvars: Mapping[str, Mapping[str, Any]]) -> Users:
    """Return the site's users and groups. ``hostvars`` are all machines' variables, for whom else the inventory names.

    Raises:
        ClusterctlError: an entry cannot be used; ``entry`` says which.
    """
    try:
        found = users_from(users, groups)
        _require_others(found, hostvars)
    except UsersError as error:
        entry = (error.variable, error.number, error.key)
        raise ClusterctlError(error.problem, fix=error.fix, entry=entry) from None
    return found


def _require_others(people: Users, hostvars: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse those that Ansible logs in as, whose groups and password would become others, and the proof's number."""
    told = list(hostvars.values())
    logins = {str(one[name]) for one in told for name in ("ansible_user", "ansible_ssh_user") if one.get(name)}
    said = {name: next((one[name] for one in told if one.get(name)), None) for name in READ}
    own, number = name_of(said), number_of(said)
    if any(user.name == own for user in people.present):
        # The proof's user is one of the site's: nobody is made, and no number is to be free.
        number = -1
    for place, user in enumerate(people.users):
        if user.name in logins or (user.name == own and user.absent):
            why = (
                "is whom Ansible logs in as" if user.name in logins else "runs the cluster's proofs (cluster_test_user)"
            )
            problem = f"cluster_users: {user.name} {why}"
            raise UsersError("cluster_users", place, "name", problem, "choose another name, or take the entry out")
        if user.uid == number and not user.absent:
            problem = f"cluster_users: {user.name}: uid {number} is that of {own} (cluster_test_uid)"
            raise UsersError("cluster_users", place, "uid", problem, "choose another uid")
    for place, group in enumerate(people.groups):
        if number == group.gid and not group.absent:
            problem = f"cluster_groups: {group.name}: gid {number} is that of {own} (cluster_test_uid)"
            raise UsersError("cluster_groups", place, "gid", problem, "choose another gid")
