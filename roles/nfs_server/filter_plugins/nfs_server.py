# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's door to what a machine exports. Translation only."""

from __future__ import annotations

from provision.model import mounts


def nfs_server_exports(declared, machine, entries):
    """Return the directories that a machine exports, from the cluster's mounts and the machines' addresses."""
    addresses = {str(name): str(entry["address"]) for entry in entries for name in entry["names"]}
    return mounts.exports(declared, str(machine), addresses)


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {"nfs_server_exports": nfs_server_exports}
