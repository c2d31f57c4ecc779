# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door into what base_system writes and how it is judged. Translation only."""

from __future__ import annotations

from provision.judge import base_system
from provision.model import addresses, memlock


def base_system_entries(hostvars, hosts):
    """Return address and names of every host whose address the inventory gives."""
    return addresses.hosts_entries(hostvars, list(hosts))


def base_system_memlock(wanted, highest):
    """Return the limit to set: what is wanted, but not more than the machine allows."""
    return memlock.possible(str(wanted), str(highest))


def base_system_checks(machine, settings):
    """Return the checks of one machine, as the action cluster_check takes them."""
    return [check.as_dict() for check in base_system.checks(machine, settings)]


class FilterModule:
    """Filters of the role base_system."""

    def filters(self):
        """Return the filters by name."""
        return {
            "base_system_entries": base_system_entries,
            "base_system_memlock": base_system_memlock,
            "base_system_checks": base_system_checks,
        }
