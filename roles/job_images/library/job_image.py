#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have one image of job_images in the cluster's registry: built, read from an archive, or copied from another registry.

Why not C(community.docker.docker_image_build), C(docker_image_load) and C(docker_image_pull): they ask whether there is
an image of this name, not whether it is of what is declared now, keep no digest, and unpack what is only to go on to
the registry. skopeo copies it there, and says first for which machines it is and how large.
"""

from __future__ import annotations

import fcntl
import json
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

    def __init__(self, params, login):
        self.params, self.login = params, login
        self.image = next(one for one in params["images"] if one["key"] == params["key"])
        self.deadline = time.monotonic() + params["seconds"]
        recipe = job_image_sources.recipes(params)[params["key"]]
        if isinstance(recipe, OSError):
            raise ImageError(f"{self.image['source']}: {recipe.strerror}")
        self.known = job_image_sources.remembered(params, self.image, recipe)
        tag = f"{self.image['stored'].rpartition(':')[2][:60]}-{recipe[:16]}"
        self.target = f"{params['store']['push']}/{params['repository']}/{self.image['repository']}:{tag}"
        carried = Path(params["carried"]) / params["key"]
        single = carried / "source"
        self.path = (
            (carried if self.image.get("directory") else single) if self.image["given"] else Path(self.image["source"])
        )

    def asked(self, *words):
        """Ask skopeo, with the image's logins."""
        return skopeo.ask(words, self.environment())

    def environment(self):
        """Return what programs get: where the logins are, for Docker and skopeo alike."""
        place = {"DOCKER_CONFIG": self.login, "REGISTRY_AUTH_FILE": f"{self.login}/config.json"}
        return {
            **place,
            "DOCKER_BUILDKIT": "0",
            "LC_ALL": "C.UTF-8",
            "TMPDIR": self.params["store"]["cache"],
        }

    def follow(self, command, reader, what, host, stdin=None):
        """Run a command until the image's time is over, telling how far it is; return what it said."""
        left = max(1, int(self.deadline - time.monotonic()))
        told = f"image {self.image['name']}: {what}"
        code, said = telling.follow(bounded(command, left), reader, told, stdin, self.environment())
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
        cache = self.params["store"]["cache"]
        if problem := image_space.problem(size, cache):
            raise ImageError(f"it does not fit: {problem}. Nothing was copied")
        copied = set()

        def read(line):
            found = re.match(r"Copying blob (?:sha256:)?([0-9a-f]+)", line)
            copied.update([found[1]] if found else [])
            return f"{len(copied)} layers, {size / 1e9:.1f} GB in all" if copied else ""

        with tempfile.NamedTemporaryFile("r", dir=cache) as digest:
            words = ["copy", "--retry-times", "2", "--digestfile", digest.name, source, f"docker://{self.target}"]
            self.follow([*skopeo.COMMAND, *words], read, f"copy from {source.partition(':')[2].lstrip('/')}", host)
            return digest.read().strip()

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
            machines = {one.get("platform", {}).get("architecture"): one["digest"] for one in manifests}
            self.require_machine(machines)
            bare = re.sub(r"(@sha256:[0-9a-f]{64}|:[A-Za-z0-9_][A-Za-z0-9_.-]*)+$", "", name)
            code, text, problem = self.asked("inspect", "--raw", f"docker://{bare}@{machines[here]}")
        elif code == 0:
            code, config, problem = self.asked("inspect", "--config", source)
            if code == 0:
                self.require_machine({json.loads(config).get("architecture")})
        if code != 0:
            why = skopeo.cause(problem, host) or ("it does not answer from here" if code is None else "")
            raise ImageError(f"{name} cannot be had: {skopeo.last(problem)}" + (f". {host}: {why}" if why else ""))
        return self.copy(source, sum(int(layer.get("size", 0)) for layer in json.loads(text).get("layers") or ()), host)

    def archive(self):
        """Copy it from an archive of docker save, or of OCI's layout."""
        said = []
        for kind in ("docker-archive", "oci-archive"):
            code, config, problem = self.asked("inspect", "--config", f"{kind}:{self.path}")
            if code == 0:
                self.require_machine({json.loads(config).get("architecture")})
                return self.copy(f"{kind}:{self.path}", self.path.stat().st_size, "the cluster's registry")
            said.append(skopeo.last(problem))
        several = next((one for one in said if "expected 1 item" in one or "more than one image" in one), "")
        why = "it holds several images: save one of them" if several else f"it is no archive of an image: {said[0]}"
        raise ImageError(f"{self.image['source']}: {why}")

    def containerfile(self):
        """Build it, upon earlier ones of job_images where it names them, and push it."""
        file = job_image_sources.containerfile(self.path)
        names = self.bases(file.read_text(errors="replace"))
        # The classic builder is in the engine itself: no plugin has to be there. A build sees what the machine sees.
        build = ["docker", "build", "--network", "host", "--force-rm", "--tag", self.target]
        try:
            if self.path.is_dir():
                said = self.built([*build, "--file", str(file), str(self.path)], None)
            else:
                with file.open("rb") as stream:
                    said = self.built([*build, "-"], stream)
        finally:
            for name in names:
                run(["docker", "image", "rm", name], skopeo.ASK)
        look = ["docker", "image", "inspect", "--format", "{{.Size}} {{.Architecture}}", self.target]
        code, said = run(look, skopeo.ASK)
        if code != 0:
            raise ImageError(f"what was built is not there: {said.strip()}")
        size = said.split()
        self.require_machine({size[1]})
        if problem := image_space.problem(int(size[0]), self.params["store"]["cache"]):
            raise ImageError(f"it does not fit: {problem}. Nothing was pushed")
        said = self.follow(["docker", "push", self.target], telling.Layers(), "push", "the cluster's registry")
        found = re.search(r"digest: (sha256:[0-9a-f]{64})", said)
        return found[1] if found else ""

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

    def bases(self, text):
        """Give the engine those earlier images, under the names that a Containerfile has for them; return these."""
        made, names = job_image_sources.recipes(self.params), []
        before = self.params["images"][: self.params["images"].index(self.image)]
        for image in before:
            if not job_image_sources.bases(text, [image["stored"]]):
                continue
            known = job_image_sources.remembered(self.params, image, made[image["key"]])
            reference = known.reference(known.built())
            self.follow(
                ["docker", "pull", reference], telling.Layers(), f"its base {image['name']}", "the cluster's registry"
            )
            name = re.sub("^localhost/", "", image["stored"])
            code, said = run(["docker", "tag", reference, name], skopeo.ASK)
            if code != 0:
                raise ImageError(f"its base {image['name']}: {said.strip()}")
            names += [name, reference]
        return names

    def make(self):
        """Have it in the registry, and remember it; return its digest."""
        self.known.record.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        digest = getattr(self, self.image["kind"])()
        if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
            raise ImageError("the registry named no digest")
        facts = {"digest": digest, "recipe": self.known.recipe, "registry": self.params["store"]["push"]}
        new = self.known.record.with_suffix(".new")
        new.write_text(json.dumps({**facts, "image": self.image["stored"]}), encoding="utf-8")
        new.replace(self.known.record)
        return digest


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
    # In memory, and gone with this process.
    directory = tempfile.mkdtemp(dir="/run", prefix="clusterctl-login-")
    try:
        skopeo.login(directory, params["logins"])
        image = Image(params, directory)
        digest = image.known.known()
        if digest is None:
            with (Path(params["store"]["cache"]) / "images.lock").open("w", encoding="utf-8") as lock:
                # Nobody collects what is only half there.
                fcntl.flock(lock, fcntl.LOCK_EX)
                digest, changed = image.make(), True
    except (ImageError, image_registry.RegistryError, OSError, ValueError) as error:
        module.fail_json(msg=f"job_images: {name}: {error}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    module.exit_json(changed=changed, reference=image.known.reference(digest))


if __name__ == "__main__":
    main()
