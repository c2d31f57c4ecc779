#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove images of jobs from a node's store that are no longer declared, but for those that a job uses.

Why not C(containers.podman.podman_image) with C(state=absent): it wants podman on the machine, and knows nothing of
jobs, whose containers rest on the store without being in its list. No figure: safety, as an image must not go under a
job.
"""

from __future__ import annotations

from ansible.module_utils import image_registry, image_space, image_store, store_users
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.machine_commands import bounded
from ansible.module_utils.telling import follow

DOCUMENTATION = """
module: job_images_removed
short_description: Remove images of jobs that are no longer declared and that nobody uses
options:
  store: {type: path, required: true, description: The node's store.}
  repository: {type: str, required: true, description: Where the cluster's images of jobs are in the registry.}
  wanted: {type: list, elements: str, required: true, description: References and names that stay.}
  tool: {type: str, required: true, description: Image whose podman does it.}
  coming:
    description:
      - Images by digest that are about to come. What has the name of one until then, for jobs that start, is
        removed only where they do not fit beside it.
    type: list
    elements: str
    default: []
"""

RETURN = """
removed: {type: list, returned: always, description: Names of what was removed.}
used: {type: dict, returned: always, description: "By name, who uses what had to stay."}
ansible_facts:
  type: dict
  returned: always
  description: "C(cluster_job_images_left), the ids of what had to stay: its job may end before it is looked at again."
"""

#: Seconds for what podman does to its lists, and to the files of one image.
LIMIT = 600


def due(found, params):
    """Return the images of these that are to be removed now."""
    images = [image for image in found if image["remove"]]
    named = [image for image in images if set(image["names"]) & set(params["wanted"])]
    if not named or not params["coming"]:
        return images
    try:
        needed = image_space.lacking(params["store"], params["coming"]) * image_space.ON_DISK
    except image_registry.RegistryError:
        needed = 0  # who is to pull them says it
    return images if image_space.problem(needed, params["store"]) else [one for one in images if one not in named]


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "store": {"type": "path", "required": True},
            "repository": {"type": "str", "required": True},
            "wanted": {"type": "list", "elements": "str", "required": True},
            "tool": {"type": "str", "required": True},
            "coming": {"type": "list", "elements": "str", "default": []},
        },
    )
    params, done = module.params, []

    def podman(image, *words):
        code, said = follow(
            bounded(image_store.podman(params["store"], params["tool"], *words), LIMIT), lambda _: "", "old images"
        )
        if code:
            module.fail_json(msg=f"{image} could not be removed from {params['store']}: {said.strip()[-1000:]}")

    # Names first: no container begins with what has none.
    for image in store_users.collect(params):
        if image["untag"]:
            podman(image["untag"][0], "untag", image["id"], *image["untag"])
            done += image["untag"]
    found = store_users.collect(params)
    for image in due(found, params):
        podman(image["names"][0], "rmi", "--force", image["id"])
        done += image["names"]
    used = {image["names"][0]: image["used"] for image in found if image["used"]}
    left = {"cluster_job_images_left": [image["id"] for image in found if image["used"]]}
    module.exit_json(changed=bool(done), removed=done, used=used, ansible_facts=left)


if __name__ == "__main__":
    main()
