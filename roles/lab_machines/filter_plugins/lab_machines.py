# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's door into provision.lab.vm. Translation only."""

from __future__ import annotations

from provision import image_files
from provision.lab import vm


def lab_addresses(names, subnet):
    """Return the addresses of a lab's machines by name."""
    return {str(name): vm.address(str(subnet), str(name)) for name in names}


def lab_images(paths, texts):
    """Return the images that virtual machines are to have from the start: this tree's, where they have been built."""
    ours = {name: image_files.sums(image_files.texts(role)) for name, role in image_files.ROLES.items()}
    return vm.images(dict(zip(map(str, paths), map(str, texts), strict=True)), ours)


def lab_virtual_machines(names, virtual, settings):
    """Return what the module lab_vms is to keep running: those machines that are virtual."""
    made = vm.machines([str(name) for name in names], settings)
    return {name: made[name] for name in made if name in virtual}


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {
            "lab_addresses": lab_addresses,
            "lab_images": lab_images,
            "lab_virtual_machines": lab_virtual_machines,
        }
