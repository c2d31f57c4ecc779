"""What a container of docker run has of its job, whichever engine makes it: in words that Podman and Docker know."""

from __future__ import annotations

import csv
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import site_environment

#: What a container gets of ours beside its image, by the name that it has there.
IN_CONTAINER = Path("/usr/local/libexec/clusterctl/in_container")
#: Variables of the job that a container gets, as a task without container has them.
PASSED = re.compile(r"(SLURM|SLURMD|NCCL|GLOO|UCX|MASTER|TORCH|OMP)_\w+|RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE")
#: The directory of RDMA adapters' device files. Scripts name it for all nodes of a site.
INFINIBAND = "/dev/infiniband"


def words(environment: Mapping[str, str], places: Sequence[str], tools: Sequence[Path] | None = None) -> list[str]:
    """Return what gives a container what a task without one has of its job; Podman and Docker know the words.

    Args:
        environment: the job's.
        places: where the user mounts something: nothing of the site's is put there.
        tools: programs of ours, where the engine sees them; None: where they are here.
    """
    site = site_environment.names()
    given = [f"--env={name}" for name in sorted(environment) if PASSED.fullmatch(name) or name in site]
    given += site_environment.volumes(places)
    for step in ("JOB", "STEP"):
        if nodes := environment.get(f"SLURM_{step}_NODELIST"):
            given.append(f"--env=CLUSTERCTL_{step}_HOSTS={' '.join(hosts(nodes))}")
    ours = own_tools() if tools is None else tools
    return given + [f"--volume={tool}:/usr/local/bin/{tool.name}:ro" for tool in ours]


def own_tools() -> list[Path]:
    """Return the programs of ours that containers get."""
    return sorted(IN_CONTAINER.iterdir()) if IN_CONTAINER.is_dir() else []


def without_adapter(device: str) -> str:
    """Return that an option is left out which asks for RDMA adapters where there are none; nothing where there are."""
    if device != INFINIBAND or any(Path(device).glob("*")):
        return ""
    return f"--device {device} is left out: this node has no RDMA adapter"


def fields_of(mount: str) -> dict[str, str]:
    """Return what a value of --mount says."""
    return dict(part.partition("=")[::2] for part in next(csv.reader([mount]), []))


def mounted_at(name: str, value: str) -> list[str]:
    """Return where in a container --volume or --mount puts something."""
    if name == "--mount":
        fields = fields_of(value)
        return [fields[of] for of in ("target", "dst", "destination") if of in fields]
    source, _, rest = value.partition(":")
    return [rest.partition(":")[0] or source]


def hosts(nodelist: str) -> list[str]:
    """Return the names of Slurm's list of nodes."""
    told = subprocess.run(["scontrol", "show", "hostnames", nodelist], check=False, capture_output=True, text=True)
    return told.stdout.split()
