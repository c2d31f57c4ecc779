# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door to the script of this role, also where no role is run and ``lookup`` finds no file of it."""

from __future__ import annotations

from provision import content


def machine_metrics_file(name):
    """Return the text of one of the role's files."""
    return (content.ROOT / "roles/machine_metrics/files" / name).read_text(encoding="utf-8")


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {"machine_metrics_file": machine_metrics_file}
