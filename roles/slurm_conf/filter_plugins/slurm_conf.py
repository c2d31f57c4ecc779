# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's door into provision.slurm.conf. Translation only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ansible.errors import AnsibleFilterError

from provision.errors import ClusterctlError
from provision.inventory.declared import GROUPS, READ, cluster_from
from provision.slurm.conf import slurm_values, unconfined


def plain(value):
    """Copy Ansible's lazy containers, which hold placeholders until they are iterated over, into ordinary ones."""
    if isinstance(value, Mapping):
        return {str(key): plain(value[key]) for key in value}
    return [plain(item) for item in value] if isinstance(value, Sequence) and not isinstance(value, str) else value


def declared(groups, hostvars):
    """Return the cluster, from Ansible's ``groups`` and ``hostvars``."""
    members = {group: [str(host) for host in groups.get(group, ())] for group in GROUPS}
    hosts = dict.fromkeys(host for group in members.values() for host in group)
    variables = {host: {n: plain(found[n]) for n in READ if n in found} for host in hosts for found in [hostvars[host]]}
    return cluster_from(members, variables)


def slurm_conf_values(groups, hostvars):
    """Return what the templates print, from Ansible's ``groups`` and ``hostvars``."""
    try:
        return slurm_values(declared(groups, hostvars))
    except ClusterctlError as error:
        raise AnsibleFilterError(f"{error.problem}\nFix: {error.fix}") from None


def slurm_conf_unconfined(groups, hostvars):
    """Return why these files confine no job, empty where they do."""
    try:
        return unconfined(declared(groups, hostvars))
    except ClusterctlError as error:
        raise AnsibleFilterError(f"{error.problem}\nFix: {error.fix}") from None


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {"slurm_conf_values": slurm_conf_values, "slurm_conf_unconfined": slurm_conf_unconfined}
