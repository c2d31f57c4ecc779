#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have an image of exactly one recipe in a registry, built here unless it is there already.

Why not C(community.docker.docker_image_build): it asks whether there is an image of this name, not whether it is of
this recipe, and does not keep the digest; it wants a Python library on the machine, too. This saves building what is
there. No figure: capability, as an image's name does not tell what it was made from.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path

from ansible.module_utils import checksums, debian_mirror, image_recipe, image_registry, site_network, skopeo, telling
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: cluster_image
short_description: Have an image of this recipe in the registry
description:
  - Builds an image and pushes it, unless the registry already has the image of the very same recipe.
  - Of a registry that several clusters share, the image of this recipe is copied; what is built is put there.
  - What was built is remembered by digest in C(cache)/images, so that nobody who can write to a registry's tags can
    make machines run something else.
options:
  name: {type: str, required: true, description: Name of the image.}
  suite: {type: str, default: "", description: Debian release of the base, from the package mirror.}
  base: {type: str, default: "", description: Image to start from instead.}
  mirror: {type: str, default: "", description: Mirror of that release; empty for the machine's own.}
  from:
    type: str
    default: ""
    description: Image of that release instead, with C({suite}) for its name; empty to make one from the mirror.
  files: {type: dict, required: true, description: The build's files by name; Dockerfile among them.}
  directories: {type: dict, default: {}, description: Directories of this machine that the build sees.}
  packages:
    type: list
    elements: str
    default: []
    description:
      - Python packages that the build sees in its directory C(wheels), with all that they need. pip of the suite gets
        them, configured as on this machine (pip.conf, proxies, authorities); none of that comes into an image.
  arguments: {type: dict, default: {}, description: Build arguments.}
  revision: {type: int, default: 1, description: Part of the recipe; raise it to build again.}
  push: {type: str, required: true, description: Where images are written, as the beginning of a name.}
  pull: {type: str, required: true, description: Where images are read, as the beginning of a name.}
  cache: {type: path, required: true, description: Where what was built is remembered.}
  shared: {type: str, default: "", description: Where several clusters share images, as the beginning of a name.}
"""

RETURN = """
reference: {type: str, returned: always, description: The image by digest.}
"""


#: Where a container that gets packages finds the machine's certificate authorities.
AUTHORITIES = "/run/authorities.pem"


class BuildError(Exception):
    """What could not be done, with the end of the log of what was tried."""


def visible(entry):
    """Leave hidden files out of an archive: they are somebody's notes, not part of what is built."""
    return None if Path(entry.name).name.startswith(".") else entry


class Image(image_recipe.Remembered):
    """One image that can be built."""

    def __init__(self, params):
        super().__init__(params)
        self.params = params
        self.log = []
        self.proxies = site_network.proxies()

    def _run(self, argv, reader, what, stdin=None, environment=None):
        self.log.append("$ " + " ".join(argv))
        environment = {"LC_ALL": "C.UTF-8", **self.proxies, **(environment or {})}
        code, output = telling.follow(argv, reader, f"image {self.params['name']}: {what}", stdin, environment)
        self.log += output.splitlines()
        if code:
            # pip's own words for what it has not found come first: the rest is for whom they do not suffice.
            said = [
                line.strip() for line in output.splitlines() if line.startswith(("ERROR: ", "E: ", "Error response"))
            ]
            raise BuildError("\n".join([*said[-2:], f"{argv[0]} failed with {code}", *self.log[-40:]]))
        return output

    def _base(self):
        """Return the name of an image to start from, made from packages if there is none yet."""
        if named := debian_mirror.base(self.params):
            try:
                self._run(["docker", "pull", named], telling.Layers(), f"base {named}")
            except BuildError:
                # What is here may have been loaded by hand, and need not be to be had anywhere.
                if subprocess.run(["docker", "image", "inspect", named], capture_output=True).returncode:
                    raise
            return named
        suite, lines = self.params["suite"], debian_mirror.sources(self.params["suite"], self.params["mirror"])
        tag = hashlib.sha256("\n".join([str(self.params["revision"]), *lines]).encode()).hexdigest()[:16]
        name = f"clusterctl/base-{suite}:{tag}"
        if subprocess.run(["docker", "image", "inspect", name], capture_output=True).returncode == 0:
            return name
        make = subprocess.Popen(
            ["mmdebstrap", "--variant=apt", suite, "-", *lines],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C.UTF-8", **self.proxies},
        )
        # It has its name when it is whole: of a run that was killed Docker takes the beginning for all.
        load = subprocess.Popen(
            ["docker", "import", "-"], stdin=make.stdout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        make.stdout.close()  # type: ignore[union-attr] # so that mmdebstrap ends where Docker's command does
        told = telling.tell_of(make.stderr, telling.stages, f"image {self.params['name']}: base of {suite}")
        loaded = load.communicate()[0].decode(errors="replace").splitlines()
        self.log += [*told.splitlines(), *loaded]
        failed = make.wait() or load.returncode
        if failed:
            subprocess.run(["docker", "image", "rm", "--force", *loaded[-1:]], capture_output=True)
        if failed or subprocess.run(["docker", "tag", *loaded[-1:], name], capture_output=True).returncode:
            raise BuildError("\n".join([f"no base image of {suite} could be made", *self.log[-40:]]))
        return name

    def _download(self, base, directory):
        """Have pip of the base's release put the packages into the directory, with all that they need.

        In a container that is thrown away: its configuration may hold a password, which a layer of a build would keep.
        """
        mounts = [f"{directory}:/wheels", *(f"{path}:{path}:ro" for path in site_network.pip_files())]
        if certificate := site_network.certificate():
            # Beside the container's own, which its package writes.
            mounts.append(f"{certificate}:{AUTHORITIES}:ro")
        script = (
            "apt-get update -q"
            " && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends python3-pip"
            ' && python3 -m pip download --no-cache-dir --dest /wheels "$@"'
        )
        self._run(
            ["docker", "run", "--rm", "--network", "host"]
            + [word for mount in mounts for word in ("--volume", mount)]
            # Without a value: Docker takes them from its own environment, so that no password is in a command line.
            + [word for name in self.proxies for word in ("--env", name)]
            + (["--env", f"PIP_CERT={AUTHORITIES}"] if certificate else [])
            + [base, "sh", "-ec", script, "pip", *self.params["packages"]],
            lambda line: line.strip()[:80] if line.startswith("Collecting ") else "",
            "pip",
        )

    def _context(self, stream, directories):
        """Write the build's context into the stream: an archive, because directories may be anywhere."""
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for name, text in sorted(self.params["files"].items()):
                data = text.encode()
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(data), 0o755 if data.startswith(b"#!") else 0o644
                archive.addfile(entry, io.BytesIO(data))
            for name, path in sorted(directories.items()):
                archive.add(path, arcname=name, filter=visible)
        stream.seek(0)

    def _named(self, registry, tag=""):
        return f"{registry}/{self.params['name']}:{tag or self.recipe[:16]}"

    def _copied(self, source, target, what):
        """Copy an image between registries, as it is; return its digest, or nothing and why not."""
        with tempfile.NamedTemporaryFile("r", encoding="ascii") as digest:
            command = [*skopeo.COMMAND, "--command-timeout=30m", "copy", f"--digestfile={digest.name}"]
            try:
                code, said = telling.follow(
                    [*command, f"docker://{source}", f"docker://{target}"],
                    lambda line: line.strip()[:28] if line.startswith("Copying ") else "",
                    f"image {self.params['name']}: {what}",
                    environment={"LC_ALL": "C.UTF-8", **self.proxies},
                )
            except OSError as error:
                return "", f"skopeo: {error.strerror}"
            return ("", skopeo.last(said)) if code else (digest.read().strip(), "")

    def _remember(self, digest, base):
        facts = {
            "digest": digest,
            "registry": self.params["push"],
            "recipe": self.recipe,
            "base": base,
            "built": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        self.record.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        new = self.record.with_suffix(".new")
        new.write_text(json.dumps(facts), encoding="utf-8")
        new.replace(self.record)
        return digest

    def make(self, warn):
        """Copy the image from where clusters share theirs, else build it and share it; return the digest.

        Raises:
            BuildError: as ``build`` does. That nothing could be shared is a warning.
        """
        shared = self.params["shared"]
        if not shared:
            return self.build()
        digest, _ = self._copied(self._named(shared), self._named(self.params["push"]), f"copy from {shared}")
        if digest:
            return self._remember(digest, shared)
        digest = self.build()
        # By the second tag who has the role's files finds the image without an inventory.
        for tag in (self.recipe[:16], checksums.tag(checksums.sums(self.params["files"]))):
            _, problem = self._copied(self._named(self.params["push"]), self._named(shared, tag), f"copy to {shared}")
            if problem:
                warn(
                    f"container_images_shared: {self._named(shared, tag)} could not be written: {problem}. Fix: let"
                    " the controller write there (docker login), or take the variable out"
                )
                break
        return digest

    def build(self):
        """Build, push, remember, and return the digest.

        Raises:
            BuildError: a step did not succeed; nothing is remembered then, and the next run starts over.
        """
        tag = self._named(self.params["push"])
        base = self._base()
        arguments = {"BASE": base, **self.params["arguments"]}
        flags = [word for key, value in sorted(arguments.items()) for word in ("--build-arg", f"{key}={value}")]
        flags += [word for name in self.proxies for word in ("--build-arg", name)]
        # The classic builder: it is in the engine itself, so no plugin has to be there. The host's network: a build
        # needs the mirror just as the machine does.
        cache = self.params["cache"]
        with tempfile.TemporaryDirectory(dir=cache) as wheels, tempfile.TemporaryFile(dir=cache) as context:
            directories = self.params["directories"]
            if self.params["packages"]:
                self._download(base, wheels)
                directories = {**directories, "wheels": wheels}
            self._context(context, directories)
            self._run(
                ["docker", "build", "--network", "host", "--force-rm", "--tag", tag, *flags, "-"],
                telling.Build(),
                "build",
                stdin=context,
                environment={"DOCKER_BUILDKIT": "0"},
            )
        pushed = self._run(["docker", "push", tag], telling.Layers(), "push")
        found = re.search(r"digest: (sha256:[0-9a-f]{64})", pushed)
        if not found:
            raise BuildError("\n".join(["the registry named no digest", *self.log[-10:]]))
        return self._remember(found[1], base)


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "suite": {"type": "str", "default": ""},
            "base": {"type": "str", "default": ""},
            "mirror": {"type": "str", "default": ""},
            "from": {"type": "str", "default": ""},
            "files": {"type": "dict", "required": True},
            "directories": {"type": "dict", "default": {}},
            "packages": {"type": "list", "elements": "str", "default": []},
            "arguments": {"type": "dict", "default": {}},
            "revision": {"type": "int", "default": 1},
            "push": {"type": "str", "required": True},
            "pull": {"type": "str", "required": True},
            "cache": {"type": "path", "required": True},
            "shared": {"type": "str", "default": ""},
        },
        required_one_of=[("suite", "base")],
    )
    changed = False
    try:
        image = Image(module.params)
        digest = image.known()
        if digest is None:
            cache = Path(module.params["cache"])
            cache.mkdir(mode=0o755, parents=True, exist_ok=True)
            with (cache / "images.lock").open("w", encoding="utf-8") as lock:
                # Nobody collects what is only half there, and who comes second finds the image built.
                fcntl.flock(lock, fcntl.LOCK_EX)
                digest = image.known()
                if digest is None:
                    digest, changed = image.make(module.warn), True
    except (BuildError, image_registry.RegistryError, OSError) as error:
        module.fail_json(msg=f"image {module.params['name']}: {error}")
    module.exit_json(changed=changed, reference=image.reference(digest))


if __name__ == "__main__":
    main()
