# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door into provision.nvidia.driver. Translation only."""

from __future__ import annotations

from provision.nvidia import driver as nvidia_driver
from provision.nvidia import driver_state as nvidia_driver_state


def nvidia_driver_common(madison, plan):
    """Return the newest version that the driver and its Fabric Manager are both offered in."""
    wanted = str(plan["version"] or plan["branch"])
    return nvidia_driver.newest_common(str(madison), str(plan["install"][-1][0]), str(plan["fabric_manager"]), wanted)


def nvidia_driver_unheld(gpu, kernels):
    """Return the packages that are still free to move."""
    return nvidia_driver_state.unheld(gpu, kernels=bool(kernels))


def nvidia_driver_unbuilt(gpu, kernels):
    """Return the kernels that lack the driver's module."""
    return nvidia_driver_state.unbuilt(gpu, [str(kernel) for kernel in kernels])


class FilterModule:
    """Filters of the role nvidia_driver."""

    def filters(self):
        """Return the filters by name."""
        return {
            "nvidia_driver_common": nvidia_driver_common,
            "nvidia_driver_unbuilt": nvidia_driver_unbuilt,
            "nvidia_driver_unheld": nvidia_driver_unheld,
        }
