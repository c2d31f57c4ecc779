#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have one image of job_images in the cluster's registry: built, read from an archive, or copied from another registry.

Why not C(community.docker.docker_image_build), C(docker_image_load) and C(docker_image_pull): they ask whether there is
an image of this name, not whether it is of what is declared now, keep no digest, and unpack what is only to go on to
the registry. skopeo copies it there, and says first for which machines it is and how large.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import re
import shutil
import tempfile
import time
from pathlib import Path

from ansible.module_utils import image_registry, image_space, job_image_sources, skopeo, telling
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.machine_commands import bounded, run

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

#: Docker's words for machines.
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


class ImageError(Exception):
    """What could not be done."""


class Image:
    """One image that is to be in the registry."""

    def __init__(self, params):
        self.params = params
        #: Where the logins are, and where programs put what they need on the way: see places().
        self.login = self.scratch = ""
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
        return {**place, "DOCKER_BUILDKIT": "0", "LC_ALL": "C.UTF-8", "TMPDIR": self.scratch}

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
        here = MACHINES.get(platform.machine(), platform.machine())
        if here not in found:
            said = ", ".join(sorted(filter(None, found))) or "an unknown architecture"
            raise ImageError(f"it is for {said}, and the cluster's machines are {here}: name one for these")

    def reference(self):
        """Copy it from another registry."""
        name = self.image["source"]
        host, source = name.partition("/")[0], f"docker://{name}"
        code, text, problem = self.asked("inspect", "--raw", source)
        if code == 0 and (manifests := json.loads(text).get("manifests")):
            here = MACHINES.get(platform.machine(), platform.machine())
            machines: dict = {}
            for one in manifests:  # of several variants of a processor the first is the plain one
                machines.setdefault(machine(one.get("platform") or {}), one["digest"])
            self.require_machine(machines)
            bare = re.sub(r"(@sha256:[0-9a-f]{64}|:[A-Za-z0-9_][A-Za-z0-9_.-]*)+$", "", name)
            code, text, problem = self.asked("inspect", "--raw", f"docker://{bare}@{machines[here]}")
        elif code == 0:
            code, config, problem = self.asked("inspect", "--config", source)
            if code == 0:
                self.require_machine({machine(json.loads(config))})
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
        size, packed = self.path.stat().st_size, not tarfile_head(self.path)
        for kind in ("docker-archive", "oci-archive"):
            # skopeo unpacks a compressed archive before it reads it, and all of OCI's in any case.
            once = {"docker-archive": 1, "oci-archive": 2}[kind]
            self.require_room(size * (image_space.ON_DISK if packed else once))
            telling.tell(f"image {self.image['name']}: read {self.image['source']}, {size / 1e9:.1f} GB")
            source = f"{kind}:{self.path}"
            code, config, problem = self.asked("inspect", "--config", source, seconds=self.left())
            if code == 0:
                self.require_machine({machine(json.loads(config))})
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

    def containerfile(self):
        """Build it, upon earlier ones of job_images where it names them, and push it."""
        file = job_image_sources.containerfile(self.path)
        text = file.read_text(encoding="utf-8", errors="surrogateescape")
        context = self.context() if self.path.is_dir() else None
        # The classic builder is in the engine itself: no plugin has to be there. A build sees what the machine sees.
        build = ["docker", "build", "--network", "host", "--force-rm", "--tag", self.target]
        if self.image["revision"] > self.made_before():
            build += ["--no-cache", "--pull"]
        references: dict = {}
        try:
            self.bases(text, references)
            if references:
                file = Path(self.scratch) / "Containerfile"
                # By digest, so that no name in the engine is taken from anybody.
                rebased = job_image_sources.rebased(text, references)
                file.write_text(rebased, encoding="utf-8", errors="surrogateescape")
            if context:
                self.built([*build, "--file", str(file), str(context)], None)
            else:
                with file.open("rb") as stream:
                    self.built([*build, "-"], stream)
        finally:
            for reference in references.values():
                run(["docker", "image", "rm", reference], skopeo.ASK, environment=self.environment())
        look = ["docker", "image", "inspect", "--format", "{{.Size}} {{.Architecture}} {{.Os}}", self.target]
        code, said = run(look, skopeo.ASK, environment=self.environment())
        if code != 0:
            raise ImageError(f"what was built is not there: {said.strip()}")
        size = said.split()
        self.require_machine({machine({"architecture": size[1], "os": size[2]})})
        # Only now is it known: who builds it decides how large it becomes.
        self.require_room(int(size[0]), "pushed")
        said = self.follow(["docker", "push", self.target], telling.Layers(), "push", "the cluster's registry")
        found = re.search(r"digest: (sha256:[0-9a-f]{64})", said)
        return found[1] if found else ""

    def context(self):
        """Return what a build sees: the directory, or a copy of it without what git keeps of its history."""
        if not any(".git" in [*folders, *files] for _, folders, files in os.walk(self.path)):
            return self.path
        self.require_room(sum(size for _, size, _ in job_image_sources.listing(self.path)), "built")
        copy = Path(self.scratch) / "context"
        shutil.copytree(self.path, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        return copy

    def made_before(self):
        """Return the highest revision of which this image was made here, 1 where none is known."""
        found = [1]
        for record in self.known.record.parent.glob("*.json"):
            with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
                facts = json.loads(record.read_text(encoding="utf-8"))
                found += [int(facts["revision"])] if facts["image"] == self.image["stored"] else []
        return max(found)

    def built(self, command, stdin):
        """Run the build; say what base images are to be, where one cannot be had."""
        try:
            return self.follow(command, telling.Build(), "build", "", stdin)
        except ImageError as error:
            end = str(error).splitlines()[-1]
            if re.search(
                r"pull access denied|registry-1\.docker\.io|manifest .* not found|unauthorized|no such host", end
            ):
                own = "declare its base image in job_images before it (archive or reference), and write FROM its NAME"
                login = "job_images_logins, where its registry asks for a password"
                raise ImageError(f"{error}\nIts base image cannot be had: {own}; or {login}") from None
            raise

    def bases(self, text, references):
        """Give the engine the earlier images that a Containerfile names; note each in ``references``."""
        made = job_image_sources.recipes(self.params)
        before = self.params["images"][: self.params["images"].index(self.image)]
        for image in before:
            if not job_image_sources.bases(text, [image["stored"]]):
                continue
            known = job_image_sources.remembered(self.params, image, made[image["key"]])
            reference = references[image["stored"]] = known.reference(known.built())
            self.follow(
                ["docker", "pull", reference], telling.Layers(), f"its base {image['name']}", "the cluster's registry"
            )

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


def machine(said):
    """Return for which machine an image is: its architecture, with the system before it where that is not Linux."""
    kind, system = said.get("architecture") or "", said.get("os") or "linux"
    return kind if system == "linux" else f"{system}/{kind}"


def tarfile_head(path):
    """Return whether a file is a plain tar, not a compressed one."""
    with path.open("rb") as stream:
        return stream.read(job_image_sources.HEAD)[257:262] == b"ustar"


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
