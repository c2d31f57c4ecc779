# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door into provision.judge.rdma* and provision.rdma. Translation only."""

from __future__ import annotations

from provision.judge import rdma, rdma_transfers
from provision.rdma.expected import Expected


def rdma_userspace_adapters(found, install):
    """Return the check that says which adapters a machine has."""
    return [rdma.presence(found, install).as_dict()]


def rdma_userspace_ofed(found, asked):
    """Return the check that refuses an OFED whose origin cannot be verified."""
    return [rdma.ofed(found, asked).as_dict()]


def rdma_userspace_checks(found, group, settings):
    """Return the checks of one machine."""
    return [check.as_dict() for check in rdma.checks(found, Expected.from_dict(group), settings)]


def rdma_userspace_transfers(moved, host, found, plan, settings):
    """Return the checks of what one machine has moved."""
    return [check.as_dict() for check in rdma_transfers.checks(moved, str(host), found, plan, settings)]


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {
            "rdma_userspace_adapters": rdma_userspace_adapters,
            "rdma_userspace_ofed": rdma_userspace_ofed,
            "rdma_userspace_checks": rdma_userspace_checks,
            "rdma_userspace_transfers": rdma_userspace_transfers,
        }
