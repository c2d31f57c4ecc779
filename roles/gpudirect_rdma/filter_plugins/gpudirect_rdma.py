# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door into provision.rdma.gpudirect_machine. Translation only."""

from __future__ import annotations

from provision.rdma import gpudirect_machine


def gpudirect_checks(found, settings, proven):
    """Return the checks of one machine: of the decision, and where it is proven, of its outcome."""
    return gpudirect_machine.judge(found, settings, proven=bool(proven))


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {"gpudirect_plan": gpudirect_machine.plan, "gpudirect_checks": gpudirect_checks}
