"""What one slurm.conf takes away from what another has given, and which jobs that ends. Pure.

Measured with Slurm 24.11.5 and 26.05.5: a node that is taken out ends the jobs on it, and fails waiting jobs that name
it at once. Of nodes that stay, jobs are ended whose sockets, cores or GRES are others now (valid_job_resources() in
src/common/job_resources.c, gres_job_revalidate2() in src/interfaces/gres.c), and those of a partition that is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from provision import hostlist
from provision.errors import ClusterctlError
from provision.model import gres
from provision.slurm.candidate import lines
from provision.slurm.names import NEW_NODES

#: What a job's cores are counted by: slurm.conf(5), NodeName.
_SHAPE = ("boards", "sockets", "corespersocket", "threadspercore", "cpus")
#: Of squeue(1), --format: number, user, state, partitions, nodes it has, nodes it names, GRES it asks for on each.
FORMAT = "%i|%u|%T|%P|%N|%n|%b"


class Job(NamedTuple):
    """A job as squeue prints it by ``FORMAT``; empty where it has none."""

    number: str
    user: str
    state: str
    partition: str
    nodes: str
    named: str
    gres: str


class Loss(NamedTuple):
    """What would end: a job with its user, or a reservation; and why.

    ``runs`` are the nodes of a job that runs: when it has ended the change may come. Nobody waits for a pending one.
    """

    what: str
    why: str
    runs: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Taken:
    """What is not there any more. ``shape`` and ``gres``: nodes that stay, with other cores, or fewer resources.

    ``kinds``: resources that no node has any more, as ``gpu:a100``. ``everything``: the plugin that selects resources
    is another one, which ends all jobs.
    """

    nodes: frozenset[str] = frozenset()
    shape: frozenset[str] = frozenset()
    gres: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    everything: bool = False


@dataclass
class _Conf:
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    partitions: set[str] = field(default_factory=set)
    select: str = ""

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(kind for node in self.nodes.values() for kind in _counts(node))


def taken(before: str, after: str) -> Taken:
    """Return what ``after`` takes away from ``before``, both texts of slurm.conf.

    Raises:
        ValueError: one of them cannot be read.
    """
    old, new = _conf(before), _conf(after)
    both = old.nodes.keys() & new.nodes.keys()
    return Taken(
        nodes=frozenset(old.nodes.keys() - new.nodes.keys()),
        shape=frozenset(name for name in both if _shape(old.nodes[name]) != _shape(new.nodes[name])),
        gres=frozenset(name for name in both if _fewer(_counts(old.nodes[name]), _counts(new.nodes[name]))),
        partitions=frozenset(old.partitions - new.partitions),
        kinds=frozenset(kind for kind in old.kinds if not _of_kind(dict.fromkeys(new.kinds, 1), kind)),
        everything=old.select != new.select,
    )


def jobs_in(text: str) -> list[Job]:
    """Return the jobs that squeue has printed by ``FORMAT``.

    Raises:
        ValueError: a line is none of squeue's.
    """
    found = []
    for line in text.splitlines():
        words = line.split("|")
        if len(words) != len(Job._fields) or not words[0][:1].isdigit():
            raise ValueError(f"squeue does not print such a line: {line[:100]}")
        found.append(Job(*("" if word in ("N/A", "(null)") else word for word in words)))
    return found


def losses(change: Taken, jobs: Iterable[Job], reservations: Mapping[str, str] | None = None) -> list[Loss]:
    """Return what a change ends; ``reservations`` are the nodes of each, as a hostlist."""
    lost = [
        Loss(f"job {job.number} ({job.user})", why, frozenset(_names(job.nodes)))
        for job in jobs
        if (why := next(_reasons(change, job), ""))
    ]
    for name, nodes in (reservations or {}).items():
        if name != NEW_NODES and (gone := change.nodes & _names(nodes)):
            lost.append(Loss(f"reservation {name}", f"loses {hostlist.fold(gone)}"))
    return lost


def _reasons(change: Taken, job: Job) -> Iterator[str]:
    partitions = set(job.partition.split(","))
    if partitions <= change.partitions:
        yield f"is in partition {job.partition}, which is removed"
    if job.state == "PENDING":
        if gone := change.nodes & _names(job.named):
            yield f"waits for {hostlist.fold(gone)}, which is removed"
        if asked := [kind for kind in change.kinds if f"{kind}:" in f"{job.gres}:".replace("gres/", "").lower()]:
            yield f"waits for {asked[0]}, which no node has any more"
        return
    on = _names(job.nodes)
    if change.everything:
        yield "runs, and SelectType is another one"
    if gone := change.nodes & on:
        yield f"runs on {hostlist.fold(gone)}, which is removed"
    if other := change.shape & on:
        yield f"runs on {hostlist.fold(other)}, whose sockets or cores change"
    if job.gres and (fewer := change.gres & on):
        yield f"runs with {job.gres} on {hostlist.fold(fewer)}, which has less"


def _names(text: str) -> set[str]:
    with suppress(ClusterctlError):
        return set(hostlist.expand(text)) if text else set()
    return {text}


def _conf(text: str) -> _Conf:
    found = _Conf()
    for _, settings in lines(text):
        given = {name.lower(): value.strip('"') for name, value in settings}
        kind = settings[0][0].lower()
        if kind == "selecttype":
            found.select = given[kind].lower()
        elif kind == "partitionname":
            found.partitions.add(given[kind])
        elif kind == "nodename":
            try:
                names = hostlist.expand(given["nodename"])
            except ClusterctlError as error:
                raise ValueError(str(error)) from error
            found.nodes |= dict.fromkeys(names, given)
    return found


def _shape(node: Mapping[str, str]) -> dict[str, str]:
    return {key: node[key] for key in _SHAPE if key in node}


def _counts(node: Mapping[str, str]) -> dict[str, int]:
    """Return how many resources of each kind a NodeName line declares.

    Raises:
        ValueError: it is not as Slurm reads them.
    """
    return gres.counts(gres.parse(node.get("gres", "")))


def _fewer(old: Mapping[str, int], new: Mapping[str, int]) -> bool:
    return any(_of_kind(new, kind) < count for kind, count in old.items())


def _of_kind(counts: Mapping[str, int], kind: str) -> int:
    """Return how many there are of a kind; those of every type where it has none."""
    return sum(count for name, count in counts.items() if name == kind or name.startswith(f"{kind}:"))
