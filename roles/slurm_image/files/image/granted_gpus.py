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

_ASK_FOR_GPUS = "#SBATCH --gres=gpu:N; where you log in DOCKER_SRUN=--gpus=N; or leave --gpus out"

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
    found = [gpu for gpu, opened in there(described() if known is None else known, root).items() if opened]
    return found if len(found) == len(counted) else counted


def there(known: Known, root: str = "/") -> dict[str, bool]:
    """Return the node's GPUs, and those of their parts that are described; of each, whether it can be opened here."""
    parts = {files: name for name, files in reversed(list(known.items())) if len(files) > 1}
    divided = {file for files in parts for file in files}
    files = (f"/dev/{path.name}" for path in Path(root, "dev").glob("nvidia[0-9]*"))
    whole = sorted(int(file.removeprefix("/dev/nvidia")) for file in files if file not in divided)
    found = {str(number): opens(root, f"/dev/nvidia{number}") for number in whole}
    by_name = sorted((name, files) for files, name in parts.items())
    return {**found, **{name: all(opens(root, file) for file in files) for name, files in by_name}}


def of_job(job: str, root: str = "/") -> list[str]:
    """Return Slurm's numbers of the GPUs that a job was granted on this node, which its Prolog has written down.

    A task's own variables tell of its own alone (--gpus-per-task, --gpu-bind), and SLURM_JOB_GPUS of the first node.
    """
    try:
        text = Path(root, "run/clusterctl/jobs", job, "gpus").read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        return []
    return text.split(",") if re.fullmatch(r"\d+(,\d+)*", text) else []


def shared(environment: Mapping[str, str], job: Sequence[str], known: Known, root: str = "/") -> list[str]:
    """Return the GPUs of a container that a job's tasks share: all of the job's here, also where a task has fewer.

    Where a task's control group keeps the others away, nobody sees from there what other tasks may open. Slurm counts
    GPUs by their files or by their places on the PCI bus: what agrees with the task's own is taken. Where neither is
    certain, the container shows all GPUs of the node, as the node itself does to a task without container: each task's
    control group lets it open its own.

    Args:
        environment: the first task's.
        job: what :func:`of_job` returns.
        known: what :func:`described` returns.
        root: where ``dev`` and ``proc`` are.
    """
    counted = numbers(environment)
    named = environment.get("CUDA_VISIBLE_DEVICES", "").startswith("MIG-")
    if not counted or len(job) <= len(counted):
        return granted(environment, known, root)
    found = there(known, root)
    opened = [gpu for gpu, may_be_opened in found.items() if may_be_opened]
    if len(opened) in (0, len(found)):  # no control group decides: it leaves a task its own
        return granted(environment, known, root) if named else together(job, counted)
    if len(opened) == len(job):
        return opened
    ways = ({number: number for number in job}, by_place(root))
    certain = {
        tuple(together([way[number] for number in job]))
        for way in ways
        if all(way.get(number) in found for number in job) and {way.get(number) for number in counted} == set(opened)
    }
    return list(certain.pop()) if len(certain) == 1 else list(found)


def together(*lists: Iterable[str]) -> list[str]:
    """Return the numbers of some lists, each once, in their order."""
    return sorted({number for numbers in lists for number in numbers}, key=int)


def by_place(root: str = "/") -> dict[str, str]:
    """Return the numbers of the files of GPUs, by their places on the PCI bus, which AutoDetect of gres.conf counts."""
    places = sorted(Path(root, "proc/driver/nvidia/gpus").glob("*/information"))
    try:
        told = [re.search(r"^Device Minor:\s*(\d+)", path.read_text(encoding="utf-8"), re.M) for path in places]
    except (OSError, UnicodeError):
        return {}
    return {str(place): minor[1] for place, minor in enumerate(told) if minor}


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
        raise RefusedError(f"--gpus {asked}: this job was granted no GPU", _ASK_FOR_GPUS)
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
