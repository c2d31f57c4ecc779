"""What a job gets of a node that does not say it itself: an equal share, and not the whole node. Pure.

Slurm's own default for memory is all of it, so that one job runs on a node at a time: slurm.conf(5), DefMemPerNode.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from provision.model.cluster import Cluster, Hardware, Partition
from provision.slurm.parameters import number

_MEMORY = ("DefMemPerCPU", "DefMemPerGPU", "DefMemPerNode")
_PROCESSORS = "DefCpuPerGPU"
#: A job without --time ends after a day, and none runs longer than a week: backfill plans by these, and a forgotten job
#: gives its GPUs back.
_TIMES = {"DefaultTime": "1-00:00:00", "MaxTime": "7-00:00:00"}


def partition_defaults(cluster: Cluster, partition: Partition) -> dict[str, str]:
    """Return the parameters of a partition that the site leaves open, by Slurm's names.

    Memory (MB) and processors are an equal share of the smallest node: by processor, and by GPU for jobs that ask for
    GPUs where every node has some. slurm.conf(5) calls the two mutually exclusive; slurmctld 24.11 takes both, and
    gives a job with GPUs its share by GPU and any other its share by processor (tried: --gres, --gpus and neither).
    """
    declared = {name.lower() for name, _ in partition.parameters}
    everywhere = {name.lower() for name, value in cluster.slurm_parameters.items() if value is not None}
    nodes = list(_hardware(cluster, partition))
    with_gpus = [node for node in nodes if _gpus(node)]
    found: dict[str, str] = {}
    if not {name.lower() for name in _MEMORY} & (declared | everywhere):
        found["DefMemPerCPU"] = _least(_memory(node) // max(1, _cpus(node)) for node in nodes)
        if len(with_gpus) == len(nodes):
            found["DefMemPerGPU"] = _least(_memory(node) // _gpus(node) for node in with_gpus)
    if _PROCESSORS.lower() not in declared | everywhere:
        found[_PROCESSORS] = _least(_cpus(node) // _gpus(node) for node in with_gpus)
    found |= _times({name.lower(): value for name, value in partition.parameters})
    return {name: value for name, value in found.items() if value}


def _times(declared: Mapping[str, str]) -> dict[str, str]:
    """Return the times that are left open, next to the one that is not: no job may start whose default is too long."""
    default, most = declared.get("defaulttime"), declared.get("maxtime")
    found = dict(_TIMES)
    if most is not None:
        found = {"DefaultTime": min(_TIMES["DefaultTime"], most, key=_length)}
    if default is not None:
        found = {} if most is not None else {"MaxTime": max(_TIMES["MaxTime"], default, key=_length)}
    return found


def _length(time: str) -> float:
    """Return the minutes of a time of Slurm's; without end for one that has none."""
    days, dash, rest = time.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in (*parts, *([days] if dash else []))) or len(parts) > 3:
        return math.inf
    # After days, and where there are three, hours come first; else minutes do.
    first = 60.0 if dash or len(parts) == 3 else 1.0
    told = sum(int(part) * first / 60.0**place for place, part in enumerate(parts))
    return told + int(days or 0) * 1440


def _hardware(cluster: Cluster, partition: Partition) -> Iterable[Hardware]:
    """Return each kind of hardware once, by identity: nodes of a kind mostly share one object."""
    members = None if partition.nodes is None else set(partition.nodes)
    nodes = (node for node in cluster.nodes if members is None or node.name in members)
    return {id(node.hardware): node.hardware for node in nodes}.values()


def _memory(node: Hardware) -> int:
    return (node.real_memory or 0) - (node.mem_spec_limit or 0)


def _cpus(node: Hardware) -> int:
    """Return the processors that jobs have: CoreSpecCount keeps cores from them, CPUSpecList names processors."""
    kept = dict(node.parameters)
    cores = (node.sockets or 0) * (node.cores_per_socket or 0)
    threads = (node.cpus or 0) // cores if cores else node.threads_per_core or 1
    named = (word.partition("-") for word in kept.get("CPUSpecList", "").split(",") if word)
    listed = sum(int(last or first) - int(first) + 1 for first, _, last in named)
    return max(0, (node.cpus or 0) - number(kept.get("CoreSpecCount", "0")) * threads - listed)


def _gpus(node: Hardware) -> int:
    return sum(gres.count for gres in node.gres or () if gres.name == "gpu")


def _least(shares: Iterable[int]) -> str:
    """Return the smallest share as text; nothing where there is none, or less than one."""
    least = min(shares, default=0)
    return str(least) if least > 0 else ""
