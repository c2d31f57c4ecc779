# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door into provision.nvidia.containers. Translation only."""

from __future__ import annotations

from provision.nvidia import containers as nvidia_containers


def nvidia_containers_checks(text, version, packages, gres):
    """Return the checks of one machine from what the program ``ask`` printed there."""
    listed = gres if isinstance(gres, str) else [str(item) for item in gres or ()]
    return nvidia_containers.judge(
        str(text), version=str(version), packages=[str(name) for name in packages], gres=listed
    )


class FilterModule:
    """Filters of the role nvidia_containers."""

    def filters(self):
        """Return the filters by name."""
        return {"nvidia_containers_checks": nvidia_containers_checks, "nvidia_containers_gpus": nvidia_containers.gpus}
