# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's door into provision.judge.slurm_image. Translation only."""

from __future__ import annotations

from provision.judge import slurm_image


def slurm_image_checks(reference):
    """Return the checks of Slurm's image, by its reference in the registry."""
    return [check.as_dict() for check in slurm_image.checks(str(reference or ""))]


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {"slurm_image_checks": slurm_image_checks}
