"""On which nodes a proof's job can be tried, in which partition, and why not on the others. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from provision.errors import ClusterctlError
from provision.hostlist import expand
from provision.judge.slurm_answers import Node, Partition, nodes_in, partitions_in
from provision.judge.slurm_facts import Facts
from provision.model.gres import printed
from provision.model.text import sections
from provision.slurm.admission import Submitter, looks_at_accounts

#: MiB that a job asks for which only proves something.
MEMORY = 64


@dataclass(frozen=True)
class Refusal:
    """Why no job is tried on a node. ``ordinary`` where that is no fault: others use it, or it is not for this user."""

    why: str
    ordinary: bool = False


@dataclass(frozen=True)
class Plan:
    """The jobs to submit: node, partition and GRES ("-" for none) of each, and what is not tried, by node."""

    targets: Sequence[tuple[str, str, str]] = ()
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    without_gpu: Mapping[str, str] = field(default_factory=dict)
    holders: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        """The targets as a script's arguments."""
        return [word for target in self.targets for word in target]

    def as_dict(self, name: str) -> dict[str, Any]:
        """Return what concerns one node, as plain types."""
        refusal = self.refused.get(name)
        return {
            "refused": refusal.why if refusal else "",
            "ordinary": bool(refusal and refusal.ordinary),
            "without_gpu": self.without_gpu.get(name, ""),
            "holders": list(self.holders.get(name, ())),
        }


def submitter(controller: str, who: Submitter) -> Submitter:
    """Return who submits, with what slurmctld itself says of whether it looks at accounts; unsaid, it may."""
    said = re.search(r"(?m)^AccountingStorageEnforce\s*=\s*(\S{1,200})", sections(controller).get("config", ""))
    return replace(who, enforced=looks_at_accounts(said[1])) if said else who


def foreign(controller: str, who: Submitter) -> dict[str, str]:
    """Return the partitions that are not for the proof's user, each with the parameter that says so."""
    partitions = partitions_in(sections(controller).get("partitions", ""))
    found = {name: partition.admission.keeps_out(who) for name, partition in partitions.items()}
    return {name: parameter for name, parameter in found.items() if parameter}


def plan(controller: str, scope: Iterable[str], who: Submitter, machines: Mapping[str, str]) -> Plan:
    """Return which jobs to submit.

    ``controller`` is what its script printed about nodes, partitions and the queue, ``who`` submits them, ``machines``
    what each compute node's script printed: where slurmd is stopped or hung there is nothing to wait for, although
    slurmctld may not know it yet.
    """
    facts = Facts.of("", controller, "")
    nodes = nodes_in(facts.controller.get("nodes", ""))
    partitions = partitions_in(facts.controller.get("partitions", ""))
    closed = foreign(controller, who)
    holders = _holders(facts.controller.get("queue", ""))
    targets: list[tuple[str, str, str]] = []
    refused: dict[str, Refusal] = {}
    without: dict[str, str] = {}
    for name in scope:
        node = nodes.get(name)
        if node is None:
            refused[name] = Refusal(facts.silent or "slurmctld does not know this node")
            continue
        machine = machines.get(name, "")
        partition, refusal = _partition(node, partitions, closed)
        own = Facts.of(machine, "", "") if machine else None
        stop = _unfit(node, own, who.reservation) or refusal or _full(node, holders)
        if stop or not partition:
            refused[name] = stop or Refusal("the node is in no partition")
            continue
        gres = "-"
        if total := gpus_in(node.gres):
            gres = "gpu:1"
            if gpus_in(node.gres_used) >= total:
                gres, without[name] = "-", f"all {total} GPUs are in use by {_jobs(holders.get(name, ()))}"
        targets.append((name, partition, gres))
    return Plan(targets, refused, without, holders)


def _unfit(node: Node, own: Facts | None, reservation: str) -> Refusal | None:
    if not node.open_to(reservation):
        reserved = node.known and node.hindered == {"RESERVED"}
        return Refusal(f"the node is {node.told}" + (f": {node.reservation}" if reserved else ""), ordinary=reserved)
    # A job's end would not be heard either, and its node be lost to all others.
    if own and (silent := own.slurmd_silent or own.slurmctld_deaf):
        return Refusal(silent)
    return None


def _partition(
    node: Node, partitions: Mapping[str, Partition], foreign: Mapping[str, str]
) -> tuple[str, Refusal | None]:
    """Return the first of the node's partitions that is up and that the test user may use."""
    closed, others = [], []
    for name in node.partitions:
        partition = partitions.get(name)
        if partition is None or not partition.up:
            closed.append(f"{name} is {'+'.join(partition.state) if partition else 'not listed'}")
        elif name in foreign:
            others.append(f"{name} ({foreign[name]})")
        else:
            return name, None
    if others:
        return "", Refusal(f"the test user may not use partition {', '.join(others)}", ordinary=not closed)
    return "", Refusal(f"partition {', '.join(closed)}") if closed else None


def _full(node: Node, holders: Mapping[str, Sequence[str]]) -> Refusal | None:
    """Return why Slurm cannot start a job at once: all cores or all memory are allocated to others' jobs."""
    cores = node.cpus and node.cpus_used >= node.cpus
    memory = node.memory and node.memory_used > node.memory - MEMORY
    if not cores and not memory:
        return None
    jobs = holders.get(node.name, ())
    return Refusal(f"all its {'cores' if cores else 'memory'} are in use by {_jobs(jobs)}", ordinary=bool(jobs))


def _jobs(jobs: Sequence[str]) -> str:
    return f"job {', '.join(jobs[:5])}" + (f" and {len(jobs) - 5} more" if len(jobs) > 5 else "") if jobs else "no job"


def _holders(queue: str) -> dict[str, list[str]]:
    """Return the running jobs of others by node, from lines ``ID USER STATE NODES``."""
    found: dict[str, list[str]] = {}
    for job, user, nodes in re.findall(
        r"(?m)^(\d{1,10}\S{0,20}) ([\w.@-]{1,64}) (?:RUNNING|COMPLETING) (\S{1,20000})$", queue
    ):
        try:
            names = expand(nodes)
        except ClusterctlError:
            continue
        for name in names:
            found.setdefault(name, []).append(f"{job} ({user})")
    return found


def gpus_in(text: str) -> int:
    """Return how many GPUs Slurm's words count; 0 where they are none, which the check of GRES says."""
    try:
        return sum(one.count for one in printed(text) if one.name == "gpu")
    except ValueError:
        return 0
