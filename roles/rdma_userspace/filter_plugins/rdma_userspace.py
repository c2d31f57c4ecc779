# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door into provision.judge.rdma* and provision.rdma. Translation only."""

from __future__ import annotations

from dataclasses import asdict

from provision.judge import rdma, rdma_transfers
from provision.rdma import rounds
from provision.rdma.expected import Expected, majority, unused_in


def _found(hostvars, hosts):
    answers = {str(host): hostvars[host].get("__rdma_userspace_seen") or {} for host in hosts}
    return {host: answer["machine"]["rdma"] for host, answer in answers.items() if "rdma" in answer.get("machine", ())}


def rdma_userspace_group(hostvars, hosts):
    """Return what most machines have."""
    return asdict(majority(rdma.adapters_of(found) for found in _found(hostvars, hosts).values()))


def rdma_userspace_adapters(found, install):
    """Return the check that says which adapters a machine has."""
    return [rdma.presence(found, install).as_dict()]


def rdma_userspace_ofed(found, asked):
    """Return the check that refuses an OFED whose origin cannot be verified."""
    return [rdma.ofed(found, asked).as_dict()]


def rdma_userspace_checks(found, group, settings):
    """Return the checks of one machine."""
    return [check.as_dict() for check in rdma.checks(found, Expected.from_dict(group), settings)]


def rdma_userspace_plan(hostvars, hosts, settings):
    """Return who moves data to whom, and what only this run's machines know."""
    addresses = {str(host): str(hostvars[host].get("rdma_userspace_address") or host) for host in hosts}
    unused = {str(host): unused_in(hostvars[host].get("node_rdma_unused")) for host in hosts}
    return {**rounds.plan(_found(hostvars, hosts), addresses, settings, unused), "token": str(settings["token"])}


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
            "rdma_userspace_group": rdma_userspace_group,
            "rdma_userspace_checks": rdma_userspace_checks,
            "rdma_userspace_plan": rdma_userspace_plan,
            "rdma_userspace_transfers": rdma_userspace_transfers,
        }
