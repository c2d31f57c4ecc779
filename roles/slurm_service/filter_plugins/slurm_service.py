# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's door into provision.judge.slurm and provision.judge.jobs. Translation only."""

from __future__ import annotations

from provision.judge import gpus as verify_gpus
from provision.judge import jobs as verify_jobs
from provision.judge import slurm as verify_slurm


def slurm_service_checks(seen, host, group_names, image, version, simulated, verifying, gpus):
    """Return the checks of one machine. ``seen`` are the role's registered answers and the inventory's node_gres."""
    nodes = verify_slurm.nodes_in(str(seen["nodes"]))
    checks = [verify_slurm.daemon_check(str(seen["containers"]), [str(name) for name in seen["daemons"]], str(image))]
    if "slurm_compute" in group_names:
        name, words = str(host), [str(word) for word in simulated]
        checks += [
            verify_slurm.state_check(name, nodes, verifying=bool(verifying)),
            verify_slurm.gres_check(name, nodes, str(seen["gres"]), str(seen["declared"]), words),
            verify_slurm.version_check(name, nodes, str(version)),
            verify_slurm.memlock_check(str(seen["containers"])),
        ]
        checks += [verify_gpus.container_check(str(seen["gres"]), str(seen["declared"]))] if gpus else []
    return checks


def slurm_settled(text, scope):
    """Tell whether the nodes' states are worth judging."""
    return verify_slurm.settled(str(text), [str(name) for name in scope])


def slurm_status(nodes, jobs):
    """Return nodes and jobs as clusterctl status shows them."""
    return verify_slurm.status(str(nodes), str(jobs))


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {
            "slurm_service_checks": slurm_service_checks,
            "slurm_settled": slurm_settled,
            "slurm_status": slurm_status,
            "slurm_job_checks": verify_jobs.checks,
            "slurm_job_targets": verify_jobs.targets,
            "slurm_job_told": verify_jobs.told,
        }
