"""What a machine looks like, in a form that two moments or two machines can be compared by."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import labs

#: Where what is managed lies, and directories of which only what is directly in them is ours to look at: what is in
#: homes is their users', and what is in Slurm's is the daemons'.
_TOPS = ("/etc", "/usr/local", "/opt")
_WIDE = (*_TOPS, "/var/lib/clusterctl", "/var/spool/slurmd/conf-cache")
_SHALLOW = ("/home", "/var/spool")

#: Files that are this machine's own, or that programs rewrite by themselves; other directories of the spool.
_OWN = (
    "/etc/machine-id",
    "/etc/ssh/ssh_host_",
    "/etc/resolv.conf",
    "/etc/mtab",
    "/etc/hostname",
    "/etc/clusterctl-lab",
    "/etc/ld.so.cache",
    "/etc/.pwd.lock",
    "/etc/.updated",
    # No machine of the lab keeps its time: a row makes the directory for its file.
    "/etc/chrony",
    # What was before a user was changed.
    "/etc/passwd-",
    "/etc/shadow-",
    "/etc/group-",
    "/etc/gshadow-",
    "/etc/subuid-",
    "/etc/subgid-",
    "/var/spool/anacron",
    "/var/spool/cron",
    "/var/spool/mail",
    # Images, what jobs have left, and where they write.
    "/var/lib/clusterctl/images/",
    "/var/lib/clusterctl/ddp/runs/grace/",
    "/var/lib/clusterctl/jobtmp/",
    "/var/lib/clusterctl/scratch/",
)

#: Files whose content is random by design, or says when it was written: mode and owner are compared, not the content.
SECRET = (
    "/etc/munge/munge.key",
    "/etc/slurmdbd/password.conf",
    ".key",
    ".crt",
    ".cert",
    ".pem",
    "/etc/docker/key.json",
    "/var/lib/clusterctl/slurm/running.json",
)

#: Lists in which a user who was made anew stands at the end, and so does who joined a group; /etc/shadow has the day.
_UNORDERED = tuple(f"/etc/{name}" for name in ("passwd", "shadow", "group", "gshadow", "subuid", "subgid"))

_SCRIPT = r"""
import hashlib, json, os, sys
found = {}
own, secret, unordered, shallow = map(json.loads, sys.argv[1:5])
for top in (*sys.argv[5:], *shallow):
    for directory, below, names in os.walk(top):
        if shallow:
            names += below
        if top in shallow:
            below.clear()
        for name in names:
            path = os.path.join(directory, name)
            if path.startswith(tuple(own)):
                continue
            info = os.lstat(path)
            if os.path.islink(path):
                content = os.readlink(path)
            elif os.path.isdir(path):
                content = "directory"
            elif not os.path.isfile(path):
                content = "special"
            elif path.endswith(tuple(secret)):
                content = "secret"
            else:
                with open(path, "rb") as handle:
                    data = handle.read()
                for word, name in THIS_LAB.items():
                    data = data.replace(word, name)
                if path in unordered:
                    lines = [line.split(b":") for line in data.splitlines()]
                    for fields in lines:
                        if path.endswith(("/group", "/gshadow")):
                            fields[-1] = b",".join(sorted(fields[-1].split(b",")))
                        if path.endswith("/shadow"):
                            fields[2] = b"day"
                    data = b"\n".join(sorted(map(b":".join, lines)))
                content = hashlib.sha256(data).hexdigest()
            found[path] = [oct(info.st_mode), info.st_uid, info.st_gid, content]
print(json.dumps(found))
"""


def files(lab: labs.Lab, machine: str, *tops: str, wide: bool = False) -> dict[str, list[Any]]:
    """Return mode, owner and content hash of every file below the directories, without the lab's name and subnet.

    ``wide``: of directories, too, and of what roles manage elsewhere.
    """
    subnet = lab.address("head").rsplit(".", 1)[0] + "."
    own = {subnet.encode(): b"SUBNET.", lab.name.encode(): b"LAB"}
    script = f"THIS_LAB = {own!r}\n{_SCRIPT}"
    lists = (_OWN, SECRET, _UNORDERED, _SHALLOW if wide else ())
    words = [*map(json.dumps, lists), *(tops or (_WIDE if wide else _TOPS))]
    printed = labs.run(
        ["docker", "exec", "--interactive", lab.container(machine), "python3", "-", *words], input=script
    ).stdout
    found: dict[str, list[Any]] = json.loads(printed)
    return found


def wide(lab: labs.Lab, machine: str) -> dict[str, list[Any]]:
    """Return the same of all that roles manage."""
    return files(lab, machine, wide=True)


def difference(before: dict[str, list[Any]], after: dict[str, list[Any]]) -> list[str]:
    """Return the paths that are not the same on both sides."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


@contextmanager
def unchanged(lab: labs.Lab) -> Iterator[None]:
    """Assert that the block leaves every machine's files as they are."""
    before = {machine: files(lab, machine) for machine in lab.machines}
    yield
    for machine in lab.machines:
        assert difference(before[machine], files(lab, machine)) == [], machine


def services(lab: labs.Lab, machine: str) -> dict[str, Any]:
    """Return what a restart would change: main processes of our units, and the start times of containers."""
    units = lab.root(machine, "systemctl show --property=Id,MainPID,ActiveEnterTimestamp munge docker docker-registry")
    containers = lab.root(
        machine,
        "docker ps --all --no-trunc --format '{{.Names}}' | xargs -r docker inspect --format"
        " '{{.Name}} {{.State.StartedAt}} {{.State.Pid}} {{.Image}}'",
    )
    return {"units": units, "containers": sorted(containers.splitlines())}
