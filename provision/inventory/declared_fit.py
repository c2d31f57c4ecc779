"""Partitions against what the cluster has: nodes, their memory and generic resources, and machines to submit from."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from provision import hostlist
from provision.errors import ClusterctlError, did_you_mean
from provision.model.cluster import Cluster, Hardware, Partition
from provision.model.gres import Gres
from provision.slurm.parameters import ON
from provision.slurm.parameters_here import NEVER, Wrong

#: Of a job that says nothing of memory, and the most that it may ask for.
_MEMORY = (("DefMemPerNode", "MaxMemPerNode"), ("DefMemPerCPU", "MaxMemPerCPU"))
#: MB: MinRAMSpace in cgroup.conf(5), which a job has at least.
_LEAST = 30
#: Slurm's own, of each GPU: slurm.conf(5).
_OF_GPUS = ("gpumem", "gpuutil")


def require_fit(cluster: Cluster, hosts: Collection[str]) -> None:
    """Refuse partitions in which no job could start, or that name what the cluster has not.

    ``hosts`` are the inventory's machines.

    Raises:
        ClusterctlError: it names the parameter, with what was meant.
    """
    everywhere = {name.lower(): value for name, value in cluster.slurm_parameters.items() if isinstance(value, str)}
    kinds = {node.name: node.hardware for node in cluster.nodes}
    gres = [hardware.gres for hardware in {id(one): one for one in kinds.values()}.values()]
    require_weighed(cluster.slurm_parameters, gres)
    _require_whole(cluster, everywhere)
    for number, partition in enumerate(cluster.partitions):
        own = dict(partition.parameters)
        named = kinds if partition.nodes is None else partition.nodes
        hardware = list({id(kinds[name]): kinds[name] for name in named}.values())
        for wrong in (
            _nodes(own, len(named)),
            _memory(own, everywhere, hardware),
            _submitted(own, hosts),
            _suspended(own, everywhere),
            _preempted(own, everywhere),
            _unknown_gres("TRESBillingWeights", own.get("TRESBillingWeights", ""), gres),
        ):
            if wrong:
                name, problem, fix = wrong
                problem = f"partition {partition.name}: {problem}"
                raise ClusterctlError(problem, fix=fix, entry=_entry(number, partition, name, everywhere))


def _require_whole(cluster: Cluster, everywhere: Mapping[str, str]) -> None:
    """Refuse parameters with which no node could be in the cluster, or no job could start on any."""
    count = len(cluster.nodes)
    for name, problem, fix in (*_counts(everywhere, count), *_old_control_groups(cluster, everywhere)):
        spelt = next(key for key in cluster.slurm_parameters if key.lower() == name.lower())
        entry = ("slurm_conf_parameters", None, spelt)
        raise ClusterctlError(f"slurm_conf_parameters: {problem}", fix=fix, entry=entry)
    memory = [node.hardware.real_memory or 0 for node in cluster.nodes]
    for name, value in cluster.cgroup_parameters.items():
        if name.lower() == "minramspace" and value and value.isdecimal() and 0 < min(memory) < int(value):
            raise ClusterctlError(
                f"slurm_conf_cgroup_parameters: {name} is {value} MB, and a node has {min(memory)}: each of its jobs "
                "would be given more than there is",
                fix=f"lower {name}; it is in MB, and 30 where it is left out",
                entry=("slurm_conf_cgroup_parameters", None, name),
            )


def _counts(everywhere: Mapping[str, str], count: int) -> Iterator[Wrong]:
    most = everywhere.get("maxnodecount", "")
    if most.isdecimal() and int(most) < count:
        problem = f"MaxNodeCount is {most}, and there are {count} compute nodes: slurmctld would not start"
        yield "MaxNodeCount", problem, f"write {count} or more, or remove it"
    low, _, high = everywhere.get("srunportrange", "").partition("-")
    # slurm.conf(5): srun listens on 3, and on 2 more for every 48 hosts.
    least = 3 + 2 * math.ceil(count / 48)
    if high and int(high) - int(low) + 1 < least:
        problem = f"SrunPortRange has {int(high) - int(low) + 1} ports, and one srun on all nodes takes {least}"
        yield "SrunPortRange", problem, "give it hundreds, for the sruns of a machine together: 60001-63000 is ours"


def _old_control_groups(cluster: Cluster, everywhere: Mapping[str, str]) -> Iterator[Wrong]:
    if not (cluster.cgroup_v1_allowed and cluster.cgroup_v1):
        return
    for name in ("TaskPlugin", "ProctrackType", "JobAcctGatherType"):
        words = everywhere.get(name.lower(), "").lower().split(",")
        if found := next((word for word in words if word.endswith("/cgroup")), ""):
            nodes = hostlist.fold(cluster.cgroup_v1)
            problem = f"{name} has {found}, and {nodes} has cgroup v1, with which slurmd would not start"
            yield name, problem, f"remove {name}: then it is what nodes of both kinds can use"


def _entry(number: int, partition: Partition, name: str, everywhere: Mapping[str, str]) -> tuple[str, int | None, str]:
    """Return where a parameter stands: in the partition, else among those of slurm.conf."""
    if name not in dict(partition.parameters) and name.lower() in everywhere:
        return "slurm_conf_parameters", None, name
    return "slurm_partitions", number, name


def _nodes(own: Mapping[str, str], count: int) -> Wrong | None:
    least = own.get("MinNodes", "")
    if least.isdecimal() and int(least) > count:
        return "MinNodes", f"MinNodes is {least}, and it has {count} nodes: no job could start", "lower MinNodes"
    return None


def _memory(own: Mapping[str, str], everywhere: Mapping[str, str], hardware: Sequence[Hardware]) -> Wrong | None:
    """Return what is wrong with what a job has by default, and at most.

    Of memory by node and by processor a partition has the one that it sets, and slurm.conf's where it sets neither:
    _build_single_partitionline_info() in src/slurmctld/read_config.c. Of GPUs only nodes that have some are judged.
    """
    several, highest_of = (
        {name: own[name] for name in names if own.get(name)}
        or {name: everywhere[name.lower()] for name in names if everywhere.get(name.lower())}
        for names in zip(*_MEMORY, strict=True)
    )
    for name, limit in _MEMORY:
        if wrong := _one_memory(name, several.get(name, ""), limit, highest_of.get(limit, ""), hardware):
            return wrong
    with_gpus = [one for one in hardware if one.gres is None or any(item.name == "gpu" for item in one.gres)]
    of_gpu = own.get("DefMemPerGPU") or everywhere.get("defmempergpu", "")
    if with_gpus and (wrong := _one_memory("DefMemPerGPU", of_gpu, "", "", with_gpus)):
        return wrong
    cpus = own.get("DefCPUPerGPU") or everywhere.get("defcpupergpu", "")
    if cpus.isdecimal() and with_gpus and all(one.cpus for one in with_gpus):
        largest = max(one.cpus or 0 for one in with_gpus)
        if int(cpus) > largest:
            return "DefCPUPerGPU", f"DefCpuPerGPU is {cpus}, and no node has more than {largest}", "lower it"
    return None


def _one_memory(name: str, value: str, limit: str, highest: str, hardware: Sequence[Hardware]) -> Wrong | None:
    for one, megabytes in ((name, value), (limit, highest)):
        if megabytes.isdecimal() and 0 < int(megabytes) < _LEAST:
            return one, f"{one} is {megabytes}: it is in MB, and no job could start with that", "write it in MB"
    if not value.isdecimal():
        return None
    if highest.isdecimal() and 0 < int(highest) < int(value):
        return name, f"{name} {value} is more than {limit} {highest}", f"lower {name}, or raise {limit}"
    most = max(((one.real_memory or 0) - (one.mem_spec_limit or 0) for one in hardware), default=0)
    if hardware and all(one.real_memory for one in hardware) and int(value) > most:
        problem = f"{name} is {value} MB, and no node has more than {most}: no job could start that leaves it out"
        return name, problem, f"lower {name}; it is in MB"
    return None


def _submitted(own: Mapping[str, str], hosts: Collection[str]) -> Wrong | None:
    text = own.get("AllocNodes", "ALL")
    if text.upper() == "ALL":
        return None
    try:
        named = list(hostlist.expand(text))
    except ClusterctlError as error:
        return "AllocNodes", f"AllocNodes: {error.problem}", error.fix
    for name in named:
        if name not in hosts:
            fix = did_you_mean(name, hosts, f"write {name} under [slurm_login], or take it out")
            return "AllocNodes", f"AllocNodes names {name[:70]}, which is no machine of the inventory", fix
    return None


def _preempted(own: Mapping[str, str], everywhere: Mapping[str, str]) -> Wrong | None:
    mode = own.get("PreemptMode", "OFF")
    if mode.upper() != "OFF" and everywhere.get("preempttype", "preempt/none").lower() == "preempt/none":
        fix = "set PreemptType: preempt/partition_prio in slurm_conf_parameters"
        return "PreemptMode", f"PreemptMode is {mode} without PreemptType: no job would be preempted", fix
    if "SUSPEND" in mode.upper().split(",") and "GANG" not in everywhere.get("preemptmode", "").upper():
        fix = "set PreemptMode: 'SUSPEND,GANG' in slurm_conf_parameters"
        return "PreemptMode", "PreemptMode SUSPEND needs GANG for the whole cluster", fix
    return None


def _suspended(own: Mapping[str, str], everywhere: Mapping[str, str]) -> Wrong | None:
    missing = [name for name in ("SuspendProgram", "ResumeProgram") if name.lower() not in everywhere]
    told = " and ".join(missing)
    for name, is_set in (
        ("SuspendTime", own.get("SuspendTime", "").lower() not in NEVER),
        ("PowerDownOnIdle", own.get("PowerDownOnIdle", "").lower() in ON),
    ):
        if is_set and missing:
            return name, f"{name} is set without {told}: no node would be switched off", f"set {told}"
    return None


def require_weighed(declared: Mapping[str, Any], gres: Sequence[tuple[Gres, ...] | None]) -> None:
    """Refuse to have generic resources counted or weighed that no node has: Slurm would do nothing, without a word.

    Args:
        declared: the site's parameters of slurm.conf.
        gres: the generic resources of each node, None where they are not known before it is discovered.

    Raises:
        ClusterctlError: there is such a one.
    """
    for name in ("AccountingStorageTRES", "PriorityWeightTRES"):
        key, value = next(((key, str(item)) for key, item in declared.items() if key.lower() == name.lower()), ("", ""))
        if wrong := _unknown_gres(name, value, gres):
            raise ClusterctlError(
                f"slurm_conf_parameters: {wrong[1]}", fix=wrong[2], entry=("slurm_conf_parameters", None, key)
            )


def _unknown_gres(name: str, value: str, gres: Sequence[tuple[Gres, ...] | None]) -> Wrong | None:
    if None in gres or not value:
        return None
    known = {*_OF_GPUS, *(item.name for items in gres for item in items or ())}
    for word in re.findall(r"gres/([a-z]\w*)", value.lower()):
        if word not in known:
            near = difflib.get_close_matches(word, known, n=1)
            fix = f"did you mean gres/{near[0]}?" if near else f"remove it, or add {word} to node_gres of its nodes"
            return name, f"{name} is {value[:120]!r}: no node has gres/{word}", fix
    return None
