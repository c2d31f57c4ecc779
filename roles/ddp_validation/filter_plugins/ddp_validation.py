# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's door into provision.judge.ddp. Translation only."""

from __future__ import annotations

from provision.judge.ddp import checks
from provision.judge.ddp_evidence import evidence_from
from provision.model.gres import gpus


def ddp_gpus(hosts, hostvars):
    """Return the GPUs that every one of the hosts declares at least."""
    return min((gpus(hostvars[host].get("node_gres")) for host in hosts), default=0)


def ddp_ranks(hosts, hostvars, without):
    """Return the ranks of each host: one per declared GPU, or ``without`` where it declares none."""
    return {str(host): gpus(hostvars[host].get("node_gres")) or int(without) for host in hosts}


def ddp_expect(ranks, hosts):
    """Return the ranks of these hosts as the program reads them: node1=2,node2=2."""
    return ",".join(f"{host}={ranks[host]}" for host in hosts)


def ddp_checks(ranks, job, hostvars, hosts, simulated, directory):
    """Return the checks, from the job's and the collectors' registered results."""
    left = {str(host): hostvars[host].get("__ddp_validation_left", {}).get("stdout", "") for host in hosts}
    expected = {str(host): int(ranks[host]) for host in hosts}
    said = str(job.get("stdout") or ""), str(job.get("stderr") or job.get("msg") or "")
    rdma = {str(host): _rdma(hostvars[host]) for host in hosts}
    evidence = evidence_from(*said, left, expected, [str(word) for word in simulated], rdma, str(directory))
    return [check.as_dict() for check in checks(evidence)]


def _rdma(variables):
    """Return what the roles for RDMA have found on a host in this run; None where they did not run."""
    for name in ("__gpudirect_rdma_found", "__rdma_userspace_seen"):
        found = variables.get(name, {}).get("machine", {})
        if "rdma" in found:
            return found["rdma"]
    return None


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {"ddp_gpus": ddp_gpus, "ddp_ranks": ddp_ranks, "ddp_expect": ddp_expect, "ddp_checks": ddp_checks}
