#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have an image in the store that all users of a node share.

Why not C(containers.podman.podman_image): it wants podman on the machine and knows only the store of whoever runs it.
Here podman comes with an image, and what is written is the store that all users of the node read: an image of several
GB is there once and not once for each user. No figure: capability, as no module writes a store for others.
"""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils import image_registry, image_sources, image_space, image_store
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.machine_commands import bounded
from ansible.module_utils.telling import Pace, follow

DOCUMENTATION = """
module: cluster_image_place
short_description: Have an image in the store that all users of a node share
options:
  reference: {type: str, required: true, description: The image by digest.}
  name: {type: str, default: "", description: The name by which users find it there; another image loses it.}
  together:
    description: All images that are about to come, by digest. Nothing is pulled where they do not fit on the disk.
    type: list
    elements: str
    default: []
  tool: {type: str, required: true, description: Image whose podman does it.}
  store: {type: path, default: /var/lib/clusterctl/images, description: The store.}
"""

#: Seconds for an image of several GB over a slow network.
PULL_LIMIT = 1800
#: What Podman ends with where it cannot pull. It asks the registry itself where the mirror does not answer; we do where
#: what the mirror has is not what its digest says. One that was killed or took too long is no reason to have all there.
FAILED = (1, 125)
#: Seconds until an image has another name: a container starts.
TAG_LIMIT = 120


class Placing:
    """How many of an image's layers are in the store: podman says only where each begins to come."""

    def __init__(self, store, reference):
        self.store, self.announced, self.before = store, 0, len(image_store.listed(store, "layers"))
        self.what = f"image {reference.rpartition('/')[2].partition('@')[0]}: into the node's store"

    def read(self, line):
        """Count the layers; nothing is told by the line itself."""
        self.announced += line.startswith("Copying blob ")
        return ""

    def look(self):
        """Return what the store has of it, empty where nothing is announced."""
        done = min(len(image_store.listed(self.store, "layers")) - self.before, self.announced)
        return f"{self.what}: {done} of {self.announced} layers" if self.announced else ""

    def run(self, command):
        """Run the command that pulls, and return its exit code and output."""
        with Pace(self.look):
            return follow(command, self.read, self.what)


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "reference": {"type": "str", "required": True},
            "name": {"type": "str", "default": ""},
            "together": {"type": "list", "elements": "str", "default": []},
            "tool": {"type": "str", "required": True},
            "store": {"type": "path", "default": "/var/lib/clusterctl/images"},
        },
        supports_check_mode=True,
    )
    store, reference, name = module.params["store"], module.params["reference"], module.params["name"]
    tool = module.params["tool"]
    if image_store.has(store, reference, name):
        module.exit_json(changed=False)
    if not module.check_mode:
        # Only root enters: users see the store through a view of their own, where nothing is set-user-id.
        Path(store).mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            needed = image_space.lacking(store, module.params["together"]) * image_space.ON_DISK
        except image_registry.RegistryError as error:
            module.fail_json(msg=f"{reference}: {error}")
        if problem := image_space.problem(needed, store):
            module.fail_json(msg=f"the images that are to come do not fit: {problem}. Nothing was pulled")
        if not image_store.has(store, reference):
            for mirror in dict.fromkeys((image_sources.near(reference), "")):
                podman = image_store.podman(store, tool, "pull", reference, registries=mirror and image_sources.CONF)
                code, problem = Placing(store, reference).run(bounded(podman, PULL_LIMIT))
                if code not in FAILED:
                    break
            if code == 124:
                problem += f" not done within {PULL_LIMIT} s"
            if code or not image_store.has(store, reference):
                module.fail_json(msg=f"{reference} could not be put into {store}: {problem.strip()[-2000:]}")
        if not image_store.has(store, reference, name):
            tag = bounded(image_store.podman(store, tool, "tag", reference, name), TAG_LIMIT)
            problem = follow(tag, lambda _: "", f"image {name}: named")[1]
            if not image_store.has(store, reference, name):
                module.fail_json(msg=f"{reference} could not be called {name} in {store}: {problem.strip()[-2000:]}")
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
