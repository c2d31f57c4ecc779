# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's door into provision.slurm.conf and provision.judge.slurm_conf. Translation only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ansible.errors import AnsibleFilterError

from provision.errors import ClusterctlError
from provision.inventory.declared import GROUPS, READ, cluster_from
from provision.judge import slurm_conf
from provision.slurm.conf import slurm_values
from provision.slurm.render import render_values


def plain(value):
    """Copy Ansible's lazy containers, which hold placeholders until they are iterated over, into ordinary ones."""
    if isinstance(value, Mapping):
        return {str(key): plain(value[key]) for key in value}
    return [plain(item) for item in value] if isinstance(value, Sequence) and not isinstance(value, str) else value


def slurm_conf_values(groups, hostvars):
    """Return what the templates print, from Ansible's ``groups`` and ``hostvars``."""
    members = {group: [str(host) for host in groups.get(group, ())] for group in GROUPS}
    hosts = dict.fromkeys(host for group in members.values() for host in group)
    variables = {host: {n: plain(found[n]) for n in READ if n in found} for host in hosts for found in [hostvars[host]]}
    try:
        return slurm_values(cluster_from(members, variables))
    except ClusterctlError as error:
        raise AnsibleFilterError(f"{error.problem}\nFix: {error.fix}") from None


def slurm_conf_checks(found, values):
    """Return the checks of a machine's files by stat's results; without ``values``, it must have no slurm.conf."""
    texts = render_values(plain(values)) if values else {"slurm.conf": None}
    return [check.as_dict() for check in slurm_conf.checks(plain(found), texts)]


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {"slurm_conf_values": slurm_conf_values, "slurm_conf_checks": slurm_conf_checks}
