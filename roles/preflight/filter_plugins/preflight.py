# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door into provision.judge.preflight. Translation only."""

from __future__ import annotations

from provision.judge import hardware, preflight


def preflight_checks(machine, settings, declared, simulated):
    """Return the checks of one machine, as the action cluster_check takes them."""
    checks = preflight.checks(machine, settings)
    if "hardware" in machine:
        checks += hardware.checks(machine["hardware"], declared, simulated=bool(simulated))
    return [check.as_dict() for check in checks]


class FilterModule:
    """Filters of the role preflight."""

    def filters(self):
        """Return the filters by name."""
        return {"preflight_checks": preflight_checks}
