"""Which GPUs docker's --gpus means in a job: those that Slurm granted, never another."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path


class RefusedError(Exception):
    """What cannot be had, and what to do instead."""


#: Files of a GPU, and of a part of one (MIG), that a job's control group lets it open, or not.
_FILE = re.compile(r"/dev/(nvidia\d+|nvidia-caps/nvidia-cap\d+)")

#: Words of --gpus that have a value.
_WORDS = ("count", "device", "capabilities", "driver", "options")

#: NVIDIA's names of GPUs and of their parts, and the device files that each is reached by.
Known = Mapping[str, tuple[str, ...]]


def numbers(environment: Mapping[str, str]) -> list[str]:
    """Return Slurm's numbers of the GPUs that it granted."""
    listed = environment.get("SLURM_STEP_GPUS") or environment.get("SLURM_JOB_GPUS") or ""
    return [number for number in listed.split(",") if number]


def granted(environment: Mapping[str, str], known: Known | None = None, root: str = "/") -> list[str]:
    """Return the GPUs that Slurm granted: numbers of device files, or names of NVIDIA's.

    Slurm's own numbers count what gres.conf or its detection lists (``index``, src/plugins/gres/common/gres_common.c),
    which need not be those of the files. What a job can open it was granted, where its control group keeps the others
    away; elsewhere Slurm's numbers are all there is.

    Args:
        environment: the job's.
        known: what :func:`described` finds; asked for where it is left out and needed.
        root: where ``dev`` is.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES", "")
    if visible.startswith(("GPU-", "MIG-")):
        return visible.split(",")
    counted = numbers(environment)
    if not counted:
        return []
    known = described() if known is None else known
    parts = {files: name for name, files in reversed(list(known.items())) if len(files) > 1}
    divided = {file for files in parts for file in files}
    there = (f"/dev/{path.name}" for path in Path(root, "dev").glob("nvidia[0-9]*"))
    whole = sorted(int(file.removeprefix("/dev/nvidia")) for file in there if file not in divided and opens(root, file))
    mine = [name for files, name in parts.items() if all(opens(root, file) for file in files)]
    found = [*map(str, whole), *sorted(mine)]
    return found if len(found) == len(counted) else counted


def opens(root: str, file: str) -> bool:
    """Tell whether a device file can be opened: those of other jobs cannot."""
    try:
        os.close(os.open(root + file, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def described(places: Iterable[str] = ("/etc/cdi", "/var/run/cdi")) -> dict[str, tuple[str, ...]]:
    """Return the device files of each GPU and of each part of one in NVIDIA's descriptions (CDI), by its name there."""
    import yaml  # of podman-compose; only GPUs need it

    found: dict[str, tuple[str, ...]] = {}
    for path in sorted(path for place in places for path in Path(place).glob("*.*")):
        try:
            text = yaml.safe_load(path.read_text(encoding="utf-8"))
            for device in text["devices"] if text["kind"] == "nvidia.com/gpu" else []:
                nodes = [node["path"] for node in device["containerEdits"].get("deviceNodes", [])]
                files = tuple(sorted(node for node in nodes if _FILE.fullmatch(node)))
                # One GPU's, and not those of all together.
                if len([file for file in files if "cap" not in file]) == 1 and device["name"] != "all":
                    found[str(device["name"])] = files
        except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
            continue  # what is wrong with it the engine tells
    return found


def requested(asked: str) -> tuple[int | None, list[str]]:
    """Return how many GPUs --gpus asks for, None for all, and the names of those that it asks for by name.

    Docker's own words (docker/cli, opts/gpus.go): all, a number, count=, device=, capabilities=, driver=, options=,
    with commas between them; its quotes are taken off before, so what has no name belongs to the one before it.

    Raises:
        RefusedError: these are no such words, or they ask for none.
    """
    fix = "--gpus all, --gpus 2, or --gpus '\"device=0,1\"'"
    fields: dict[str, list[str]] = {}
    name = "count"
    for word in asked.split(","):
        given, has, value = word.partition("=")
        name = given if has else name
        if name not in _WORDS or (name in fields and (has or name == "count")):
            raise RefusedError(f"--gpus {asked}: {word!r} is nothing that it knows there", fix)
        fields.setdefault(name, []).append(value if has else word)
    if "device" in fields:
        if "count" in fields or not all(fields["device"]):
            raise RefusedError(f"--gpus {asked}: a number and names cannot go together, nor can a name be empty", fix)
        return None, [] if fields["device"] == ["all"] else fields["device"]
    # As Docker has it: one where nothing is said of the number.
    (count,) = fields.get("count", ["1"])
    if count == "all":
        return None, []
    if not re.fullmatch(r"[0-9]{1,9}", count):
        raise RefusedError(f"--gpus {asked}: {count!r} is no number of GPUs", fix)
    if int(count) == 0:
        raise RefusedError(f"--gpus {asked}: that is none", "leave --gpus out for a container without a GPU")
    return int(count), []


def chosen(asked: str, mine: Sequence[str], known: Known) -> list[str]:
    """Return those of a job's GPUs that --gpus asks for; by number they count what the job has, from 0, as CUDA does.

    Raises:
        RefusedError: it has none, or not these, or --gpus says nothing that can be known.
    """
    count, names = requested(asked)
    if not mine:
        raise RefusedError(f"--gpus {asked}: this job was granted no GPU", "#SBATCH --gres=gpu:N, or leave --gpus out")
    if names:
        whole = {name: files[0].removeprefix("/dev/nvidia") for name, files in known.items() if len(files) == 1}
        granted_ones = {name: number for name, number in whole.items() if number in mine} | {gpu: gpu for gpu in mine}
        meant = {name: gpu for name, gpu in granted_ones.items() if not name.isdigit()}
        meant |= {str(place): gpu for place, gpu in enumerate(mine)}
        if strange := [name for name in names if name not in meant]:
            problem = f"--gpus {asked}: {','.join(strange)} is not this job's"
            raise RefusedError(problem, f"it was granted {len(mine)}: --gpus all")
        return [meant[name] for name in names]
    if count is not None and count > len(mine):
        problem = f"--gpus {asked}: this job was granted {len(mine)}"
        raise RefusedError(problem, "--gpus all; or ask Slurm for more: --gres=gpu:N")
    return list(mine[:count])


def words(asked: str | None, environment: Mapping[str, str], known: Known | None) -> list[str]:
    """Return what gives a container its GPUs; None asks for none. ``known`` is what ``described`` finds.

    Raises:
        RefusedError: the job has none, or not these.
    """
    if asked is None:
        return (
            ["--env=CUDA_VISIBLE_DEVICES="] if numbers(environment) or environment.get("CUDA_VISIBLE_DEVICES") else []
        )
    known = described() if known is None else known
    mine = granted(environment, known)
    gpus = chosen(asked, mine, known)
    # In the container they are counted from 0.
    return [*devices(gpus, known), f"--env=CUDA_VISIBLE_DEVICES={','.join(map(str, range(len(gpus))))}"]


def devices(gpus: Iterable[str], known: Known) -> list[str]:
    """Return Podman's options for some GPUs: by NVIDIA's name, with all that belongs to one; if need be by the file."""
    names = {files: f"nvidia.com/gpu={name}" for name, files in reversed(list(known.items()))}
    files = (f"/dev/nvidia{gpu}" if gpu.isdigit() else f"nvidia.com/gpu={gpu}" for gpu in gpus)
    return [f"--device={names.get((file,), file)}" for file in files]


def files(gpus: Iterable[str], known: Known) -> set[str]:
    """Return the device files of some GPUs."""
    return {file for gpu in gpus for file in ([f"/dev/nvidia{gpu}"] if gpu.isdigit() else known.get(gpu, ()))}
