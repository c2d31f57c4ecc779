#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have an image in the store that all users of a node share.

Why not C(containers.podman.podman_image): it wants podman on the machine and knows only the store of whoever runs
it. Here podman comes with an image, and what is written is the store that all users of the node read: an image of
several GB is there once and not once for each user.
"""

from __future__ import annotations

import json
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.machine_commands import bounded
from ansible.module_utils.telling import Pace, follow

DOCUMENTATION = """
module: cluster_image_place
short_description: Have an image in the store that all users of a node share
options:
  reference: {type: str, required: true, description: The image by digest.}
  tool: {type: str, required: true, description: Image whose podman does it.}
  store: {type: path, default: /var/lib/clusterctl/images, description: The store.}
"""

#: Seconds for an image of several GB over a slow network.
PULL_LIMIT = 1800

#: What unpacking an image as root needs: mounting and entering layers, and giving files their owners and marks.
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "MKNOD", "SETFCAP", "SYS_ADMIN", "SYS_CHROOT")


def has(store, reference):
    """Tell whether the store's own list names the image; a list that cannot be read names none."""
    try:
        images = json.loads((Path(store) / "overlay-images" / "images.json").read_text(encoding="utf-8"))
        return any(reference in (image.get("names") or []) for image in images)
    except (OSError, ValueError):
        return False


def command(store, reference, tool):
    """Return the command that pulls the image into the store."""
    confined = ["--rm", "--network", "host", "--cap-drop", "ALL"]
    for name in CAPABILITIES:
        confined += ["--cap-add", name]
    for option in ("seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined"):
        confined += ["--security-opt", option]
    mounts = ["--volume", f"{store}:{store}", "--volume", "/etc:/run/machine-etc:ro", "--tmpfs", "/run/podman-store"]
    login = Path("/root/.docker/config.json")
    if login.exists():
        mounts += ["--volume", f"{login}:/run/login.json:ro", "--env", "REGISTRY_AUTH_FILE=/run/login.json"]
    pull = ["podman", "--root", store, "--runroot", "/run/podman-store", "pull", reference]
    return ["docker", "run", *confined, *mounts, tool, *pull]


def stored(store):
    """Return how many layers the store's own list names; a list that cannot be read names none."""
    try:
        return len(json.loads((Path(store) / "overlay-layers" / "layers.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return 0


class Placing:
    """How many of an image's layers are in the store: podman says only where each begins to come."""

    def __init__(self, store, reference):
        self.store, self.announced, self.before = store, 0, stored(store)
        self.what = f"image {reference.rpartition('/')[2].partition('@')[0]}: into the node's store"

    def read(self, line):
        """Count the layers; nothing is told by the line itself."""
        self.announced += line.startswith("Copying blob ")
        return ""

    def look(self):
        """Return what the store has of it, empty where nothing is announced."""
        done = min(stored(self.store) - self.before, self.announced)
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
            "tool": {"type": "str", "required": True},
            "store": {"type": "path", "default": "/var/lib/clusterctl/images"},
        },
        supports_check_mode=True,
    )
    store, reference = module.params["store"], module.params["reference"]
    if has(store, reference):
        module.exit_json(changed=False)
    if not module.check_mode:
        # Only root enters: users see the store through a view of their own, where nothing is set-user-id.
        Path(store).mkdir(mode=0o700, parents=True, exist_ok=True)
        pull = bounded(command(store, reference, module.params["tool"]), PULL_LIMIT)
        code, problem = Placing(store, reference).run(pull)
        if code == 124:
            problem += f" not done within {PULL_LIMIT} s"
        if code or not has(store, reference):
            module.fail_json(msg=f"{reference} could not be put into {store}: {problem.strip()[-2000:]}")
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
