# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door into provision.judge.base_system. Translation only."""

from __future__ import annotations

from provision.judge import base_system


def base_system_entries(hostvars, hosts):
    """Return address and names of every host whose address the inventory gives."""
    return base_system.hosts_entries(hostvars, list(hosts))


def base_system_memlock(wanted, highest):
    """Return the limit to set: what is wanted, but not more than the machine allows."""
    return base_system.memlock(str(wanted), str(highest))


def base_system_checks(machine, entries, settings):
    """Return the checks of one machine, as the action cluster_check takes them."""
    return base_system.judge(machine, entries, settings)


class FilterModule:
    """Filters of the role base_system."""

    def filters(self):
        """Return the filters by name."""
        return {
            "base_system_entries": base_system_entries,
            "base_system_memlock": base_system_memlock,
            "base_system_checks": base_system_checks,
        }
