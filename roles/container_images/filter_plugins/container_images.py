# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door to the files that images are built from."""

from __future__ import annotations

import hashlib

from provision import content


def container_images_files(role, directory="image"):
    """Return the texts of the build's files by their path in a role's own ``files/<directory>/``."""
    place = content.ROOT / "roles" / role / "files" / directory
    return {
        str(path.relative_to(place)): path.read_text(encoding="utf-8")
        for path in sorted(place.rglob("*"))
        if path.is_file() and not path.name.startswith(".") and path.parent.name != "__pycache__"
    }


def container_images_package(directory, name):
    """Return the texts of a package of this project, and of those that it is in, by their path in a directory."""
    parents = name.split(".")
    places = [content.PACKAGE.joinpath(*parents[1:count]) / "__init__.py" for count in range(1, len(parents))]
    places += sorted(content.PACKAGE.joinpath(*parents[1:]).glob("*.py"))
    root = content.PACKAGE.parent
    return {f"{directory}/{path.relative_to(root)}": path.read_text(encoding="utf-8") for path in places}


def container_images_asked(recipe):
    """Return a recipe as ``machine_facts`` takes it: with hashes in place of the files' texts, which stay here."""
    sums = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in recipe["files"].items()}
    return {**{key: value for key, value in recipe.items() if key != "files"}, "sums": sums}


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {
            "container_images_asked": container_images_asked,
            "container_images_files": container_images_files,
            "container_images_package": container_images_package,
        }
