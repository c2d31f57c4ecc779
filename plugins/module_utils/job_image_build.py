# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build an image of job_images from its Containerfile, and push it, by Docker. Standard library, Python 3.8."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from pathlib import Path

from ansible.module_utils import job_image_sources, skopeo, telling
from ansible.module_utils.machine_commands import run


class ImageError(Exception):
    """What could not be done."""


def machine(said):
    """Return for which machine an image is: its architecture, with the system before it where that is not Linux."""
    kind, system = said.get("architecture") or "", said.get("os") or "linux"
    return kind if system == "linux" else f"{system}/{kind}"


def containerfile(image):
    """Build it, upon earlier ones of job_images where it names them, and push it."""
    file = job_image_sources.containerfile(image.path)
    text = file.read_text(encoding="utf-8", errors="surrogateescape")
    place = context(image) if image.path.is_dir() else None
    # The classic builder is in the engine itself: no plugin has to be there. A build sees what the machine sees.
    build = ["docker", "build", "--network", "host", "--force-rm", "--tag", image.target]
    build += [word for name in image.proxies for word in ("--build-arg", name)]
    if image.image["revision"] > made_before(image):
        build += ["--no-cache", "--pull"]
    references: dict = {}
    try:
        bases(image, text, references)
        if references:
            file = Path(image.scratch) / "Containerfile"
            # By digest, so that no name in the engine is taken from anybody.
            rebased = job_image_sources.rebased(text, references)
            file.write_text(rebased, encoding="utf-8", errors="surrogateescape")
        if place:
            built(image, [*build, "--file", str(file), str(place)], None)
        else:
            with file.open("rb") as stream:
                built(image, [*build, "-"], stream)
    finally:
        for reference in references.values():
            run(["docker", "image", "rm", reference], skopeo.ASK, environment=image.environment())
    look = ["docker", "image", "inspect", "--format", "{{.Size}} {{.Architecture}} {{.Os}}", image.target]
    code, said = run(look, skopeo.ASK, environment=image.environment())
    if code != 0:
        raise ImageError(f"what was built is not there: {said.strip()}")
    size = said.split()
    image.require_machine({machine({"architecture": size[1], "os": size[2]})})
    # Only now is it known: who builds it decides how large it becomes.
    image.require_room(int(size[0]), "pushed")
    said = image.follow(["docker", "push", image.target], telling.Layers(), "push", "the cluster's registry")
    found = re.search(r"digest: (sha256:[0-9a-f]{64})", said)
    return found[1] if found else ""


def context(image):
    """Return what a build sees: the directory, or a copy of it without what git keeps of its history."""
    if not any(".git" in [*folders, *files] for _, folders, files in os.walk(image.path)):
        return image.path
    image.require_room(sum(size for _, size, _ in job_image_sources.listing(image.path)), "built")
    copy = Path(image.scratch) / "context"
    shutil.copytree(image.path, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    return copy


def made_before(image):
    """Return the highest revision of which this image was made here, 1 where none is known."""
    found = [1]
    for record in image.known.record.parent.glob("*.json"):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            facts = json.loads(record.read_text(encoding="utf-8"))
            found += [int(facts["revision"])] if facts["image"] == image.image["stored"] else []
    return max(found)


def built(image, command, stdin):
    """Run the build; say what base images are to be, where one cannot be had."""
    try:
        return image.follow(command, telling.Build(), "build", "", stdin)
    except ImageError as error:
        end = str(error).splitlines()[-1]
        if re.search(r"pull access denied|registry-1\.docker\.io|manifest .* not found|unauthorized|no such host", end):
            own = "declare its base image in job_images before it (archive or reference), and write FROM its NAME"
            login = "job_images_logins, where its registry asks for a password"
            raise ImageError(f"{error}\nIts base image cannot be had: {own}; or {login}") from None
        raise


def bases(image, text, references):
    """Give the engine the earlier images that a Containerfile names; note each in ``references``."""
    made = job_image_sources.recipes(image.params)
    before = image.params["images"][: image.params["images"].index(image.image)]
    for other in before:
        if not job_image_sources.bases(text, [other["stored"]]):
            continue
        known = job_image_sources.remembered(image.params, other, made[other["key"]])
        if not known.built():
            raise ImageError(f"its base {other['name']} is not in the registry: mend that one first")
        reference = references[other["stored"]] = known.reference(known.built())
        image.follow(
            ["docker", "pull", reference], telling.Layers(), f"its base {other['name']}", "the cluster's registry"
        )
