# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""What the site gives every job: its variables, and what these name of its files, which containers see as well.

Slurm's TaskProlog tells tasks the values. A container is made by programs that read here which there are.
"""

import os

#: Comes to the node with slurm.conf.
PROGRAM = "/run/slurm/conf/job_task"


def lines(path=PROGRAM):
    """Return of each variable its name, its value, and whether that is a path; none where nothing can be read."""
    try:
        with open(path, encoding="utf-8") as stream:  # noqa: PTH123 - pathlib is slow to load
            told = stream.read().partition("<<'JOB_ENVIRONMENT'\n")[2].partition("JOB_ENVIRONMENT\n")[0]
    except OSError:
        return []
    found = (line.split(" ", 2) for line in told.splitlines())
    return [(*variable.partition("=")[::2], kind == "directory") for _, kind, variable in found]


def names(path=PROGRAM):
    """Return the variables' names."""
    return [name for name, _, _ in lines(path)]


def volumes(places=(), path=PROGRAM):
    """Return Podman's options for what the variables name, but for that at which something is mounted: ``places``."""
    paths = dict.fromkeys(value for _, value, is_directory in lines(path) if is_directory)
    there = [one for one in paths if one not in places and os.path.exists(one)]  # noqa: PTH110
    return [word for one in there for word in ("--volume", f"{one}:{one}")]
