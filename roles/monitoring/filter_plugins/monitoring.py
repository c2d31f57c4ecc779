# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door to what is asked about a job. Translation only."""

from __future__ import annotations

from provision.report import job


def monitoring_asked(sacct, scontrol, name):
    """Return how Slurm is asked for the other jobs of a job's nodes, and Prometheus for its figures."""
    return job.asked(str(sacct), str(scontrol), str(name))


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {"monitoring_asked": monitoring_asked}
