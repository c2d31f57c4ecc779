# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door to the files that images are built from."""

from __future__ import annotations

from provision import content


def container_images_files(role, directory="image"):
    """Return the texts of the build's files by their path in a role's own ``files/<directory>/``."""
    place = content.ROOT / "roles" / role / "files" / directory
    return {
        str(path.relative_to(place)): path.read_text(encoding="utf-8")
        for path in sorted(place.rglob("*"))
        if path.is_file() and not path.name.startswith(".") and path.parent.name != "__pycache__"
    }


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {"container_images_files": container_images_files}
