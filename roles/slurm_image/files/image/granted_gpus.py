"""Which GPUs docker's --gpus means in a job: those that Slurm granted, never another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path


class RefusedError(Exception):
    """What cannot be had, and what to do instead."""


def granted(environment: Mapping[str, str]) -> list[str]:
    """Return the GPUs that Slurm granted: numbers of device files, or names of NVIDIA's."""
    visible = environment.get("CUDA_VISIBLE_DEVICES", "")
    if visible.startswith(("GPU-", "MIG-")):
        return visible.split(",")
    numbers = environment.get("SLURM_STEP_GPUS") or environment.get("SLURM_JOB_GPUS") or ""
    return [number for number in numbers.split(",") if number]


def described(places: Iterable[str] = ("/etc/cdi", "/var/run/cdi")) -> dict[str, str]:
    """Return by what name container engines know a GPU, by its device file, from NVIDIA's descriptions (CDI)."""
    import yaml  # of podman-compose; only GPUs need it

    found: dict[str, str] = {}
    for path in sorted(path for place in places for path in Path(place).glob("*.*")):
        try:
            text = yaml.safe_load(path.read_text(encoding="utf-8"))
            for device in text["devices"] if text["kind"] == "nvidia.com/gpu" else []:
                name = f"nvidia.com/gpu={device['name']}"
                nodes = [node["path"] for node in device["containerEdits"].get("deviceNodes", [])]
                gpus = [node for node in nodes if re.fullmatch(r"/dev/nvidia\d+", node)]
                # Not a part of a GPU (MIG), and not all of them.
                if len(gpus) == 1 and not any("nvidia-cap" in node for node in nodes):
                    found.setdefault(gpus[0], name)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
            continue  # what is wrong with it the engine tells
    return found


def chosen(asked: str, mine: Sequence[str]) -> list[str]:
    """Return those of a job's GPUs that --gpus asks for; by number they count what the job has, from 0, as CUDA does.

    Raises:
        RefusedError: it has none, or not these.
    """
    if not mine:
        raise RefusedError(f"--gpus {asked}: this job was granted no GPU", "#SBATCH --gres=gpu:N, or leave --gpus out")
    if match := re.search(r"device=([^=]+?)(?:,\w+=|$)", asked):
        counted = {str(number): gpu for number, gpu in enumerate(mine)}
        by_name = {gpu: gpu for gpu in mine if not gpu.isdigit()}
        names = match[1].split(",")
        if strange := [name for name in names if name not in counted | by_name]:
            problem = f"--gpus {asked}: {','.join(strange)} is not this job's"
            raise RefusedError(problem, f"it was granted {len(mine)}: --gpus all")
        return [(counted | by_name)[name] for name in names]
    if match := re.search(r"(?:^|count=)(\d+)", asked):
        if int(match[1]) > len(mine):
            problem = f"--gpus {asked}: this job was granted {len(mine)}"
            raise RefusedError(problem, "--gpus all; or ask Slurm for more: --gres=gpu:N")
        return list(mine[: int(match[1])])
    return list(mine)


def words(asked: str | None, environment: Mapping[str, str], known: Mapping[str, str] | None) -> list[str]:
    """Return what gives a container its GPUs; None asks for none. ``known`` is what ``described`` finds.

    Raises:
        RefusedError: the job has none, or not these.
    """
    mine = granted(environment)
    if asked is None:
        return ["--env=CUDA_VISIBLE_DEVICES="] if mine else []
    gpus = chosen(asked, mine)
    known = described() if known is None else known
    # By NVIDIA's name, if need be by the device file.
    named = {gpu: f"/dev/nvidia{gpu}" if gpu.isdigit() else f"nvidia.com/gpu={gpu}" for gpu in gpus}
    devices = [known.get(named[gpu], named[gpu]) for gpu in gpus]
    # In the container they are counted from 0.
    return [
        *(f"--device={device}" for device in devices),
        f"--env=CUDA_VISIBLE_DEVICES={','.join(map(str, range(len(gpus))))}",
    ]
