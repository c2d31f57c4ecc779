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
    """Return the device file of each whole GPU in NVIDIA's descriptions (CDI), by its name there."""
    import yaml  # of podman-compose; only GPUs need it

    found: dict[str, str] = {}
    for path in sorted(path for place in places for path in Path(place).glob("*.*")):
        try:
            text = yaml.safe_load(path.read_text(encoding="utf-8"))
            for device in text["devices"] if text["kind"] == "nvidia.com/gpu" else []:
                nodes = [node["path"] for node in device["containerEdits"].get("deviceNodes", [])]
                gpus = [node for node in nodes if re.fullmatch(r"/dev/nvidia\d+", node)]
                # Not a part of a GPU (MIG), and not all of them.
                if len(gpus) == 1 and not any("nvidia-cap" in node for node in nodes):
                    found[str(device["name"])] = gpus[0]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
            continue  # what is wrong with it the engine tells
    return found


def chosen(asked: str, mine: Sequence[str], known: Mapping[str, str]) -> list[str]:
    """Return those of a job's GPUs that --gpus asks for; by number they count what the job has, from 0, as CUDA does.

    Raises:
        RefusedError: it has none, or not these.
    """
    if not mine:
        raise RefusedError(f"--gpus {asked}: this job was granted no GPU", "#SBATCH --gres=gpu:N, or leave --gpus out")
    if match := re.search(r"device=([^=]+?)(?:,\w+=|$)", asked):
        numbers = {name: file.removeprefix("/dev/nvidia") for name, file in known.items()}
        granted_ones = {name: number for name, number in numbers.items() if number in mine} | {gpu: gpu for gpu in mine}
        meant = {name: gpu for name, gpu in granted_ones.items() if not name.isdigit()}
        meant |= {str(place): gpu for place, gpu in enumerate(mine)}
        names = match[1].split(",")
        if strange := [name for name in names if name not in meant]:
            problem = f"--gpus {asked}: {','.join(strange)} is not this job's"
            raise RefusedError(problem, f"it was granted {len(mine)}: --gpus all")
        return [meant[name] for name in names]
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
    known = described() if known is None else known
    gpus = chosen(asked, mine, known)
    # In the container they are counted from 0.
    return [*devices(gpus, known), f"--env=CUDA_VISIBLE_DEVICES={','.join(map(str, range(len(gpus))))}"]


def devices(gpus: Iterable[str], known: Mapping[str, str]) -> list[str]:
    """Return Podman's options for some GPUs: by NVIDIA's name, with all that belongs to one; if need be by the file."""
    names = {file: f"nvidia.com/gpu={name}" for name, file in reversed(list(known.items()))}
    files = (f"/dev/nvidia{gpu}" if gpu.isdigit() else f"nvidia.com/gpu={gpu}" for gpu in gpus)
    return [f"--device={names.get(file, file)}" for file in files]
