# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the images of jobs are made of, and whether the registry has them. Reads only. Standard library, Python 3.8.

Files on the controller count by name, size and time: images have gigabytes, and nobody changes one without its time.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from pathlib import Path

from ansible.module_utils import image_recipe, image_registry

#: Bytes of a file that are told: a tar's first header.
HEAD = 512
RECIPES = ("Containerfile", "Dockerfile")
#: What an image is built upon, or copies from.
_NAMED = re.compile(r"(?im)^\s*FROM\s+(?:--\S+\s+)*(\S+)|--from=(\S+)")


def listing(path):
    """Return names, sizes and times of a file, or of all that is below a directory.

    Raises:
        OSError: it is not there, or cannot be read.
    """
    path = Path(path)
    if not path.is_dir():
        state = path.stat()
        return [["", state.st_size, state.st_mtime_ns]]
    found = []
    for place, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in sorted(files):
            file = Path(place) / name
            state = file.lstat()
            found.append([str(file.relative_to(path)), state.st_size, state.st_mtime_ns])
    return found


def containerfile(path):
    """Return the file that says how an image is built: the path itself, or what is in that directory."""
    path = Path(path)
    return (
        next((path / name for name in RECIPES if (path / name).is_file()), path / RECIPES[0]) if path.is_dir() else path
    )


def full_name(name):
    """Return an image's name as a store has it: with a tag, and where it has no registry, as Podman's own."""
    name = name if ":" in name.rpartition("/")[2] else f"{name}:latest"
    first, slash, _ = name.partition("/")
    return name if slash and (re.search(r"[.:]", first) or first == "localhost") else f"localhost/{name}"


def bases(text, known):
    """Return those of the ``known`` names, in full, from which a Containerfile of this text starts or copies."""
    words = [full_name(first or second) for first, second in _NAMED.findall(text) if "$" not in first + second]
    return [word for word in dict.fromkeys(words) if word in known]


def recipes(ask):
    """Return for each image, by key, a hash of all that it is made of, or an OSError: why that is not known.

    What one is built upon, of those before it in the list, is a part of it.
    """
    found: dict = {}
    known: dict = {}
    for image in ask["images"]:
        parts = {name: image[name] for name in ("stored", "kind", "revision")}
        try:
            if image["kind"] == "reference":
                parts["reference"] = image["source"]
            else:
                parts["files"] = image["content"] if image["given"] else listing(image["source"])
            if image["kind"] == "containerfile":
                text = image["text"] if image["given"] else containerfile(image["source"]).read_text(errors="replace")
                parts["bases"] = {name: known[name] for name in bases(text, known)}
        except OSError as error:
            found[image["key"]] = error
            continue
        text = json.dumps({**parts, "machine": platform.machine()}, sort_keys=True)
        found[image["key"]] = known[image["stored"]] = hashlib.sha256(text.encode()).hexdigest()
    return found


def remembered(ask, image, recipe):
    """Return what is remembered of an image: provision asks for it, and what builds it writes it down."""
    name = f"{ask['repository']}/{image['repository']}"
    return image_recipe.Remembered({**ask["store"], "name": name, "recipe": recipe})


def states(ask, patience=1):
    """Return of each image, by key, ``reference`` and ``problem``, as image_recipe.state tells them."""
    limit, found = 5 * patience, {}

    def has(image, digest):
        return image_registry.within(limit, lambda: image_registry.has(image, digest, limit))

    made = recipes(ask)
    for image in ask["images"]:
        recipe = made[image["key"]]
        if isinstance(recipe, OSError):
            found[image["key"]] = {"reference": "", "problem": f"{image['source']}: {recipe.strerror}"}
            continue
        name = f"{ask['repository']}/{image['repository']}"
        found[image["key"]] = image_recipe.state({**ask["store"], "name": name, "recipe": recipe}, has)
    return found


def sources(images):
    """Return of each path that is the controller's, by the image's key, what is there: kind, size and first bytes."""
    found = {}
    for image in images:
        if image["kind"] == "reference" or image["given"]:
            continue
        path = Path(image["source"])
        try:
            recipe = image["kind"] == "containerfile" and containerfile(path).is_file()
            size = path.stat().st_size
            head = b"" if path.is_dir() else path.open("rb").read(HEAD)
            kind = "directory" if path.is_dir() else "file"
            found[image["key"]] = {"kind": kind, "size": size, "head": head.hex(), "recipe": recipe}
        except OSError as error:
            found[image["key"]] = {"error": str(error.strerror)}
    return found


def kept(ask):
    """Return the images of this cluster that its own registry keeps, by digest, without the registry's name."""
    below = Path(ask["store"]["cache"]) / "registry/docker/registry/v2/repositories"
    project = below / ask["store"]["push"].partition("/")[2]
    revisions = (project / ask["repository"]).rglob("_manifests/revisions/sha256/*/link")
    return sorted(f"{link.parents[4].relative_to(project)}@sha256:{link.parent.name}" for link in revisions)
