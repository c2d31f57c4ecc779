"""What of slurm.conf a daemon's start rests on: what no reconfiguration takes up, and what is run before. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

#: scontrol(1), "reconfigure", names listening ports and authentication; job_container.conf(5) the containers of jobs.
_OF_EACH = r"Auth[A-Za-z]*|CredType|TLS[A-Za-z]*"
_AT_START = {
    "slurmctld": re.compile(rf"ClusterName|SlurmctldHost|SlurmctldPort|{_OF_EACH}", re.IGNORECASE),
    "slurmd": re.compile(rf"SlurmdPort|SlurmctldPort|{_OF_EACH}|JobContainerType|NamespaceType", re.IGNORECASE),
    "sackd": re.compile(rf"SlurmdPort|SlurmctldPort|{_OF_EACH}", re.IGNORECASE),
}
_OWN_TMP = ("jobcontainertype=job_container/tmpfs", "namespacetype=namespace/tmpfs")


def at_start(parameters: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return what follows from the parameters, names and values, as they stand in slurm.conf; nothing of none.

    ``port``: where slurmctld listens first, empty for Slurm's own; ``contain``: each job has a process of its own as
    long as it lives; ``own_tmp``: a job's /tmp is its own; ``started_with``: by daemon, the text of its container's
    label. Another text has the container replaced.
    """
    given = list(parameters)
    if not given:
        return {}
    lines = sorted((f"{name}={value}" for name, value in given), key=str.lower)
    named = [(name.lower(), value) for name, value in given]
    ports = [port[0] for name, value in named if name == "slurmctldport" and (port := re.match("[0-9]+", value))]
    return {
        "port": next(iter(ports), ""),
        "contain": any(name == "prologflags" and "contain" in value.lower().split(",") for name, value in named),
        "own_tmp": any(line.lower() in _OWN_TMP for line in lines),
        "started_with": {
            daemon: " ".join(line for line in lines if names.fullmatch(line.partition("=")[0]))
            for daemon, names in _AT_START.items()
        },
    }
