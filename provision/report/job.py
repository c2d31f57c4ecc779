"""What ``clusterctl job`` shows: what a job had and used, what its nodes did meanwhile, and what it wasted."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from provision import hostlist
from provision.errors import ClusterctlError
from provision.model.slurm_json import document
from provision.report.summary import Printer
from provision.slurm import job_use
from provision.slurm.job_use import SHORT, UNKNOWN, Gpu, Use, duration, size, wastes

#: GPUs that have a line of their own each.
_MOST_LINES = 8
#: Other jobs that are counted.
_MOST_JOBS = 100_000


@dataclass(frozen=True)
class Found:
    """A job, figures of its nodes by name, how many other jobs these had (None: unknown), and what is missing."""

    use: Use
    nodes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    others: int | None = None
    missing: tuple[str, ...] = ()


def asked(sacct: str, scontrol: str, name: str) -> dict[str, list[str]]:
    """Return how Slurm is asked for other jobs of a job's nodes, and Prometheus for its figures; empty for no job."""
    try:
        use = _use(sacct, scontrol, name)
        nodes = hostlist.expand(use.nodes) if use.nodes else []
    except ClusterctlError:
        nodes = []
    if not nodes:
        return {"others": [], "figures": []}
    # Not one that ended in the second in which this one began.
    window = [f"--starttime=uts{use.start + 1}", f"--endtime={f'uts{use.end}' if use.end else 'now'}"]
    others = ["sacct", "--allusers", "--allocations", "--noheader", "--parsable2", "--format=JobIDRaw", *window]
    return {
        "others": [*others, f"--nodelist={use.nodes}"] if document(sacct) else [],
        "figures": [str(use.number), str(use.start), str(use.end), *nodes],
    }


def found(told: Mapping[str, Any], name: str, watcher: str) -> Found:
    """Return what the machines have answered; ``watcher`` is the host of monitoring, empty for none.

    Raises:
        ClusterctlError: there is no such job, or there are several.
    """
    use = _use(str(told.get("sacct") or ""), str(told.get("scontrol") or ""), name, str(told.get("silent") or ""))
    answer = document(str(told.get("figures") or ""))
    nodes = {node: _figures(of_node) for node, of_node in _mapping(answer.get("nodes")).items()}
    gpus, others = job_use.gpus_in(answer.get("summary")), told.get("others")
    # Figures of Prometheus last some weeks, those in the database as long as the job's record.
    use = replace(use, gpus=gpus or use.gpus)
    jobs = {job for job in str(others).split()[:_MOST_JOBS] if job.isdecimal()} - {str(use.number)}
    return Found(use, nodes, None if others is None else len(jobs), tuple(_missing(use, nodes, watcher, told, answer)))


def _use(sacct: str, scontrol: str, name: str, why: str = "") -> Use:
    return job_use.named(name, sacct, lambda: scontrol, int(time.time()), why)


def _missing(
    use: Use, nodes: Mapping[str, Any], watcher: str, told: Mapping[str, Any], answer: Mapping[str, Any]
) -> Iterator[str]:
    """Yield what is not known of a job, and why."""
    if not document(str(told.get("sacct") or "")):
        yield f"what its steps used: Slurm's database tells nothing: {told.get('silent')}"
    elif not use.ended:
        yield "its own processors and memory: Slurm tells them when it has ended"
    if not watcher:
        yield "GPUs and nodes: no machine is in [monitoring]. Fix: name one there, then clusterctl provision monitoring"
    elif problem := answer.get("problem") or (told.get("unreached") if not answer else ""):
        yield f"GPUs and nodes: {watcher} does not answer: {problem}"
    elif use.nodes and not nodes:
        yield "GPUs and nodes: Prometheus has nothing. The job was too short, or is too long ago"
    elif use.gpus_held and not use.gpus:
        yield "GPUs: Prometheus has nothing. The job was shorter than a minute, or nobody measures them"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _figures(value: Any) -> dict[str, float]:
    listed = ((name, job_use.figure(one)) for name, one in _mapping(value).items())
    return {name: one for name, one in listed if one is not None}


def as_document(one: Found) -> dict[str, Any]:
    """Return what is found as the keys of the JSON document."""
    told = asdict(one.use)
    gpus = [{**gpu, "idle": use.idle} for gpu, use in zip(told.pop("gpus"), one.use.gpus, strict=True)]
    return {
        "job": told,
        "gpus": gpus,
        "nodes": {node: dict(figures) for node, figures in one.nodes.items()},
        "other_jobs": one.others,
        "wastes": [asdict(waste) for waste in wastes(one.use)],
        "missing": list(one.missing),
    }


def show(printer: Printer, one: Found) -> None:
    """Write what is found: who, where, how long, then GPUs, processors and memory, nodes, and what was wasted."""
    use = one.use
    ended = f"{use.state.lower()}, exit code {use.exit_code}" if use.ended else use.state.lower()
    printer.line(" ".join(filter(None, ("job", use.job, use.name))) + f": {ended}")
    rows = [*_who(use), *_gpus(use), *_own(use), *_nodes(one)]
    printer.table(rows)
    for missing in one.missing:
        printer.line(f"not known: {missing}", style="yellow")
    for waste in wastes(use):
        printer.line(f"wasted: {waste.seen}", style="bold yellow")
        printer.line(f"fix: {waste.fix}", indent=2)
    measured = use.memory_most is not None and len(use.gpus) >= use.gpus_held
    if use.elapsed < SHORT:
        printer.line("no advice: the job has run for less than five minutes")
    elif measured and not wastes(use):
        printer.line("none of the three commonest wastes: idle GPUs, one process that loads data, memory unused")


def _who(use: Use) -> Iterator[tuple[str, str]]:
    yield "user", f"{use.user} ({use.group}), account {use.account or '-'}, partition {use.partition}"
    if not use.nodes:
        return
    limit = f" of {duration(use.limit)}" if use.limit else ""
    until = f" to {_time(use.end)}" if use.end else ""
    yield "time", f"{_time(use.start)}{until}: {duration(use.elapsed)}{limit}"
    yield "had", f"{use.nodes}: {use.cpus} CPUs, {size(use.memory_asked)} of memory, {use.gpus_held} GPUs"


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(sep=" ", timespec="seconds")


def _gpus(use: Use) -> Iterator[tuple[str, str]]:
    if not use.gpus_held:
        return
    share = f"; {job_use.mean(gpu.use for gpu in use.gpus):.0f} % on average" if use.gpus else ""
    yield "GPUs", f"{job_use.held(use)}{share}"
    used = [gpu for gpu in use.gpus if not gpu.idle]
    for gpu in used[:_MOST_LINES]:
        yield f"GPU {gpu.node} {gpu.index}", _gpu(gpu)
    if more := used[_MOST_LINES:]:
        yield (
            "other GPUs",
            f"{len(more)} more: {min(gpu.use for gpu in more):.0f} to {max(gpu.use for gpu in more):.0f} %",
        )
    idle: dict[str, list[str]] = {}
    for gpu in use.gpus:
        if gpu.idle:
            idle.setdefault(gpu.node, []).append(gpu.index)
    if idle:
        yield "GPUs unused", "; ".join(f"{node}: {','.join(indexes)}" for node, indexes in idle.items())


def _gpu(gpu: Gpu) -> str:
    memory = f"; {size(gpu.memory)} of {size(gpu.size)} at most" if gpu.memory is not None and gpu.size else ""
    watts = f"; {gpu.watts:.0f} W" if gpu.watts is not None else ""
    return f"{gpu.use:.0f} % on average, {gpu.peak:.0f} % at most{memory}{watts}"


def _own(use: Use) -> Iterator[tuple[str, str]]:
    """Yield what the job itself used, as Slurm has measured it."""
    busy = UNKNOWN
    if use.cpu_seconds is not None and use.elapsed:
        used = use.cpu_seconds / use.elapsed
        busy = f"{used:.1f} of {use.cpus} on average ({100 * used / use.cpus:.0f} %)"
    yield "CPUs", busy
    memory = UNKNOWN if use.memory_used is None else f"{size(use.memory_used)} at most"
    yield "memory", f"{memory}, of {size(use.memory_asked)}"


def _nodes(one: Found) -> Iterator[tuple[str, str]]:
    """Yield what its nodes did meanwhile: all that ran there."""
    if not one.nodes:
        return
    whose = {None: "perhaps with other jobs", 0: "which it had alone"}
    yield "its nodes", whose.get(one.others) or f"with {one.others} other jobs, which the next lines include"
    if (busy := _sum(one, "cpus")) is not None:
        yield "nodes: CPUs", f"{busy:.1f} busy on average"
    if peak := _most(one, "memory_peak"):
        yield "nodes: memory", f"{size(peak[0])} at most, on {peak[1]}"
    for name, key in (("network", "network"), ("RDMA", "rdma")):
        received, sent = _sum(one, f"{key}_in"), _sum(one, f"{key}_out")
        if received is not None and sent is not None:
            peaks = [found for way in ("in", "out") if (found := _most(one, f"{key}_{way}_peak"))]
            at_most = f"; at most {_rate(max(peaks)[0])} on {max(peaks)[1]}" if peaks else ""
            yield f"nodes: {name}", f"{_rate(received)} in, {_rate(sent)} out{at_most}"
    if (requests := _sum(one, "nfs")) is not None:
        yield "nodes: NFS", f"{requests:.1f} requests a second"
    read, written = _sum(one, "disk_in"), _sum(one, "disk_out")
    if read is not None and written is not None:
        yield "nodes: disks", f"{_rate(read)} read, {_rate(written)} written"


def _rate(value: float) -> str:
    return f"{size(value)}/s"


def _sum(one: Found, key: str) -> float | None:
    told: Sequence[float] = [figures[key] for figures in one.nodes.values() if key in figures]
    return sum(told) if told else None


def _most(one: Found, key: str) -> tuple[float, str] | None:
    return max(((figures[key], node) for node, figures in one.nodes.items() if key in figures), default=None)
