# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door into provision.judge.images. Translation only."""

from __future__ import annotations

from provision.judge import images


def container_images_checks(reached, registry, controller, away=False):
    """Return the checks of this machine's way to the registry, as cluster_check takes them."""
    return [check.as_dict() for check in images.checks(reached, str(registry), str(controller), away=bool(away))]


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {"container_images_checks": container_images_checks}
