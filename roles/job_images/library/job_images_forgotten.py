#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove images of jobs from the controller's registry that are no longer declared, and the room that they took.

Why not C(ansible.builtin.uri) and C(command): which manifests there are is in the registry's directory, and its
garbage is collected under the lock of those who push, because what is only half there would be taken for garbage. No
figure: safety, as an image that is just being pushed must not be collected.
"""

from __future__ import annotations

import fcntl
import json
import urllib.error
import urllib.request
from pathlib import Path

from ansible.module_utils import image_registry, job_image_sources
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.machine_commands import printed, run

DOCUMENTATION = """
module: job_images_forgotten
short_description: Remove images of jobs from the controller's registry that are no longer declared
options:
  repository: {type: str, required: true, description: Where the cluster's images of jobs are in the registry.}
  store: {type: dict, required: true, description: "Where images are: C(push), C(cache)."}
  references: {type: list, elements: str, required: true, description: Those that stay, by digest.}
"""

RETURN = """
removed: {type: list, returned: always, description: What was removed.}
"""

#: Seconds for an answer of the registry, and for the collection of its garbage.
ANSWER, COLLECT = 60, 1800


def delete(push, image, digest):
    """Have the registry forget a manifest, with the certificate by which the controller writes."""
    host, _, project = push.partition("/")
    place = Path("/etc/docker/certs.d") / host
    context = image_registry.trusted(host)
    context.load_cert_chain(str(place / "client.cert"), str(place / "client.key"))
    url = f"https://{host}/v2/{project}/{image}/manifests/{digest}"
    request = urllib.request.Request(url, method="DELETE")
    try:
        urllib.request.urlopen(request, timeout=ANSWER, context=context).close()  # noqa: S310
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise


def old_builds(push, repository, references):
    """Return the engine's images of jobs that the registry is not to have any more."""
    command = ["docker", "image", "ls", "--digests", "--format", "{{.Repository}} {{.Tag}} {{.Digest}}"]
    listed = printed(command, ANSWER) or ""
    digests = {reference.partition("@")[2] for reference in references}
    ours = (line.split() for line in listed.splitlines() if line.startswith(f"{push}/{repository}/"))
    return [f"{name}:{tag}" for name, tag, digest in ours if tag != "<none>" and digest not in digests]


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "repository": {"type": "str", "required": True},
            "store": {"type": "dict", "required": True},
            "references": {"type": "list", "elements": "str", "required": True},
        },
    )
    params = module.params
    push, cache = params["store"]["push"], Path(params["store"]["cache"])
    digests = {reference.partition("@")[2] for reference in params["references"]}
    mark = job_image_sources.garbage(params["store"])
    try:
        removed = [name for name in job_image_sources.kept(params) if name.partition("@")[2] not in digests]
        if collects := bool(removed) or mark.exists():
            # Until all is done, the check fails: what the registry has forgotten is in no list.
            mark.touch()
            with (cache / "images.lock").open("w", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                for name in removed:
                    delete(push, *name.split("@"))
                for record in (cache / "images").glob(f"{params['repository'].replace('/', '%')}%*.json"):
                    # Nothing that was forgotten here is said to be lost when it is declared again.
                    if json.loads(record.read_text(encoding="utf-8")).get("digest") not in digests:
                        record.unlink()
                collect = ["runuser", "--user=docker-registry", "--", "docker-registry", "garbage-collect"]
                code, said = run([*collect, "/etc/docker/registry/write.yml"], COLLECT)
            if code == 0:
                mark.unlink()
            else:
                module.fail_json(msg=f"docker-registry garbage-collect failed: {said.strip()[-1000:]}")
        if old := old_builds(push, params["repository"], params["references"]):
            run(["docker", "image", "rm", *old], COLLECT)
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"the registry at {push} would not forget what is old: {error}")
    module.exit_json(changed=collects, removed=removed)


if __name__ == "__main__":
    main()
