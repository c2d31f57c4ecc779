# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door into provision.judge.gpu_containers. Translation only."""

from __future__ import annotations

from provision import content
from provision.judge import gpu_containers
from provision.model.gres import gpus


def nvidia_containers_checks(text, installed, version, packages, gres):
    """Return the checks of one machine from what the program ``ask`` printed there."""
    listed = gres if isinstance(gres, str) else [str(item) for item in gres or ()]
    names = [str(name) for name in packages]
    found = gpu_containers.checks(
        str(text), installed=bool(installed), version=str(version), packages=names, gres=listed
    )
    return [check.as_dict() for check in found]


def nvidia_containers_file(name):
    """Return the text of a file of this role: plays that only ask machines are not in the role's directory."""
    return (content.ROOT / "roles/nvidia_containers/files" / str(name)).read_text(encoding="utf-8")


class FilterModule:
    """Filters of the role nvidia_containers."""

    def filters(self):
        """Return the filters by name."""
        return {
            "nvidia_containers_checks": nvidia_containers_checks,
            "nvidia_containers_file": nvidia_containers_file,
            "nvidia_containers_gpus": gpus,
        }
