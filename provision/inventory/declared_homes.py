"""Users' homes, against what machines share and what a job sees."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from provision.errors import ClusterctlError
from provision.inventory.declared_mounts_together import machines_of
from provision.model.mounts import LOCAL, PRESENT, Mount, below, shared_by
from provision.model.users import Users

#: Directories of which each job has its own.
_OF_A_JOB = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - nothing is written


def require_homes(
    people: Users,
    mounts: Sequence[Mount],
    groups: Mapping[str, Sequence[str]],
    shared: Any,
) -> None:
    """Refuse users whose homes are not the same on all machines that start and run jobs, unless ``shared`` says no.

    Those that are not shared have to be where jobs can write.

    Raises:
        ClusterctlError: a job would leave its output where nobody looks for it; ``entry`` says whose home it is.
    """
    machines = list(machines_of(("slurm_controller", "slurm_compute"), groups))
    if len(machines) < 2 or str(True if shared is None else shared).strip().lower() in ("false", "no", "off", "0"):
        _require_seen(people, mounts)
        return
    declared = [mount.as_dict(groups) for mount in mounts]
    for number, user in enumerate(people.users):
        if not user.absent and not shared_by(declared, user.home, machines):
            raise ClusterctlError(
                f"cluster_users: {user.name}'s home {user.home} is on no file system that all machines share: a job's "
                "output would stay on its node",
                fix="declare in cluster_mounts what they share (present is what the site mounts itself), or set "
                "cluster_homes_shared: false, if each machine is to have homes of its own",
                entry=("cluster_users", number, "home"),
            )


def _require_seen(people: Users, mounts: Sequence[Mount]) -> None:
    unusable = dict.fromkeys(_OF_A_JOB, "of which each job has its own")
    unusable |= {"/opt": "which jobs see read-only"}
    unusable |= {mount.path: f"and {mount.path} is read_only" for mount in mounts if mount.read_only}
    shown = [mount.path for mount in mounts]
    for number, user in enumerate(people.users):
        last = max((one for one in (*unusable, *shown) if below(user.home, one)), key=len, default="")
        if not user.absent and last in unusable:
            raise ClusterctlError(
                f"cluster_users: {user.name}'s home is {user.home}, {unusable[last]}: a job could not write there",
                fix=f"write home: /home/{user.name}, or a place on a file system of cluster_mounts (local: a "
                "machine's own disk)",
                entry=("cluster_users", number, "home"),
            )


def require_shown(files: Mapping[str, str], people: Users, mounts: Sequence[Mount]) -> None:
    """Refuse directories of which each job would have its own, empty one, where a home or a shared file system is.

    Raises:
        ClusterctlError: it names the line of job_container.conf.
    """
    shown = [
        ("/home", "where homes are"),
        *((one.home, f"{one.name}'s home") for one in people.users if not one.absent),
    ]
    shown += [(mount.path, "of cluster_mounts") for mount in mounts if mount.fstype not in (LOCAL, PRESENT)]
    name = "job_container.conf"
    for row, line in enumerate(files.get(name, "").splitlines(), start=1):
        for path, (place, what) in itertools.product(_dirs(line), shown):
            if below(place, path):
                raise ClusterctlError(
                    f"slurm_conf_files: {name}, its line {row}: Dirs has {path}, and {place} is {what}: a job would "
                    "see it empty",
                    fix=f"take {path} out of Dirs",
                    entry=("slurm_conf_files", None, name),
                    row=row,
                )


def _dirs(line: str) -> list[str]:
    """Return the directories of which a line of job_container.conf gives each job its own."""
    said = (word.partition("=") for word in line.partition("#")[0].split())
    return [path for key, _, value in said if key.lower() == "dirs" for path in value.strip('"').split(",")]
