"""What a job had and what it used, and the three commonest wastes. Standard library only: ``seff`` has this, too. Pure.

Slurm says what a job had, and of its steps processor time and memory. Prometheus says what its GPUs did
(``roles/monitoring/files/job-figures``); of a job that has ended, Slurm's database keeps that in AdminComment.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from provision.errors import ClusterctlError
from provision.model.slurm_json import document, entries, number, within, words
from provision.model.text import MAX_ANSWER, brief, one_line

#: A job's number as sacct takes it: 42, 42_3 of an array, 42+1 of a heterogeneous job.
JOB = re.compile(r"[1-9][0-9]{0,9}(?:[_+][0-9]{1,9})?")

#: What there is no figure of. It is never 0.
UNKNOWN = "not measured"

GIB = 1024**3
MIB = 1024**2

#: Percent. A GPU that never is above it was not used: as in the alert GpuHeldIdle.
IDLE = 5.0
#: Seconds. Of a shorter job nothing is advised: MIN_RUNTIME_SECONDS in config.py of PrincetonUniversity/jobstats.
SHORT = 300
#: Percent. Below it a GPU waits: the usual mean of a cluster that the notes in jobstats' config.py name.
WAITING = 50.0
#: Processors that one process keeps busy: PyTorch's DataLoader loads in the training's own unless num_workers is set.
ONE_PROCESS = (0.8, 1.5)
#: More than this many times what was used is too much; half of it stays unused.
TOO_MUCH = 2.0
#: What to ask for beyond what was used: rounded_memory_with_safety() in jobstats' output_formatters.py.
MARGIN = 1.2

#: The mark and the form by which jobstats and reportseff know a summary in AdminComment: gzip, then base64, as sacctmgr
#: makes ` of a quotation mark (strip_quotes() in src/sacctmgr/common.c). Our own key is gpu_utilization_max.
_SUMMARY = re.compile(r"JS1:([A-Za-z0-9+/]{16,200000}={0,2})")
#: Bytes of a summary that are read: of 5,000 GPUs.
_MOST = 4 * 1024 * 1024


@dataclass(frozen=True)
class Gpu:
    """One GPU while a job held it: mean and highest use (percent), highest memory and its size (bytes), mean watts."""

    node: str
    index: str
    use: float
    peak: float
    memory: float | None = None
    size: float | None = None
    watts: float | None = None

    @property
    def idle(self) -> bool:
        """True where the job has never used it."""
        return self.peak < IDLE


@dataclass(frozen=True)
class Use:
    """A job. None is "not measured", which is never 0. Memory in bytes, times in seconds.

    ``cpus`` are what the job had. ``memory_used`` is the sum of the highest of all tasks of the largest step, as seff
    of Slurm's contribs has it; ``memory_most`` is that of all steps together, which may have run side by side.
    ``gpus`` are those of which there are figures, of ``gpus_held``.
    """

    job: str
    number: int = 0
    cluster: str = ""
    user: str = ""
    group: str = ""
    account: str = ""
    partition: str = ""
    name: str = ""
    state: str = ""
    exit_code: int = 0
    start: int = 0
    end: int = 0
    elapsed: int = 0
    limit: int = 0
    nodes: str = ""
    nodes_count: int = 1
    cpus: int = 1
    cpu_seconds: float | None = None
    memory_asked: int = 0
    memory_by_cpu: bool = False
    memory_used: int | None = None
    memory_most: int | None = None
    gpus_held: int = 0
    gpus: tuple[Gpu, ...] = ()

    @property
    def ended(self) -> bool:
        """True where Slurm has measured all that it will."""
        return self.end > 0

    @property
    def idle(self) -> int:
        """How many of its GPUs the job has never used, of those with figures."""
        return sum(gpu.idle for gpu in self.gpus)


@dataclass(frozen=True)
class Waste:
    """Something that a job held and did not use: what was seen, and what to do about it."""

    name: str
    seen: str
    fix: str


def wastes(use: Use) -> list[Waste]:
    """Return what a job has wasted, of the three commonest ways; nothing is said of what was not measured."""
    found = (_idle_gpus(use), _one_loader(use), _unused_memory(use)) if use.elapsed >= SHORT else ()
    return [waste for waste in found if waste]


def _idle_gpus(use: Use) -> Waste | None:
    if not use.idle:
        return None
    left = max(0, use.gpus_held - use.idle)
    whose = "its GPU was" if use.gpus_held == 1 else f"{use.idle} of {use.gpus_held} GPUs were"
    fix = f"ask for {left}, or start a process for each GPU, as torchrun-slurm does"
    if not left:
        fix = "ask for none, or see why the program uses none: torch.cuda.is_available() in the job says whether it can"
    return Waste("idle-gpus", f"{whose} never used more than {IDLE:.0f} %", fix)


def _one_loader(use: Use) -> Waste | None:
    used = [gpu.use for gpu in use.gpus if not gpu.idle]
    if not used or use.cpu_seconds is None:
        return None
    share, busy = mean(used), use.cpu_seconds / use.elapsed
    lowest, highest = ONE_PROCESS
    if share >= WAITING or not lowest <= busy <= highest * len(used):
        return None
    cores = use.cpus // max(1, use.gpus_held)
    more = "" if cores > 2 else "--cpus-per-gpu=8, and "
    workers = cores - 1 if cores > 2 else 7
    return Waste(
        "one-loader",
        f"GPUs waited ({share:.0f} % used) while {busy:.1f} processors were busy",
        f"load data in more processes: {more}DataLoader(num_workers={workers}) in PyTorch",
    )


def _unused_memory(use: Use) -> Waste | None:
    if not use.memory_most or use.memory_asked <= TOO_MUCH * use.memory_most:
        return None
    enough = math.ceil(MARGIN * use.memory_most / use.nodes_count / GIB)
    if enough * GIB * use.nodes_count >= use.memory_asked:
        return None
    seen = f"it had {size(use.memory_asked)} of memory, and all its steps used {size(use.memory_most)} at most"
    if use.nodes_count > 1:
        # The mean of the nodes says nothing about the one that needs most.
        fix = f"ask for less: sacct -j {use.job} -o JobID,MaxRSS,MaxRSSNode names the largest task"
        return Waste("unused-memory", seen, fix)
    return Waste("unused-memory", seen, f"ask for less: --mem={enough}G")


def named(job: str, sacct: str, scontrol: Callable[[], str], now: int, why: str = "") -> Use:
    """Return the job of that name, of what the two print at that time; ``why`` sacct has printed nothing.

    ``scontrol`` is asked only where sacct has nothing.

    Raises:
        ClusterctlError: Slurm knows none, or several.
    """
    told = document(sacct)
    found = from_sacct(told) or from_scontrol(document(scontrol()), now)
    if not found and len(sacct) > MAX_ANSWER:
        raise ClusterctlError(f"{job} has too many tasks or steps", fix=f"name one task of an array: {job}_0")
    if not found:
        answered = bool(told)
        problem = (
            f"Slurm knows no job {job}" if answered else f"Slurm does not know job {job} any more: {one_line(why)}"
        )
        raise ClusterctlError(problem, fix="sacct lists jobs of today, sacct --starttime=2026-01-31 those since")
    # The number of an array is also that of one of its jobs.
    found = [use for use in found if use.job == job] or found
    if len(found) > 1:
        several = brief([use.job for use in found], 3, ", ")
        raise ClusterctlError(f"{job} is {len(found)} jobs: {several}", fix=f"name one of them: {found[0].job}")
    return found[0]


def from_sacct(told: Mapping[str, Any]) -> list[Use]:
    """Return the jobs of ``sacct --json``: the parsers of JOB and STEP in src/plugins/data_parser."""
    return [_of_database(entry) for entry in entries(told, "jobs") if number(entry.get("job_id"))]


def from_scontrol(told: Mapping[str, Any], now: int) -> list[Use]:
    """Return the jobs of ``scontrol show job --json`` at that time, which has nothing of what they used."""
    found = []
    for entry in entries(told, "jobs"):
        had = {name: int(count) for name, count in _TRES.findall(_text(entry.get("tres_alloc_str"), 2000))}
        state, end = words(entry.get("job_state")), number(entry.get("end_time"))
        start, there = number(entry.get("start_time")), not _LIVE & set(state)
        plain = _common(entry, "user_name", "group_name", state)
        asked = _memory(_text(entry.get("tres_alloc_str"), 2000))
        found.append(
            replace(
                plain,
                job=_array(plain.number, number(entry.get("array_job_id")), entry.get("array_task_id")),
                start=start,
                end=end if there else 0,
                elapsed=max(0, (end if there else now) - start) if start and state[:1] != ("PENDING",) else 0,
                limit=_limit(entry.get("time_limit")),
                nodes_count=had.get("node", 1),
                cpus=had.get("cpu", number(entry.get("cpus"))) or 1,
                memory_asked=asked,
                gpus_held=had.get("gres/gpu", 0),
            )
        )
    return found


#: Slurm's own short form: cpu=4,mem=8000M,node=1,billing=4,gres/gpu=2,gres/gpu:a40=2. Memory has a unit.
_TRES = re.compile(r"(?:^|,)([a-z/]+)=(\d{1,15})(?=,|$)")
_MEM = re.compile(r"(?:^|,)mem=(\d{1,12}(?:\.\d+)?)([MGTP]?)(?=,|$)")
#: States of a job that has not ended.
_LIVE = {"PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT"}


def _memory(text: str) -> int:
    told = _MEM.search(text)
    return int(float(told[1]) * 1024 ** (" MGTP".index(told[2] or "M") + 1)) if told else 0


def _of_database(entry: Mapping[str, Any]) -> Use:
    had = _tres(within(entry, "tres", "allocated"))
    steps = entries(entry, "steps")
    peaks = [_tres(within(step, "tres", "requested", "total")).get("mem", 0) for step in steps]
    seconds = sum(
        number(within(step, "time", "total", "seconds")) + number(within(step, "time", "total", "microseconds")) / 1e6
        for step in steps
    )
    state = words(within(entry, "state", "current"))
    end = 0 if _LIVE & set(state) else number(within(entry, "time", "end"))
    plain = _common(entry, "user", "group", state)
    name = _array(plain.number, number(within(entry, "array", "job_id")), within(entry, "array", "task_id"))
    if het := number(within(entry, "het", "job_id")):
        name = f"{het}+{number(within(entry, 'het', 'job_offset'))}"
    return replace(
        plain,
        job=name,
        start=number(within(entry, "time", "start")),
        end=end,
        elapsed=number(within(entry, "time", "elapsed")),
        limit=_limit(within(entry, "time", "limit")),
        nodes_count=had.get("node") or max(1, number(entry.get("allocation_nodes"))),
        cpus=had.get("cpu") or 1,
        # While steps run, the database has nothing of them. No step takes no time at all, and no memory.
        cpu_seconds=seconds if end and seconds else None,
        memory_asked=had.get("mem", 0) * MIB,
        memory_by_cpu=number(within(entry, "required", "memory_per_cpu")) > 0,
        memory_used=max(peaks) if end and any(peaks) else None,
        memory_most=sum(peaks) if end and any(peaks) else None,
        gpus_held=had.get("gres/gpu", 0),
        gpus=kept(_text(within(entry, "comment", "administrator"), 300_000)),
    )


def _common(entry: Mapping[str, Any], user: str, group: str, state: Sequence[str]) -> Use:
    """Return what both of Slurm's documents have at the same place."""
    return Use(
        job="",
        number=number(entry.get("job_id")),
        cluster=_text(entry.get("cluster")),
        user=_text(entry.get(user)),
        group=_text(entry.get(group)),
        account=_text(entry.get("account")),
        partition=_text(entry.get("partition")),
        name=_text(entry.get("name")),
        state=state[0] if state else "",
        exit_code=_exit_code(entry.get("exit_code")),
        nodes="" if entry.get("nodes") == "None assigned" else _text(entry.get("nodes"), 20_000),
    )


def _limit(minutes: Any) -> int:
    # INFINITE and NO_VAL of slurm.h, plain in old releases.
    told = number(minutes)
    return 60 * told if told < 2**32 - 2 else 0


def _exit_code(value: Any) -> int:
    """Return the exit code: old releases tell the status that wait() returned."""
    return number(value.get("return_code")) if isinstance(value, Mapping) else number(value) >> 8


def _array(job: int, array: int, task: Any) -> str:
    # A task's number may be 0; of a job without an array, or of tasks that wait, it is not set.
    alone = not array or task is None or (isinstance(task, Mapping) and not task.get("set"))
    return str(job) if alone else f"{array}_{number(task)}"


def _text(value: Any, limit: int = 300) -> str:
    return one_line(value, limit) if isinstance(value, str) else ""


def _tres(listed: Any) -> dict[str, int]:
    """Return counts by the names of trackable resources: cpu, mem, node, gres/gpu; of typed ones, none."""
    found = {}
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, Mapping) and ":" not in str(one.get("name")):
            kind, name = str(one.get("type")), str(one.get("name") or "")
            found[f"{kind}/{name}" if name else kind] = max(0, number(one.get("count")))
    return found


def kept(comment: str) -> tuple[Gpu, ...]:
    """Return the GPUs of a summary in a job's AdminComment, beside whatever an administrator has written there."""
    told = _SUMMARY.search(comment)
    if not told:
        return ()
    try:
        # The end is gzip's own.
        plain = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(base64.b64decode(told[1]), _MOST)
        return gpus_in(json.loads(plain))
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        return ()


def gpus_in(summary: Any) -> tuple[Gpu, ...]:
    """Return the GPUs of a summary, by node and number; one without figures of its use is not among them."""
    found = []
    for node, told in sorted(_mapping(_mapping(summary).get("nodes")).items()):
        use = {key: _mapping(_mapping(told).get(key)) for key in _OF_GPUS}
        for index in sorted(use["gpu_utilization"], key=lambda text: (len(text), text)):
            usual, peak, *more = (figure(use[key].get(index)) for key in _OF_GPUS)
            if usual is not None and peak is not None:
                found.append(Gpu(_text(node), _text(index, 20), usual, peak, *more))
    return tuple(found)


_OF_GPUS = ("gpu_utilization", "gpu_utilization_max", "gpu_used_memory", "gpu_total_memory", "gpu_watts")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def figure(value: Any) -> float | None:
    """Return a figure of Prometheus's; None for what can be none."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 2**63
    return float(value) if good else None


def held(use: Use) -> str:
    """Return how many GPUs a job had and how many of them it used, as far as that was measured."""
    if not use.gpus:
        return f"held {use.gpus_held}, use {UNKNOWN}"
    missing = use.gpus_held - len(use.gpus)
    more = f", {missing} {UNKNOWN}" if missing > 0 else ""
    return f"held {use.gpus_held}, used {len(use.gpus) - use.idle}{more}"


def size(value: float) -> str:
    """Return bytes as seff writes them: 1.50 GB is 1.5 * 1024^3."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if value < 1024 or unit == "TB":
            return f"{value:.2f} {unit}"
        value /= 1024
    raise AssertionError


def duration(seconds: float) -> str:
    """Return a time as Slurm writes it: 1-02:03:04."""
    days, rest = divmod(int(seconds), 86400)
    return f"{f'{days}-' if days else ''}{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"


def mean(values: Iterable[float]) -> float:
    """Return the mean of one value or more."""
    listed = list(values)
    return sum(listed) / len(listed)
