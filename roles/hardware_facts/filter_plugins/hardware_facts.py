# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door into provision.judge.hardware. Translation only."""

from __future__ import annotations

from provision.judge import hardware


def hardware_facts_checks(found, declared, simulated):
    """Return the checks of declared hardware against the machine's, as the action cluster_check takes them."""
    checks = hardware.checks(found, dict(declared), simulated=bool(simulated))
    return [check.as_dict() for check in checks]


class FilterModule:
    """Filters of the role hardware_facts."""

    def filters(self):
        """Return the filters by name."""
        return {"hardware_facts_checks": hardware_facts_checks}
