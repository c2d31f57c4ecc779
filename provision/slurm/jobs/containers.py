"""Mistakes of containers in jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from provision.slurm.jobs.calls import Call, Option
from provision.slurm.jobs.finding import Told, assigned, nodes, step
from provision.slurm.jobs.script import Script

_ENGINES = ("docker", "podman", "nerdctl", "nvidia-docker")
_MOVING = re.compile(r"^(latest|nightly|main|master|dev|devel|edge|stable|head|current)$", re.I)


def ungranted_gpus(script: Script) -> Iterator[Told]:
    """A container that is given every GPU of the node, or some by numbers that stand there, whoever's job they are."""
    effect = "Docker's daemon is in no job: the container sees every GPU of the node, other jobs' too"
    numbers = "these numbers are whatever jobs' GPUs: the step has others, or the container has another job's"
    better = "--gpus '\"device='$(nvidia-smi --query-gpu=uuid --format=csv,noheader | paste -sd,)'\"', in the step"
    for call in script.called(*_ENGINES):
        gpus, devices = call.options.get("gpus"), call.options.get("device")
        asked = gpus.value.replace('"', "").replace("'", "") if gpus else ""
        named = [one for one in (devices.value if devices else "").split("\n") if _GPU.match(one)]
        if gpus and (re.match(r"(all|count=\S+|-?[0-9]+)(,|$)", asked) or "all" in asked.split(",")):
            yield gpus.line, f"--gpus {gpus.value}", effect, better
        elif gpus and re.match(r"devices?=[0-9]", asked):
            yield gpus.line, f"--gpus {gpus.value}", numbers, better
        elif devices and named:
            why = effect if named[0].endswith("=all") else numbers
            yield devices.line, f"--device {named[0]}", why, better.replace("--gpus", "--device")
        elif not gpus and _by_runtime(script, call):
            problem = "the runtime nvidia without NVIDIA_VISIBLE_DEVICES: images of CUDA say 'all' themselves"
            yield call.line, problem, effect, better
        privileged = call.options.get("privileged")
        if privileged and privileged.value.lower() in ("", "true", "1"):
            problem = "--privileged gives it every device of the node"
            yield privileged.line, problem, effect, "--device /dev/infiniband --cap-add IPC_LOCK, and the GPUs by name"
    engines = any(script.called(*_ENGINES))
    for line, name, value in assigned(script, "NVIDIA_VISIBLE_DEVICES") if engines else ():
        if re.fullmatch(r"all|[0-9]+(,[0-9]+)*", value):
            why = effect if value == "all" else numbers
            yield line, f"{name}={value}", why, f"{name}=$CUDA_VISIBLE_DEVICES of the step"


#: A GPU that is named by its number, or all of them.
_GPU = re.compile(r"(nvidia\.com/gpu=(all|[0-9]+)|/dev/nvidia[0-9]+(:.*)?)$")


def _by_runtime(script: Script, call: Call) -> bool:
    """Tell whether a container has the GPUs that NVIDIA's runtime gives it, and nobody says which."""
    runtime = call.options.get("runtime")
    given = [call.options[name].value for name in ("e", "env") if name in call.options]
    told = any("NVIDIA_VISIBLE_DEVICES" in one for one in given) or any(assigned(script, "NV_GPU"))
    return not told and (call.program == "nvidia-docker" or (runtime is not None and runtime.value == "nvidia"))


def container_limits(script: Script) -> Iterator[Told]:
    """A container of a job on several nodes without what RDMA and loading data need."""
    for call in script.called(*_ENGINES):
        if nodes(script, step(call)) < 2:
            continue
        options = call.options
        limits = options["ulimit"].value if "ulimit" in options else ""
        devices = "\n".join(options[name].value for name in ("device", "v", "volume") if name in options)
        host = options.get("ipc")
        missing = {
            "--ulimit memlock=-1": not re.search(r"memlock=(-1|unlimited|[0-9]{10,}|.*\$)", limits),
            "--ipc=host": not ((host and host.value == "host") or _large(options.get("shm-size"))),
            "--device /dev/infiniband": "/dev/infiniband" not in devices and "privileged" not in options,
        }
        if lacks := [name for name, is_missing in missing.items() if is_missing]:
            yield (
                call.line,
                f"{call.program} run without {' and '.join(lacks)}",
                "RDMA cannot lock memory or is not there, NCCL takes TCP; loading data ends with 'bus error'",
                " ".join(lacks),
            )


def _large(size: Option | None) -> bool:
    """Tell whether a container's shared memory is more than the megabytes that it has without a word."""
    return size is not None and not re.fullmatch(r"[0-9]{1,9}(k|kb)?|[0-9]{1,3}(m|mb)", size.value, re.I)


def _images(script: Script) -> Iterator[tuple[int, str]]:
    """Yield line and name of each image that is run."""
    if option := script.directives.get("container-image"):
        yield option.line, option.value
    for call in script.calls:
        if option := call.options.get("container-image"):
            yield option.line, script.value(option.value)
        elif call.program in _ENGINES and call.rest:
            yield call.rest[0].line, call.rest[0].text
        elif call.program in ("apptainer", "singularity", "enroot"):
            yield from ((word.line, word.text) for word in call.rest if word.text.startswith("docker://"))


def moving_tag(script: Script) -> Iterator[Told]:
    """An image under a name that is another image tomorrow."""
    told = set()
    for line, image in _images(script):
        name = image.removeprefix("docker://").replace("#", "/")
        path = name.startswith((".", "/", "$")) or name.endswith((".sqsh", ".tar", ".sif", ".img"))
        # podman images shows the first twelve digits of an image's number, which is no other image's.
        number = re.fullmatch(r"(sha256:)?[0-9a-f]{12,64}", name) is not None
        if path or number or "@sha256:" in name or (line, image) in told:
            continue
        told.add((line, image))
        tag = name.rpartition("/")[2].partition(":")[2]
        if not tag or _MOVING.match(tag):
            problem = f"{image} is whatever {tag or 'latest'} is on that node at that time"
            effect = "nodes train with different programs, and nobody can repeat it"
            yield line, problem, effect, f"{name.rpartition(':')[0] if tag else name}@sha256:..., or a tag that stays"


def image_on_sbatch(script: Script) -> Iterator[Told]:
    """A batch script, or a call of Slurm's commands, in a container that has none of them."""
    if option := script.directives.get("container-image"):
        effect = "where pyxis takes it for the batch script, too, there is no srun and no scontrol in it"
        yield option.line, "--container-image for the whole job", effect, "srun --container-image=..., on the step"
    for call in script.calls:
        rest = call.rest[1:] if call.program in _ENGINES else call.rest[:1]
        inside = _in_image(call, script) and rest and call.program not in ("apptainer", "singularity")
        if inside and (name := _SLURMS.fullmatch(rest[0].text)):
            yield call.line, f"{name[1]} in the container", f"images have no {name[1]}: command not found", _OUTSIDE
    for command in script.commands:
        if not any(_in_image(call, script) for call in script.starters(command)):
            continue
        for at, word in enumerate(command.words):
            if name := _ANSWER.search(word.text) or (_SLURMS.fullmatch(word.text) if not at else None):
                problem, effect = f"{name[1]} in the container", f"images have no {name[1]}: command not found"
                yield word.line, problem, effect, _OUTSIDE


_NAMES = "scontrol|squeue|srun|sinfo|sbatch|scancel|sacct|sstat|sbcast"
_SLURMS = re.compile(rf"(?:/\S*/)?({_NAMES})")
_ANSWER = re.compile(rf"\$\(\s*(?:/[^\s(]*/)?({_NAMES})\b")
_OUTSIDE = "in the batch script, before srun: export MASTER_ADDR=...; and hand it to the container with -e MASTER_ADDR"


def _in_image(call: Call, script: Script) -> bool:
    """Tell whether what a program starts is in a container."""
    if call.program == "srun":
        return "container-image" in call.options or "container-image" in script.directives
    return call.program in (*_ENGINES, "apptainer", "singularity")
