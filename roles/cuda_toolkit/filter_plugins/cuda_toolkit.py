# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door into provision.nvidia.cuda_toolkit and provision.judge.toolkit. Translation only."""

from __future__ import annotations

from provision import content
from provision.judge import toolkit
from provision.nvidia import cuda_toolkit


def _plan(asked):
    installers = [{str(key): str(value) for key, value in item.items()} for item in asked["installers"]]
    return cuda_toolkit.plan(_versions(asked), installers, str(asked["driver"]), str(asked["default"]))


def _versions(asked):
    return [str(version) for version in asked["versions"]]


def cuda_toolkit_plan(asked):
    """Return packages, installers, and the default's version."""
    plan = _plan(asked)
    return {
        "packages": list(plan.packages),
        "installers": [dict(found) for found in plan.installers],
        "default": plan.default,
    }


def cuda_toolkit_asked(asked):
    """Return the checks of what is asked for."""
    return [check.as_dict() for check in toolkit.asked(_plan(asked), _versions(asked))]


def cuda_toolkit_brought(answer):
    """Return the checks of what the package manager's simulation would bring along."""
    return [check.as_dict() for check in toolkit.brought(answer)]


def cuda_toolkit_checks(answer, asked):
    """Return the checks of what is there."""
    return [check.as_dict() for check in toolkit.checks(_plan(asked), _versions(asked), str(answer))]


def cuda_toolkit_file(name):
    """Return the text of a file of this role: plays that only ask machines are not in the role's directory."""
    return (content.ROOT / "roles/cuda_toolkit/files" / str(name)).read_text(encoding="utf-8")


class FilterModule:
    """Filters of the role cuda_toolkit."""

    def filters(self):
        """Return the filters by name."""
        return {
            "cuda_toolkit_plan": cuda_toolkit_plan,
            "cuda_toolkit_asked": cuda_toolkit_asked,
            "cuda_toolkit_brought": cuda_toolkit_brought,
            "cuda_toolkit_checks": cuda_toolkit_checks,
            "cuda_toolkit_file": cuda_toolkit_file,
        }
