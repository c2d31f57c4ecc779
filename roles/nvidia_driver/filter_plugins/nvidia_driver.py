# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door into provision.nvidia.driver. Translation only."""

from __future__ import annotations

from provision.events.model import reason
from provision.nvidia import driver as nvidia_driver
from provision.nvidia import driver_packages
from provision.nvidia import driver_state as nvidia_driver_state
from provision.nvidia.driver_plan import Plan


def nvidia_driver_common(offered, plan):
    """Return the newest version that the driver and its Fabric Manager are both offered in."""
    return nvidia_driver.newest_common(str(offered), _plan(plan))


def nvidia_driver_exactly(plan):
    """Return all packages of a plan, as they are asked for together."""
    return list(nvidia_driver.exactly(_plan(plan)))


def _plan(values):
    """Return what was made plain for Ansible as the plan that it was, in what names packages."""
    steps = tuple(tuple(str(name) for name in step) for step in values["install"])
    return Plan(
        branch=int(values["branch"]),
        install=steps,
        fabric=tuple(map(str, values["fabric"])),
        version=str(values["version"]),
        repository=str(values["repository"]),
        fabric_manager=str(values["fabric_manager"]),
    )


def nvidia_driver_unheld(gpu, kernels):
    """Return the packages that are still free to move."""
    return nvidia_driver_state.unheld(gpu, kernels=bool(kernels))


def nvidia_driver_unbuilt(gpu, kernels):
    """Return the kernels that lack the driver's module."""
    return nvidia_driver_state.unbuilt(gpu, [str(kernel) for kernel in kernels])


def nvidia_driver_files(source):
    """Return the places of files that are ours or in the way, for a driver from this source."""
    return list(driver_packages.PLACES) if source else []


def nvidia_driver_failure(result):
    """Return why a task has failed: what a program has printed, or each item of a loop."""
    return reason(result, "it failed")


class FilterModule:
    """Filters of the role nvidia_driver."""

    def filters(self):
        """Return the filters by name."""
        return {
            "nvidia_driver_common": nvidia_driver_common,
            "nvidia_driver_failure": nvidia_driver_failure,
            "nvidia_driver_files": nvidia_driver_files,
            "nvidia_driver_exactly": nvidia_driver_exactly,
            "nvidia_driver_unbuilt": nvidia_driver_unbuilt,
            "nvidia_driver_unheld": nvidia_driver_unheld,
        }
