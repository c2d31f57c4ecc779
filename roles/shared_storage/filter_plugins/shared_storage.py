# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's door to what a machine mounts. Translation only."""

from __future__ import annotations

from provision.judge import shared_storage
from provision.model import mounts

UNITS = "/etc/systemd/system"


def shared_storage_units(declared, machine):
    """Return what a machine mounts by itself."""
    return mounts.units(declared, str(machine))


def shared_storage_files(units):
    """Return the unit of each as a file that the role manages."""
    return [
        {**unit, "path": f"{UNITS}/{unit['unit']}", "where": unit["path"], "template": "mount.j2"} for unit in units
    ]


def shared_storage_links(units):
    """Return by which links they are mounted at boot."""
    return [
        {"path": f"{UNITS}/remote-fs.target.wants/{unit['unit']}", "target": f"{UNITS}/{unit['unit']}"}
        for unit in units
    ]


def shared_storage_remounts(units, machine):
    """Return the units that are mounted with other options, from what ``machine_facts`` has said."""
    found = ((machine or {}).get("state") or {}).get("mounts") or {}
    return [
        unit["unit"]
        for unit in units
        if unit["path"] in found and shared_storage.lacking(unit["options"], found[unit["path"]]["options"])
    ]


def shared_storage_removable(unmounted, machine):
    """Return the units of what is to be unmounted and nobody uses, from what ``machine_facts`` has said."""
    own = ((machine or {}).get("state") or {}).get("own_mounts") or []
    return shared_storage.removable(own, [str(path) for path in unmounted])


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {
            "shared_storage_units": shared_storage_units,
            "shared_storage_files": shared_storage_files,
            "shared_storage_links": shared_storage_links,
            "shared_storage_remounts": shared_storage_remounts,
            "shared_storage_removable": shared_storage_removable,
        }
