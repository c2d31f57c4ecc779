# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses an image of the store that all users of a node share. Reads only. Standard library, Python 3.8.

A container has the image's layers in its root, an overlay, which the kernel names in the mount table of whoever is in
it; and a job's own storage names them also while no container of it runs, because its next one is to find them.
"""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

from ansible.module_utils import image_store

#: Where each job keeps its containers.
JOBS = "/var/lib/clusterctl/jobs"
#: Bytes of a job's list that are read: thousands of containers, of which each has less than 1 KB.
LIST_LIMIT = 4 << 20

#: A layer in an overlay's options: by its short name, or its own.
_LAYER = re.compile(r"(?:^|[/:=,])(?:l/([A-Z0-9]{26})|([0-9a-f]{64})/diff)")


def layers(store):
    """Return the layers of each image of the store, by the image's id."""
    below = {entry.get("id"): entry.get("parent", "") for entry in image_store.listed(store, "layers")}
    found = {}
    for image in image_store.listed(store, "images"):
        chain, layer = set(), image.get("layer", "")
        for top in (layer, *(image.get("mapped-layers") or ())):
            while top and top not in chain:
                chain.add(top)
                top = below.get(top, "")
        found[image.get("id")] = chain
    return found


def of_overlays(store, proc="/proc"):
    """Return the layers in roots of containers, each with the processes that are in such a one."""
    short = {}
    links = Path(store) / "overlay" / "l"
    for link in links.iterdir() if links.is_dir() else ():
        try:
            short[link.name] = os.readlink(link).split("/")[1]  # noqa: PTH115 - Python 3.8
        except (OSError, IndexError):
            continue
    found: dict = {}
    seen = set()
    for pid in (place.name for place in Path(proc).iterdir() if place.name.isdigit()):
        try:
            space = os.readlink(f"{proc}/{pid}/ns/mnt")  # noqa: PTH115
            if space in seen:
                continue
            text = Path(f"{proc}/{pid}/mountinfo").read_text(errors="replace")
        except OSError:
            continue  # it has ended
        seen.add(space)
        for line in text.splitlines():
            if " - overlay " in line or " - fuse.fuse-overlayfs " in line:
                for link, layer in _LAYER.findall(line):
                    found.setdefault(layer or short.get(link, ""), set()).add(job_of(pid, proc))
    return found


def job_of(pid, proc="/proc"):
    """Return the job that a process says it is of, else the process."""
    try:
        environment = Path(f"{proc}/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        environment = []
    jobs = [one[13:].decode() for one in environment if re.fullmatch(rb"SLURM_JOB_ID=\d{1,10}", one)]
    return f"job {jobs[0]}" if jobs else f"process {pid}"


def of_user(directory, *path):
    """Return what a file says that an ordinary user may have put there, below a directory that is root's.

    Root reads it: nothing is followed, waited for or read without end. What is no small regular file is an OSError.
    """
    at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in path:
            below = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=at)
            os.close(at)
            at = below
        if not stat.S_ISREG(os.fstat(at).st_mode):
            raise OSError(f"{'/'.join(path)} is no file")
        with os.fdopen(os.dup(at), "rb") as file:
            content = file.read(LIST_LIMIT + 1)
    finally:
        os.close(at)
    if len(content) > LIST_LIMIT:
        raise OSError(f"{'/'.join(path)} has more than {LIST_LIMIT} bytes")
    return content


def of_jobs(directory=JOBS):
    """Return layers and images that jobs' storages name, each with the jobs."""
    found: dict = {}
    for job in Path(directory).iterdir() if Path(directory).is_dir() else ():
        for kind in ("layers", "containers"):
            for file in (f"{kind}.json", f"volatile-{kind}.json"):
                try:
                    entries = json.loads(of_user(directory, job.name, "storage", f"overlay-{kind}", file))
                    named = {entry.get(key) for entry in entries for key in ("parent", "image", "layer")}
                except (OSError, ValueError, AttributeError, TypeError, RecursionError):
                    # Who spoils it keeps nothing from being removed, and does so to the own job alone.
                    continue
                for name in named - {None, ""}:
                    found.setdefault(name, set()).add(f"job {job.name}")
    return found


def users(store, images, proc="/proc", jobs=JOBS):
    """Return who uses each of these images, given by id: jobs, else processes."""
    if not images:
        return {}
    mounted, named, parts = of_overlays(store, proc), of_jobs(jobs), layers(store)
    found = {}
    for image in images:
        who = set(named.get(image, ()))
        for layer in own_layers(parts, image):
            who |= mounted.get(layer, set()) | named.get(layer, set())
        found[image] = sorted(who)
    return found


def own_layers(parts, image):
    """Return the layers that no other image has: those are not removed with it."""
    others = set().union(*(layers for other, layers in parts.items() if other != image))
    return parts.get(image, set()) - others


def ours(repository):
    """Return what the reference by digest of an image of jobs is like, wherever the registry is."""
    return re.compile(rf"/{re.escape(repository)}/[^@]+@sha256:[0-9a-f]{{64}}$")


def stored(store, repository):
    """Return the cluster's images of jobs in the store, each by ``id`` with its ``names``.

    ``repository`` is what their place in the registry begins with, below its project.
    """
    named = ours(repository)
    return [
        {"id": str(image.get("id")), "names": [str(name) for name in image.get("names") or ()]}
        for image in image_store.listed(store, "images")
        if any(named.search(str(name)) for name in image.get("names") or ())
    ]


def collect(ask, proc="/proc", jobs=JOBS):
    """Return what is ``stored``, and of each what it has too much, where ``ask`` names what is ``wanted``.

    ``wanted`` has the references, by digest, and the names that are to be there. ``untag`` are an image's other names;
    ``remove`` says that nothing of it is wanted, and ``used``, by whom it is used all the same, that it has to stay,
    with its names: later steps of that job ask for them.
    The same image may be somebody else's, too, by a digest at another place: that one stays.
    """
    found, wanted, named = stored(ask["store"], ask["repository"]), set(ask["wanted"]), ours(ask["repository"])
    for image in found:
        surplus = [name for name in image["names"] if name not in wanted]
        image["untag"] = [name for name in surplus if "@" not in name or named.search(name)]
        others = any("@" in name and not named.search(name) for name in image["names"])
        image["old"] = not others and not any("@" in name for name in set(image["names"]) & wanted)
    asked = [image["id"] for image in found if image["old"] or image["untag"]]
    using = users(ask["store"], asked, proc, jobs)
    for image in found:
        image["used"] = using.get(image["id"], [])
        image["remove"] = image["old"] and not image["used"]
        if image["used"]:
            image["untag"] = []
        if image.pop("old"):
            # By the digest it is known as ours when it is not used any more.
            image["untag"] = [name for name in image["untag"] if "@" not in name]
    return found
