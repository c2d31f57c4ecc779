# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door to the site's users and groups: both lists of the inventory, read as provision.model reads them."""

from __future__ import annotations

from dataclasses import asdict

from provision.model.facts import plain
from provision.model.mounts import homes_on
from provision.model.users import SUBORDINATE
from provision.model.users_declared import users_from
from provision.slurm.accounts_read import accounts_from


def cluster_users_asks(users, groups, homes, proof, members):
    """Return what a machine is asked about them, as ``machine_facts`` takes it; nothing where there are none.

    ``homes`` are the users whose homes are made on it, ``proof`` who submits the cluster's own jobs, ``members`` who
    else has to be known to it.
    """
    people = users_from(plain(users), plain(groups))
    # A user who is made for the proofs may be somebody else's name or number, too.
    made = [] if proof["declared"] else [(str(proof["name"]), int(proof["uid"]))]
    if not people.users and not people.groups and not made and not members:
        return {}
    named = {name for user in people.present for name in user.groups}
    names, numbers = [name for name, _ in made], [number for _, number in made]
    return {
        "people": {
            "users": [user.name for user in people.users] + names + [str(name) for name in members],
            "uids": [user.uid for user in people.present] + numbers,
            "groups": sorted(named | {group.name for group in people.groups} | {*names}),
            "gids": sorted({*people.gids.values(), *numbers}),
            "homes": [user.home for user in people.present if user.name in homes],
        },
        "state": {"paths": sorted({user.shell for user in people.present})},
    }


def cluster_users_read(users, groups):
    """Return what the role makes: ``users``, ``absent_users``, ``groups``, ``absent_groups``, ``subordinate``."""
    people = users_from(plain(users), plain(groups))
    return {
        "users": [asdict(user) for user in people.present],
        "absent_users": [user.name for user in people.users if user.absent],
        "groups": [{"name": name, "gid": gid} for name, gid in people.gids.items()],
        "absent_groups": [group.name for group in people.groups if group.absent],
        "subordinate": SUBORDINATE,
    }


def cluster_users_members(accounts, qos, users, proof):
    """Return who is in an account of the inventory's and not declared: whom the site's directory is to have."""
    declared = accounts_from(plain(accounts), plain(qos), user=str(proof["name"]), account=str(proof["account"]))
    known = {str(user.get("name")) for user in plain(users)} | {str(proof["name"])}
    return sorted(set(declared.default_accounts) - known)


def cluster_users_homes(users, groups, mounts, machine, controller):
    """Return the names of the users whose homes are made on this machine."""
    return list(homes_on(users_from(plain(users), plain(groups)), plain(mounts), str(machine), str(controller)))


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {
            "cluster_users_asks": cluster_users_asks,
            "cluster_users_homes": cluster_users_homes,
            "cluster_users_members": cluster_users_members,
            "cluster_users_read": cluster_users_read,
        }
