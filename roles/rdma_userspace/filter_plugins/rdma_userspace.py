# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door into provision.judge.rdma* and provision.rdma.rounds. Translation only."""

from __future__ import annotations

from dataclasses import asdict

from provision.judge import rdma as verify_rdma
from provision.judge import rdma_machine as verify_rdma_machine
from provision.judge import rdma_transfers as verify_rdma_transfers
from provision.rdma import rounds


def _found(hostvars, hosts):
    answers = {str(host): hostvars[host].get("__rdma_userspace_seen") or {} for host in hosts}
    return {host: answer["machine"]["rdma"] for host, answer in answers.items() if "machine" in answer}


def rdma_userspace_group(hostvars, hosts):
    """Return what most machines have."""
    machines = [verify_rdma_machine.adapters_of(found) for found in _found(hostvars, hosts).values()]
    return asdict(verify_rdma.majority(machines))


def rdma_userspace_checks(found, group, settings):
    """Return the checks of one machine."""
    return verify_rdma_machine.checks(found, verify_rdma.Expected(**group), settings)


def rdma_userspace_plan(hostvars, hosts, settings):
    """Return who moves data to whom, and what only this run's machines know."""
    addresses = {str(host): str(hostvars[host].get("rdma_userspace_address") or host) for host in hosts}
    return {**rounds.plan(_found(hostvars, hosts), addresses, settings), "token": str(settings["token"])}


def rdma_userspace_transfers(moved, host, found, plan, settings):
    """Return the checks of what one machine has moved."""
    return verify_rdma_transfers.judge(moved, str(host), found, plan, settings)


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {
            "rdma_userspace_adapters": verify_rdma_machine.presence,
            "rdma_userspace_ofed": verify_rdma_machine.ofed,
            "rdma_userspace_group": rdma_userspace_group,
            "rdma_userspace_checks": rdma_userspace_checks,
            "rdma_userspace_plan": rdma_userspace_plan,
            "rdma_userspace_transfers": rdma_userspace_transfers,
        }
