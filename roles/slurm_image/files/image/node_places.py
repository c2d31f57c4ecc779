# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""What of its node no container of a job gets, by a mount or as a device: the same for docker and --container-mounts.

It guards nobody against the user, whose rights a container has; it keeps a script from breaking its job or another's.
"""

import os
import re

#: What of the node is nobody's data.
SYSTEM = {"/", "/dev", "/proc", "/run", "/var/run"}
SOCKETS = {"/var/run/docker.sock", "/run/docker.sock"}


def plain(path):
    """Return a whole path with one slash where it has several (POSIX leaves two at its beginning); a link stays one."""
    return "/" + os.path.abspath(path).lstrip("/")  # noqa: PTH100 - a link stays one


def refused(path, environment, known=None):
    """Return why a job's container does not get a path of the node, and what to do; None where nothing is against it.

    Links are followed, so that one's own link to / is /. ``known``: the GPUs that are described to container engines;
    None: look.
    """
    real = os.path.realpath(path)
    if real in SOCKETS:
        return "a job has no engine's socket", "call docker in the job itself, not in a container"
    if real in SYSTEM:
        return f"{real} is the node's, and no data", "name the directories that are needed"
    if real.startswith("/dev/nvidia"):
        import granted_gpus  # only GPUs need it

        known = granted_gpus.described() if known is None else known
        mine = granted_gpus.granted(environment, known)
        # What all GPUs have together, as /dev/nvidiactl, belongs to whoever has one.
        if not mine or (re.fullmatch(r"/dev/nvidia\d+", real) and real not in granted_gpus.files(mine, known)):
            fix = "docker's --gpus all gives those that were; a container of --container-image has them anyway"
            return f"this job was not granted {'that' if mine else 'a'} GPU", fix
    return None
