# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an image is made of, and whether the registry has it. Builds nothing. Standard library only, Python 3.8.

What was built is remembered by digest in a directory of the controller, so that nobody who can write to a registry's
tags can make machines run something else.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from pathlib import Path

from ansible.module_utils import checksums, debian_mirror, image_registry, wheels


def recipe_of(params):
    """Return the hash of everything that the image is made of. Files in directories count by name and size.

    Its own files count by their hash: who only asks whether there is such an image sends the hashes, as ``sums``, and
    not a quarter of a megabyte of text. Who has the texts, as ``files``, comes to the same.
    """
    listing = {
        name: sorted((entry.name, entry.stat().st_size) for entry in os.scandir(path) if not entry.name.startswith("."))
        for name, path in (params.get("directories") or {}).items()
    }
    parts = {
        "name": params["name"],
        "suite": params.get("suite") or "",
        "base": params.get("base") or "",
        "sums": params["sums"] if "sums" in params else checksums.sums(params["files"]),
        "arguments": params.get("arguments") or {},
        "revision": int(params.get("revision") or 1),
    }
    text = json.dumps({**parts, "directories": listing, "machine": platform.machine()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class Remembered:
    """One image: its recipe, and where it is remembered.

    ``params`` has the keys of the recipe, or its hash as ``recipe``, and where images are: ``push``, ``pull`` (both
    begin a name) and ``cache``.
    """

    def __init__(self, params):
        self.name = f"{params['pull']}/{params['name']}"
        self.recipe = params.get("recipe") or recipe_of(params)
        # What one registry has tells nothing about another, and a site may name another one.
        registry = hashlib.sha256(params["push"].encode()).hexdigest()
        self.record = (
            Path(params["cache"])
            / "images"
            / f"{params['name'].replace('/', '%')}-{self.recipe[:16]}-{registry[:8]}.json"
        )

    def built(self):
        """Return the digest that was remembered when this recipe was built for this registry; None where it was not."""
        try:
            return json.loads(self.record.read_text(encoding="utf-8"))["digest"]
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def known(self):
        """Return the digest of the image if this recipe was built for this registry, which still has it."""
        digest = self.built()
        return digest if digest and image_registry.has(self.name, digest) else None

    def reference(self, digest):
        """Return the image by digest, as machines pull it."""
        return f"{self.name}@{digest}"


def state(params, has=image_registry.has):
    """Return ``reference``, the image by digest, and ``problem``, empty where all is well.

    Without a reference it is to be built. With both the registry could not be asked whether it still has the image.
    """
    try:
        image = Remembered(params)
    except (OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        return {"reference": "", "problem": str(error)}
    digest = image.built()
    if not digest:
        return {"reference": "", "problem": "not built"}
    try:
        there = has(image.name, digest)
    except image_registry.RegistryError as error:
        return {"reference": image.reference(digest), "problem": str(error)}
    return {"reference": image.reference(digest) if there else "", "problem": "" if there else "the registry lost it"}


def collect(ask, store, patience=1):
    """Return the state of each image in ``ask``, recipes by name; ``store`` says where images are kept."""
    limit = 5 * patience

    def has(image, digest):
        return image_registry.within(limit, lambda: image_registry.has(image, digest, limit))

    found = {name: state({**recipe, **store}, has) for name, recipe in ask.items()}
    for name, image in found.items():
        if not image["reference"]:
            image["lacking"] = wheels.lacking(ask[name], limit)
            image["base"] = debian_mirror.base(ask[name])
    return found
