# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door to the files that images are built from."""

from __future__ import annotations

from provision import image_files


def container_images_files(role):
    """Return the texts of the build's files of a role by their path."""
    return image_files.texts(role)


def container_images_asked(recipe):
    """Return a recipe as ``machine_facts`` takes it: with hashes in place of the files' texts, which stay here."""
    return {
        **{key: value for key, value in recipe.items() if key != "files"},
        "sums": image_files.sums(recipe["files"]),
    }


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {
            "container_images_asked": container_images_asked,
            "container_images_files": container_images_files,
        }
