"""Users and groups as the inventory declares them, refused where they contradict what else it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.errors import ClusterctlError
from provision.model.numbers import whole
from provision.model.users import Users, UsersError
from provision.model.users_declared import users_from

#: The user of the cluster's own proofs, unless the site names another: site_variables.yml.
_TEST_USER, _TEST_UID = "slurmtest", 64031


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
    """Refuse the cluster's own user, and those that Ansible logs in as: groups and password would become others."""
    told = list(hostvars.values())
    logins = {str(one[name]) for one in told for name in ("ansible_user", "ansible_ssh_user") if one.get(name)}
    own = str(next((one["cluster_test_user"] for one in told if one.get("cluster_test_user")), _TEST_USER))
    try:
        number = whole(next((one["cluster_test_uid"] for one in told if one.get("cluster_test_uid")), _TEST_UID))
    except ValueError:
        number = _TEST_UID
    for place, user in enumerate(people.users):
        if user.name in {own, *logins}:
            why = "runs the cluster's proofs (cluster_test_user)" if user.name == own else "is whom Ansible logs in as"
            problem = f"cluster_users: {user.name} {why}"
            raise UsersError("cluster_users", place, "name", problem, "choose another name, or take the entry out")
        if user.uid == number:
            problem = f"cluster_users: {user.name}: uid {number} is that of {own} (cluster_test_uid)"
            raise UsersError("cluster_users", place, "uid", problem, "choose another uid")
    for place, group in enumerate(people.groups):
        if number == group.gid and not group.absent:
            problem = f"cluster_groups: {group.name}: gid {number} is that of {own} (cluster_test_uid)"
            raise UsersError("cluster_groups", place, "gid", problem, "choose another gid")
