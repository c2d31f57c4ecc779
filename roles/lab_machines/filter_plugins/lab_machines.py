# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's door into provision.lab.vm. Translation only."""

from __future__ import annotations

from pathlib import Path

from provision import image_files
from provision.lab import given, vm


def lab_addresses(names, subnet):
    """Return the addresses of a lab's machines by name."""
    return {str(name): vm.address(str(subnet), str(name)) for name in names}


def lab_images(registry):
    """Return the images that virtual machines are to have from the start: this tree's, where they have been built."""
    place = Path(str(registry)) / "docker/registry/v2/repositories" / vm.PROJECT
    links: dict[str, dict[str, str]] = {}
    for link in sorted(place.glob("*/_manifests/tags/*/current/link"), key=lambda path: path.stat().st_mtime):
        links.setdefault(link.parts[-6], {})[link.parts[-3]] = link.read_text(encoding="ascii").strip()
    return vm.images(links, {name: image_files.tag(role) for name, role in image_files.ROLES.items()})


def lab_pip(told, depot):
    """Return C(conf), the machines' pip.conf, and C(volumes), the directories of wheels that the depot serves."""
    settings = given.pip_settings(str(told))
    paths = [word.removeprefix("file://") for word in settings.get("find-links", [])]
    places = [path for path in paths if path.startswith("/") and Path(path).is_dir()]
    wheels = [f"https://{depot}/{number}/" for number in range(len(places))]
    volumes = [f"{place}:/srv/wheels/{number}:ro" for number, place in enumerate(places)]
    return {"conf": given.pip_conf(settings, wheels), "volumes": volumes}


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
            "lab_pip": lab_pip,
            "lab_virtual_machines": lab_virtual_machines,
        }
