# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door into provision.rdma.gpudirect_machine and provision.judge.gpudirect. Translation only."""

from __future__ import annotations

from provision.judge import gpudirect
from provision.rdma import gpudirect_machine


def gpudirect_checks(found, settings, proven):
    """Return the checks of one machine (none where it was not asked): of the decision, or of all where ``proven``."""
    return [check.as_dict() for check in gpudirect.checks(found, settings, proven=bool(proven))]


def gpudirect_places(root):
    """Return the places of all files that a mechanism may want; below another ``root`` they are the same."""
    return list(gpudirect_machine.PLACES) if root else []


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {
            "gpudirect_plan": gpudirect_machine.plan,
            "gpudirect_checks": gpudirect_checks,
            "gpudirect_places": gpudirect_places,
        }
