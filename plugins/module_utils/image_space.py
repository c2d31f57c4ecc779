# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What images still have to bring to a node, and whether its disk has room for that. Python 3.8."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ansible.module_utils import image_registry, image_store

#: Bytes on the disk for each one that is fetched: it is kept until it is unpacked, and that is about twice as many.
ON_DISK = 3
#: Bytes that stay free for what else the machine does.
RESERVE = 1_000_000_000


def manifest(reference, seconds=image_registry.SECONDS):
    """Return the manifest of an image that is named by digest (``host/project/name@sha256:...``).

    Raises:
        RegistryError: the registry does not answer, refuses us, or does not have it.
    """
    image, _, digest = reference.partition("@")
    host, _, project = image.partition("/")
    try:
        status, text = image_registry.manifest(image, digest, seconds)
        if status != 200:
            raise image_registry.RegistryError(f"the registry {host} answers HTTP {status} for {project}")
        return json.loads(text)
    except (OSError, ValueError) as error:
        raise image_registry.RegistryError(
            f"the registry {host} does not answer: {image_registry.said(error)}"
        ) from error


def lacking(store, references, ask=manifest):
    """Return bytes that have to be fetched for those of the images that the store does not have."""
    there = {layer.get("compressed-diff-digest") for layer in image_store.listed(store, "layers")}
    missing = {}
    for reference in references:
        if not image_store.has(store, reference):
            missing.update({layer["digest"]: int(layer["size"]) for layer in ask(reference).get("layers") or ()})
    return sum(size for digest, size in missing.items() if digest not in there)


def free(path):
    """Return the free bytes of the disk on which a directory is, or will be."""
    path = next(place for place in (Path(path), *Path(path).parents) if place.is_dir())
    state = os.statvfs(path)
    return state.f_bavail * state.f_frsize


def problem(needed, path, available=None):
    """Return why so many bytes do not fit, with the numbers; nothing where they do, or there are none."""
    available = free(path) if available is None else available
    if not needed or needed + RESERVE <= available:
        return ""
    return (
        f"{path} has {available / 1e9:.1f} GB free, and {needed / 1e9:.1f} GB are needed,"
        f" with {RESERVE / 1e9:.0f} GB left for the machine"
    )
