# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the images of jobs are made of, and whether the registry has them. Reads only. Standard library, Python 3.8.

Files on the controller count by name, size and time: images have gigabytes, and nobody changes one without its time.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import re
import select
import signal
import stat
import time
from pathlib import Path

from ansible.module_utils import image_recipe, image_registry, machine_mounts
from ansible.module_utils.machine_hardware import read

#: Bytes of a file that are told: a tar's first header.
HEAD = 512
#: Bytes of a Containerfile that are read.
TEXT = 1 << 20
#: Seconds in which a disk says what is in a directory, and in which it does so where it is read to be built from.
SECONDS, PATIENTLY = 10, 300
RECIPES = ("Containerfile", "Dockerfile")
#: What an image is built upon, or copies from.
_NAMED = re.compile(r"(?im)^\s*FROM\s+(?:--\S+\s+)*(\S+)|--from=(\S+)")
#: What a Containerfile calls its own stages.
_STAGE = re.compile(r"(?im)^\s*FROM\s.*\sAS\s+(\S+)\s*$")


def listing(path):
    """Return names, sizes and times of a file, or of all that is below a directory.

    Raises:
        OSError: it is not there, or cannot be read, or a directory below it cannot.
    """

    def refused(error):
        raise error

    path = Path(path)
    if not path.is_dir():
        state = path.stat()
        return [["", state.st_size, state.st_mtime_ns]]
    found = []
    for place, folders, files in os.walk(path, onerror=refused):
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


def _named(text):
    """Return where a Containerfile names images, none of its own stages before, and their full names."""
    stages = [(stage[1].lower(), stage.start()) for stage in _STAGE.finditer(text)]
    for found in _NAMED.finditer(text):
        name = found[1] or found[2]
        own = any(name.lower() == stage and place < found.start() for stage, place in stages)
        if "$" not in name and not own:
            yield found.span(1 if found[1] else 2), full_name(name)


def bases(text, known):
    """Return those of the ``known`` names, in full, from which a Containerfile of this text starts or copies."""
    return [name for name in dict.fromkeys(name for _, name in _named(text)) if name in known]


def rebased(text, references):
    """Return a Containerfile that starts and copies from ``references``, by full name, where it says those names."""
    parts, end = [], 0
    for (first, last), name in _named(text):
        parts += [text[end:first], references.get(name, text[first:last])]
        end = last
    return "".join(parts) + text[end:]


def _begun(work):
    """Begin work in a process of its own; return that and where its answer comes, as JSON."""
    answer, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        return child, answer
    try:
        # One that cannot be ended is left behind: it must hold nothing for whose end anybody waits.
        null = os.open(os.devnull, os.O_RDWR)
        for handle in (0, 1, 2):
            os.dup2(null, handle)
        with os.fdopen(write, "w") as out:
            json.dump(work(), out)
    finally:
        os._exit(0)


def _answer(stream, end):
    """Return what is told until ``end``, or None."""
    chunks: list = []
    while select.select([stream], [], [], max(0, end - time.monotonic()))[0]:
        chunk = os.read(stream, 1 << 16)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
    return None


def apart(works, seconds):
    """Return by key what each of these does, or None where it has not ended within so many seconds.

    Files may be on a server's disk, and a server that is away holds whoever asks: each is a process of its own,
    which is ended at the limit and not waited for.
    """
    begun = {key: _begun(work) for key, work in works.items()}
    end, found = time.monotonic() + seconds, {}
    for key, (child, stream) in begun.items():
        told = _answer(stream, end)
        os.close(stream)
        try:
            found[key] = None if told is None else json.loads(told)
        except ValueError:
            found[key] = {"error": "it could not be read"}
        if told is None:
            os.kill(child, signal.SIGKILL)
            time.sleep(0.05)
        os.waitpid(child, os.WNOHANG if told is None else 0)
    return found


def _looked(image):
    """Return what is at an image's path: ``files``, the ``text`` of a Containerfile, and what ``sources`` tells."""
    path = Path(image["source"])
    try:
        state = path.stat()
        folder, file = stat.S_ISDIR(state.st_mode), path
        if not folder and not stat.S_ISREG(state.st_mode):
            return {"error": "it is neither a file nor a directory"}
        kind, head, text, recipe = "directory" if folder else "file", b"", "", False
        if image["kind"] == "containerfile":
            file = containerfile(path)
            recipe = file.is_file()
            text = _begin(file, TEXT).decode("utf-8", "replace") if recipe else ""
        elif not folder:
            head = _begin(path, HEAD)
        source = {"kind": kind, "size": state.st_size, "head": head.hex(), "recipe": recipe}
        return {"source": source, "files": listing(path), "text": text}
    except OSError as error:
        return {"error": str(error.strerror)}


def _begin(path, size):
    with path.open("rb") as file:
        return file.read(size)


def look(images, seconds):
    """Return by key what is at the paths of images that are this machine's; None where that was not told in time."""
    own = [image for image in images if image["kind"] != "reference" and not image["given"]]
    return apart({image["key"]: lambda image=image: _looked(image) for image in own}, seconds)


class LateError(OSError):
    """A disk did not say in time what it has."""


def recipes(ask, there=None):
    """Return for each image, by key, a hash of all that it is made of, or an OSError: why that is not known.

    What one is built upon, of those before it in the list, is a part of it. ``there`` is what ``look`` has found.
    """
    found: dict = {}
    known: dict = {}
    there = look(ask["images"], PATIENTLY) if there is None else there
    for image in ask["images"]:
        parts = {name: image[name] for name in ("stored", "kind", "revision")}
        try:
            told = _found(there, image)
            if image["kind"] == "reference":
                parts["reference"] = image["source"]
            else:
                parts["files"] = image["content"] if image["given"] else told["files"]
            if image["kind"] == "containerfile":
                upon = {name: known[name] for name in bases(image["text"] if image["given"] else told["text"], known)}
                for error in upon.values():
                    if isinstance(error, OSError):
                        raise error
                parts["bases"] = upon
        except OSError as error:
            found[image["key"]] = known[image["stored"]] = error
            continue
        text = json.dumps({**parts, "machine": platform.machine()}, sort_keys=True)
        found[image["key"]] = known[image["stored"]] = hashlib.sha256(text.encode()).hexdigest()
    return found


def _found(there, image):
    """Return what is at an image's path; nothing where it has none on this machine.

    Raises:
        OSError: it cannot be read; LateError: nothing is known.
    """
    if image["key"] not in there:
        return {}
    told = there[image["key"]]
    if told is None:
        raise LateError(errno.ETIMEDOUT, "it did not answer")
    if "error" in told:
        raise OSError(errno.EIO, told["error"])
    return told


def remembered(ask, image, recipe):
    """Return what is remembered of an image: provision asks for it, and what builds it writes it down."""
    name = f"{ask['repository']}/{image['repository']}"
    return image_recipe.Remembered({**ask["store"], "name": name, "recipe": recipe})


def states(ask, patience=1, there=None):
    """Return of each image, by key, ``reference`` and ``problem``, as image_recipe.state tells them.

    Of one that is made of what was not told in time nothing is returned.
    """
    limit, found = 5 * patience, {}

    def has(image, digest):
        return image_registry.within(limit, lambda: image_registry.has(image, digest, limit))

    made = recipes(ask, there)
    for image in ask["images"]:
        recipe = made[image["key"]]
        if isinstance(recipe, LateError):
            continue
        if isinstance(recipe, OSError):
            found[image["key"]] = {"reference": "", "problem": f"{image['source']}: {recipe.strerror}"}
            continue
        name = f"{ask['repository']}/{image['repository']}"
        found[image["key"]] = image_recipe.state({**ask["store"], "name": name, "recipe": recipe}, has)
    return found


def sources(there, images=(), mounts=(), root="/"):
    """Return of each path that is the controller's, by the image's key, what is there: kind, size and first bytes.

    ``there`` is what ``look`` has found, of what was not told in time nothing. ``mounts`` are where the inventory has
    file systems mounted: of a path that is absent below one that is not mounted yet, that is told as ``unmounted``.
    """
    mounted = machine_mounts.mounted(read(root, "proc/self/mountinfo")) if mounts else {}
    missing = [place for place in mounts if place not in mounted]
    paths = {image["key"]: image["source"] for image in images}
    found = {}
    for key, told in there.items():
        if told is None:
            continue
        found[key] = told["source"] if "source" in told else {"error": told["error"]}
        above = [place for place in missing if paths.get(key, "").startswith(place.rstrip("/") + "/")]
        if "error" in told and above:
            found[key]["unmounted"] = max(above, key=len)
    return found


def garbage(store):
    """Return the mark that says that the registry has forgotten images whose layers may still be there."""
    return Path(store["cache"]) / "registry-garbage"


def kept(ask):
    """Return the images of this cluster that its own registry keeps, by digest, without the registry's name."""
    below = Path(ask["store"]["cache"]) / "registry/docker/registry/v2/repositories"
    project = below / ask["store"]["push"].partition("/")[2]
    revisions = (project / ask["repository"]).rglob("_manifests/revisions/sha256/*/link")
    return sorted(f"{link.parents[4].relative_to(project)}@sha256:{link.parent.name}" for link in revisions)
