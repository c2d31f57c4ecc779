"""docker, in a job of somebody who may use the machine's own Docker: what holds a container to the job.

Nothing here keeps a user from anything: who may write to the engine's socket is root on the node. It keeps an honest
script to what Slurm gave its job: its processors, memory and GPUs; and job_end ends what bears the job's label.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import granted_gpus
import job_container
import run_options
from granted_gpus import RefusedError

#: The engine's socket for jobs, in a directory that they see.
SOCKET = "/run/clusterctl/docker.sock"
DOCKER = "/usr/bin/docker"
#: What job_begin makes for a job, and job_end removes: the machine and its jobs see it at one path.
OF_JOBS = Path("/run/clusterctl/jobs")
#: By which job_end knows a job's containers.
LABEL = "clusterctl.job"

#: What makes containers that nothing would hold to the job, or changes what is the site's.
_EACH = "start a container on each node: srun --ntasks-per-node=1 docker run --network NAME ..."
REFUSED = {
    **dict.fromkeys(("swarm", "service", "stack", "node", "plugin", "compose"), _EACH),
    "update": "what a job may use is Slurm's to say: scontrol update job=$SLURM_JOB_ID",
}
#: What is Slurm's to say.
_LIMITS = {
    "--memory", "--memory-swap", "--memory-reservation", "--cpus", "--cpu-shares", "--cpu-period", "--cpu-quota",
    "--cpuset-cpus", "--cpuset-mems", "--cgroup-parent", "--device-cgroup-rule", "--oom-kill-disable",
}  # fmt: skip


def usable(socket: str = SOCKET, program: str = DOCKER) -> bool:
    """Tell whether the site lets jobs use the machines' own Docker, and this user."""
    return os.access(program, os.X_OK) and os.access(socket, os.W_OK)


def memory(environment: Mapping[str, str]) -> int:
    """Return the job's memory on this node in MB, 0 where Slurm gives no limit."""
    if whole := environment.get("SLURM_MEM_PER_NODE", ""):
        return int(whole) if whole.isdigit() else 0
    each, cpus = environment.get("SLURM_MEM_PER_CPU", ""), environment.get("SLURM_CPUS_ON_NODE", "")
    return int(each) * int(cpus) if each.isdigit() and cpus.isdigit() else 0


def gpus(asked: str | None, environment: Mapping[str, str], known: granted_gpus.Known | None) -> list[str]:
    """Return Docker's options for the GPUs that ``asked`` means of those that Slurm granted."""
    words = granted_gpus.words(asked, environment, known)
    names = [word.partition("nvidia.com/gpu=")[2] for word in words if "nvidia.com/gpu=" in word]
    named = [f'--gpus="device={",".join(names)}"'] if names else []
    return named + [word for word in words if "nvidia.com/gpu=" not in word]


def tools(job: str) -> list[Path]:
    """Return our programs for containers where the machine sees them, too: those of slurmd's image it does not.

    Raises:
        RefusedError: they cannot be put there.
    """
    of_job = OF_JOBS / job / "runtime"
    if not os.access(of_job, os.W_OK):
        return []  # no user's job, for which nothing is laid out
    place = of_job / "in_container"
    try:
        place.mkdir(exist_ok=True)
        for tool in job_container.own_tools():
            if not (place / tool.name).exists():
                # Under another name until it is whole: tasks of a node come at once.
                part = place / f".{tool.name}.{os.getpid()}"
                shutil.copy(tool, part)
                part.replace(place / tool.name)
    except OSError as problem:
        fix = "leave this node out, and tell the administrator"
        raise RefusedError(f"{place}: {problem.strerror}", fix) from problem
    return [place / tool.name for tool in job_container.own_tools()]


def words(
    command: str,
    given: Sequence[str],
    environment: Mapping[str, str],
    cpus: Sequence[int],
    known: granted_gpus.Known | None = None,
) -> tuple[list[str], list[str]]:
    """Return what Docker is told instead of docker run or docker create with these words; and lines for the user.

    Args:
        command: run or create.
        given: the words after it.
        environment: the job's.
        cpus: the processors that this process may run on.
        known: the GPUs that are described to container engines; None: look.

    Raises:
        RefusedError: a GPU is not the job's, or nothing leads from such a container to Slurm.
    """
    rest, out, told, asked = list(given), [], [], None
    places: list[str] = []
    for name, value in run_options.options(rest):
        if name in _LIMITS:
            told.append(f"{name} is left out: what a job may use is Slurm's to say (--mem, --cpus-per-task)")
        elif name == "--privileged":
            if run_options.on(value):
                told.append("--privileged is left out: it would give all of the node's devices")
        elif name == "--gpus":
            asked = str(value).replace('"', "").replace("'", "")
        elif name == "--runtime" and value == "nvidia":
            asked = asked or "all"
        elif name == "--device" and str(value).startswith(("/dev/nvidia", "nvidia.com/gpu")):
            raise RefusedError(
                f"--device {value}: GPUs come by --gpus", "--gpus all gives those that the job was granted"
            )
        elif name == "--device" and (line := job_container.without_adapter(str(value))):
            told.append(line)
        else:
            places += job_container.mounted_at(name, str(value)) if name in ("--volume", "--mount") else []
            out.append(name if value is None else f"{name}={value}")
    if any("--requeue-on" in word for word in rest[1:]):
        # What is left outside is told by a descriptor, and the engine hands on none.
        raise RefusedError(
            "--requeue-on: no way leads from a container of the node's own Docker to Slurm",
            "srun --container-image=IMAGE torchrun-slurm --requeue-on=node-failure ...",
        )
    ours = [f"--label={LABEL}={environment['SLURM_JOB_ID']}", f"--cpuset-cpus={','.join(map(str, sorted(cpus)))}"]
    if size := memory(environment):
        ours.append(f"--memory={size}m")
    ours += job_container.words(environment, places, tools(environment["SLURM_JOB_ID"]))
    return [command, *ours, *gpus(asked, environment, known), *out, *rest], told


def main(command: str, more: Sequence[str], environment: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the words for Docker's own program, and lines for the user.

    Raises:
        RefusedError: nothing would hold that to the job.
    """
    if command in REFUSED:
        raise RefusedError(f"docker {command} is not to be had in a job", REFUSED[command])
    if command in ("run", "create"):
        return words(command, more, environment, sorted(os.sched_getaffinity(0)))
    return ([command, *more] if command else list(more)), []
