"""Which jobs prove which nodes: nodes that can train together are in one job, and whoever is left out is named. Pure.

A job's ranks are alike: nodes with as many GPUs each, or none. It is in one partition. It waits for nobody: a node that
is busy or out of service is left out, because the others can be proven now.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from provision.judge.ddp_evidence import one_line

#: States in which Slurm can start a job on a node that shares it with nobody. Completing ends by itself.
_FREE = frozenset({"idle", "completing", "planned"})
#: And one whose job uses the reservation that keeps it from all others.
_RESERVED = frozenset({"reserved", "maint"})
_BUSY = frozenset({"allocated", "mixed", "blocked"})


@dataclass(frozen=True)
class Job:
    """One job to submit: ranks by node, GPUs on each of them, and the partition."""

    ranks: Mapping[str, int]
    gpus: int
    partition: str

    def as_dict(self) -> dict[str, object]:
        """Return it as ddp_submit.py reads it."""
        return {"expect": dict(self.ranks), "gpus": self.gpus, "partition": self.partition}


@dataclass(frozen=True)
class Plan:
    """The jobs, and why the other nodes take no part: ``busy`` and ``apart`` are healthy, ``out`` is a problem."""

    jobs: Sequence[Job] = ()
    busy: Mapping[str, str] = field(default_factory=dict)
    apart: Mapping[str, str] = field(default_factory=dict)
    out: Mapping[str, str] = field(default_factory=dict)
    silent: str = ""


@dataclass(frozen=True)
class _Seen:
    """What Slurm says about one node: its state, why it is out, and its partitions that are up: for all, for others."""

    state: str
    reason: str
    partitions: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()


def _seen(sinfo: str, foreign: Collection[str]) -> tuple[dict[str, _Seen], str]:
    """Return the nodes of ``sinfo --Node --format=%N|%P|%a|%T|%E`` by name, and the default partition.

    sinfo shows a user no partition of others' groups; those of others' accounts and QOS are ``foreign``.
    """
    found: dict[str, _Seen] = {}
    default = ""
    for line in sinfo.splitlines():
        parts = line.strip().split("|", 4)
        if len(parts) != 5:
            continue
        node, partition, up, state, reason = parts
        name = partition.rstrip("*")
        if partition.endswith("*"):
            default = name
        own = found.get(node, _Seen("", ""))
        ups, closed = own.partitions, own.foreign
        if name in foreign:
            closed = (*closed, name)
        elif up == "up":
            ups = (*ups, name)
        found[node] = _Seen(state.lower(), one_line(reason, 200), ups, closed)
    return found, default


def _free(seen: _Seen, reserved: bool) -> bool:
    free = _FREE | _RESERVED if reserved else _FREE
    return re.sub(r"[~+\-]+$", "", seen.state) in free  # with ~ Slurm switches it on, with - it is planned for a job


def _unable(seen: _Seen | None, unfit: str, partition: str, reserved: bool) -> str:
    """Return why no job can run on a node; empty where one can. ``unfit`` is what is known beside Slurm."""
    if seen is None:
        return "it is in no partition that the test user may use"
    if unfit:
        return one_line(unfit, 200)
    if not _free(seen, reserved):
        return f"{seen.state}: {seen.reason}" if seen.reason not in ("", "none") else seen.state
    return "" if seen.partitions or seen.foreign or partition else "all its partitions are down"


def _elsewhere(seen: _Seen, partition: str) -> str:
    """Return why a node is not for the test user's jobs in this partition; empty where it is."""
    if partition and partition not in seen.partitions:
        return f"it is not in the partition {partition}, or that is down"
    return "" if seen.partitions else f"the test user may not use partition {', '.join(seen.foreign)}"


def divided(gres: object, mig: object) -> bool:
    """Tell whether a node declares MIG instances, by their layout or by a type such as 1g.10gb."""
    listed = gres if isinstance(gres, str) else ",".join(map(str, gres)) if isinstance(gres, Sequence) else ""
    return bool(mig) or re.search(r"\b[0-9]+g\.[0-9]+gb\b", listed) is not None


def plan(
    sinfo: str,
    ranks: Mapping[str, int],
    gpus: Mapping[str, int],
    *,
    mig: Collection[str] = (),
    scope: Collection[str] = (),
    partition: str = "",
    unfit: Mapping[str, str] | None = None,
    foreign: Collection[str] = (),
    reserved: bool = False,
) -> Plan:
    """Return the jobs that prove these nodes.

    Args:
        sinfo: what Slurm said, as the test user sees it.
        ranks: of every declared compute node; ``gpus`` what it declares.
        mig: nodes whose GPUs are divided.
        scope: the nodes of this run.
        partition: the one to take; empty for as many as it needs.
        unfit: nodes that can run no job whatever slurmctld says of them, with the reason; Slurm hears of a node that is
            lost only after a while, and a job that is given one waits for it.
        foreign: partitions that are not for the test user, whatever sinfo shows.
        reserved: the jobs use the reservation that the nodes of this run are in.
    """
    unfit = unfit or {}
    seen, default = _seen(sinfo, foreign)
    if not seen:
        return Plan(silent="slurmctld did not list its nodes")
    busy: dict[str, str] = {}
    apart: dict[str, str] = {}
    out: dict[str, str] = {}
    kinds: dict[int, list[str]] = defaultdict(list)
    for node in ranks:
        known = seen.get(node)
        if node not in scope:
            apart[node] = "it is outside this run"
        elif node in mig:
            apart[node] = "MIG: no training on its instances is tried, because NCCL takes no two instances of one GPU"
        elif known and known.state.rstrip("*+-~#$@!%^") in _BUSY and not known.state.endswith("*"):
            busy[node] = "busy with other jobs"
        elif why := _unable(known, unfit.get(node, ""), partition, reserved):
            out[node] = why
        elif known and (why := _elsewhere(known, partition)):
            apart[node] = why
        else:
            kinds[gpus.get(node, 0)].append(node)
    jobs = []
    for number, nodes in sorted(kinds.items(), reverse=True):
        for name, members in _cover({node: seen[node].partitions for node in nodes}, partition or default).items():
            jobs.append(Job({node: ranks[node] for node in members}, number, name))
    return Plan(jobs, busy, apart, out)


def _cover(partitions: Mapping[str, Sequence[str]], first: str) -> dict[str, list[str]]:
    """Return nodes by partition, each node once, the largest partition first; ``first`` wins a tie."""
    left, found = dict(partitions), dict[str, list[str]]()
    while left:
        members: dict[str, list[str]] = defaultdict(list)
        for node, names in left.items():
            for name in names:
                members[name].append(node)
        largest = max(members, key=lambda name: (len(members[name]), name == first))
        found[largest] = members[largest]
        for node in members[largest]:
            del left[node]
    return found
