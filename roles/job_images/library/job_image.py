#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have one image of job_images in the cluster's registry: built, read from an archive, or copied from another registry.

Why not C(community.docker.docker_image_build), C(docker_image_load) and C(docker_image_pull): they ask whether there
is an image of this name, not whether it is of what is declared now, keep no digest, and unpack what is only to go on
to the registry. skopeo copies it there, and says first for which machines it is and how large. No figure: capability,
as none of them goes from registry to registry.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import platform
import re
import shutil
import tempfile
import time
from pathlib import Path

from ansible.module_utils import (
    image_archive,
    image_registry,
    image_space,
    job_image_build,
    job_image_sources,
    site_network,
    skopeo,
    telling,
)
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.job_image_build import ImageError
from ansible.module_utils.machine_commands import bounded

DOCUMENTATION = """
module: job_image
short_description: Have one image of job_images in the registry
options:
  images: {type: list, elements: dict, required: true, description: "All of them, as lookup('declared', 'job_images')."}
  key: {type: str, required: true, description: Which of them.}
  repository: {type: str, required: true, description: Where they are in the registry, below its project.}
  store: {type: dict, required: true, description: "Where images are: C(push), C(pull), C(cache)."}
  carried: {type: path, required: true, description: "Where that is which comes with the inventory, by key."}
  logins: {type: dict, default: {}, description: "C(username) and C(password) by registry."}
  seconds: {type: int, default: 3600, description: How long it may take.}
"""

#: Docker's word for machines as this one.
HERE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


class Image:
    """One image that is to be in the registry."""

    def __init__(self, params):
        self.params = params
        #: Where the logins are, and where programs put what they need on the way: see places().
        self.login = self.scratch = ""
        self.proxies = site_network.proxies()
        self.image = next(one for one in params["images"] if one["key"] == params["key"])
        self.deadline = time.monotonic() + params["seconds"]
        recipe = job_image_sources.recipes(params)[params["key"]]
        if isinstance(recipe, OSError):
            raise ImageError(f"{self.image['source']}: {recipe.strerror}")
        self.known = job_image_sources.remembered(params, self.image, recipe)
        tag = f"{self.image['stored'].rpartition(':')[2][:60]}-{recipe[:16]}"
        self.target = f"{params['store']['push']}/{params['repository']}/{self.image['repository']}:{tag}"
        carried = Path(params["carried"]) / self.image["place"]
        single = carried / "source"
        self.path = (
            (carried if self.image.get("directory") else single) if self.image["given"] else Path(self.image["source"])
        )

    def asked(self, *words, seconds=skopeo.ASK):
        """Ask skopeo, with the image's logins."""
        return skopeo.ask(self.unpacking(words), self.environment(), seconds)

    def unpacking(self, words):
        """Return skopeo's words with where it unpacks archives: it knows no TMPDIR."""
        return ["--tmpdir", self.scratch, *words]

    def environment(self):
        """Return what programs get: where the logins are, of Docker and of skopeo."""
        place = {"DOCKER_CONFIG": self.login, "REGISTRY_AUTH_FILE": f"{self.login}/auth.json"}
        return {**self.proxies, **place, "DOCKER_BUILDKIT": "0", "LC_ALL": "C.UTF-8", "TMPDIR": self.scratch}

    def left(self):
        """Return how many seconds the image still has."""
        return max(1, int(self.deadline - time.monotonic()))

    def follow(self, command, reader, what, host, stdin=None):
        """Run a command until the image's time is over, telling how far it is; return what it said."""
        told = f"image {self.image['name']}: {what}"
        code, said = telling.follow(bounded(command, self.left()), reader, told, stdin, self.environment())
        if code in (124, 137):
            raise ImageError(f"{what}: not done within {self.params['seconds']} s: job_images_timeout")
        if code:
            if not host:  # a program of the image's own may have said anything
                raise ImageError("\n".join([f"{what} failed with {code}", *said.splitlines()[-20:]]))
            why = skopeo.cause(said, host)
            raise ImageError(f"{what}: {skopeo.last(said)}" + (f". {host}: {why}" if why else ""))
        return said

    def copy(self, source, size, host):
        """Copy an image into the registry; return its digest."""
        copied = set()

        def read(line):
            found = re.match(r"Copying blob (?:sha256:)?([0-9a-f]+)", line)
            copied.update([found[1]] if found else [])
            return f"{len(copied)} layers, {size / 1e9:.1f} GB in all" if copied else ""

        with tempfile.NamedTemporaryFile("r", dir=self.scratch) as digest:
            words = ["copy", "--retry-times", "2", "--digestfile", digest.name, source, f"docker://{self.target}"]
            self.follow(
                [*skopeo.COMMAND, *self.unpacking(words)],
                read,
                f"copy from {source.partition(':')[2].lstrip('/')}",
                host,
            )
            return digest.read().strip()

    def require_room(self, size, undone="copied"):
        """Refuse what does not fit on the controller's disk."""
        if problem := image_space.problem(size, self.params["store"]["cache"]):
            raise ImageError(f"it does not fit: {problem}. Nothing was {undone}")

    def require_machine(self, found):
        """Refuse an image for other machines than those of the cluster: all are as the controller."""
        if HERE not in found:
            said = ", ".join(sorted(filter(None, found))) or "an unknown architecture"
            raise ImageError(f"it is for {said}, and the cluster's machines are {HERE}: name one for these")

    def reference(self):
        """Copy it from another registry."""
        name = self.image["source"]
        host, source = name.partition("/")[0], f"docker://{name}"
        code, text, problem = self.asked("inspect", "--raw", source)
        if code == 0 and (manifests := json.loads(text).get("manifests")):
            machines: dict = {}
            for one in manifests:  # of several variants of a processor the first is the plain one
                machines.setdefault(job_image_build.machine(one.get("platform") or {}), one["digest"])
            self.require_machine(machines)
            bare = re.sub(r"(@sha256:[0-9a-f]{64}|:[A-Za-z0-9_][A-Za-z0-9_.-]*)+$", "", name)
            code, text, problem = self.asked("inspect", "--raw", f"docker://{bare}@{machines[HERE]}")
        elif code == 0:
            code, config, problem = self.asked("inspect", "--config", source)
            if code == 0:
                self.require_machine({job_image_build.machine(json.loads(config))})
        if code != 0:
            why = skopeo.cause(problem, host) or ("it does not answer from here" if code is None else "")
            raise ImageError(f"{name} cannot be had: {skopeo.last(problem)}" + (f". {host}: {why}" if why else ""))
        size = sum(int(layer.get("size", 0)) for layer in json.loads(text).get("layers") or () if not self.has(layer))
        self.require_room(size)
        return self.copy(source, size, host)

    def has(self, layer):
        """Return whether the controller's own registry has a layer, of whichever image."""
        kind, _, digest = str(layer.get("digest", "")).partition(":")
        blobs = Path(self.params["store"]["cache"]) / "registry/docker/registry/v2/blobs"
        return bool(digest) and (blobs / kind / digest[:2] / digest / "data").is_file()

    def archive(self):
        """Copy it from an archive of docker save, or of OCI's layout."""
        said = []
        size, path = self.path.stat().st_size, self.unpacked()
        # What skopeo unpacks by itself, and all of OCI's in any case, is on the disk besides the registry's.
        more = path.stat().st_size if image_archive.plain(path) else size * (image_space.ON_DISK - 1)
        for kind in ("docker-archive", "oci-archive"):
            self.require_room(size + (0 if image_archive.plain(path) and kind == "docker-archive" else more))
            telling.tell(f"image {self.image['name']}: read {self.image['source']}, {size / 1e9:.1f} GB")
            source = f"{kind}:{path}"
            code, config, problem = self.asked("inspect", "--config", source, seconds=self.left())
            if code == 0:
                self.require_machine({job_image_build.machine(json.loads(config))})
                return self.copy(source, size, "the cluster's registry")
            if code is None:
                raise ImageError(
                    f"{self.image['source']}: not read within {self.params['seconds']} s: job_images_timeout"
                    if problem
                    else "there is no skopeo on the controller: clusterctl provision slurm installs it"
                )
            if "no space left" in problem:
                raise ImageError(f"{self.image['source']}: {skopeo.last(problem)}. {skopeo.cause(problem, '')}")
            said.append(skopeo.last(problem))
        several = next((one for one in said if "expected 1 item" in one or "more than one image" in one), "")
        # An archive of OCI's has none of docker save's lists: then the other one's words count.
        words = said[1] if "manifest.json: file does not exist" in said[0] and "index.json" not in said[1] else said[0]
        why = "it holds several images: save one of them" if several else f"it is no archive of an image: {words}"
        raise ImageError(f"{self.image['source']}: {why}")

    def unpacked(self):
        """Return the archive as a tar, unpacked where that is to be done before skopeo reads it."""
        size, target = self.path.stat().st_size, Path(self.scratch) / "archive.tar"

        def check(more):
            self.require_room(size + more)
            if time.monotonic() > self.deadline:
                raise ImageError(f"unpack: not done within {self.params['seconds']} s: job_images_timeout")

        with telling.Pace(lambda: f"image {self.image['name']}: unpack {self.image['source']}"):
            try:
                return image_archive.unpacked(self.path, target, check)
            except ValueError as error:
                raise ImageError(f"{self.image['source']} is not whole, and cannot be unpacked: {error}") from error

    def containerfile(self):
        """Build it, upon earlier ones of job_images where it names them, and push it."""
        return job_image_build.containerfile(self)

    def make(self):
        """Have it in the registry, and remember it; return its digest."""
        self.known.record.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        digest = getattr(self, self.image["kind"])()
        if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
            raise ImageError("the registry named no digest")
        facts = {"digest": digest, "recipe": self.known.recipe, "registry": self.params["store"]["push"]}
        facts["revision"] = self.image["revision"]
        new = self.known.record.with_suffix(".new")
        new.write_text(json.dumps({**facts, "image": self.image["stored"]}), encoding="utf-8")
        new.replace(self.known.record)
        return digest


@contextlib.contextmanager
def places(image, params, run_place="/run"):
    """Give an image's programs their directories, removed afterwards, as is what killed runs have left.

    Who calls holds the lock: nobody else uses any of them. The logins are in memory, and gone with this process.
    """
    cache, login = Path(params["store"]["cache"]), "clusterctl-login-"
    for place in [*cache.glob("job-image-*"), *Path(run_place).glob(f"{login}*")]:
        shutil.rmtree(place, ignore_errors=True)
    in_memory = tempfile.TemporaryDirectory(dir=run_place, prefix=login)
    with in_memory as image.login, tempfile.TemporaryDirectory(dir=cache, prefix="job-image-") as image.scratch:
        skopeo.login(image.login, params["logins"])
        yield


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "images": {"type": "list", "elements": "dict", "required": True},
            "key": {"type": "str", "required": True},
            "repository": {"type": "str", "required": True},
            "store": {"type": "dict", "required": True},
            "carried": {"type": "path", "required": True},
            "logins": {"type": "dict", "default": {}, "no_log": True},
            "seconds": {"type": "int", "default": 3600},
        },
    )
    params, changed = module.params, False
    name = next((one["name"] for one in params["images"] if one["key"] == params["key"]), params["key"])
    try:
        image = Image(params)
        digest = image.known.known()
        if digest is None:
            with (Path(params["store"]["cache"]) / "images.lock").open("w", encoding="utf-8") as lock:
                # Nobody collects what is only half there.
                fcntl.flock(lock, fcntl.LOCK_EX)
                with places(image, params):
                    digest, changed = image.make(), True
    except (ImageError, image_registry.RegistryError, OSError, ValueError) as error:
        module.fail_json(msg=f"job_images: {name}: {error}")
    module.exit_json(changed=changed, reference=image.known.reference(digest))


if __name__ == "__main__":
    main()
