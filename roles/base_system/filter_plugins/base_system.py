# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door into what base_system writes. Translation only."""

from __future__ import annotations

from provision.model import memlock


def base_system_memlock(wanted, highest):
    """Return the limit to set: what is wanted, but not more than the machine allows."""
    return memlock.possible(str(wanted), str(highest))


class FilterModule:
    """Filters of the role base_system."""

    def filters(self):
        """Return the filters by name."""
        return {
            "base_system_memlock": base_system_memlock,
        }
