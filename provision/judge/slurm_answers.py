"""What Slurm answered, as types. What is not as Slurm prints it is left out, and never an error. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from provision.model.slurm_json import document, entries, number, within, words
from provision.model.text import clean
from provision.slurm.admission import Admission

#: A name as Slurm has them. Another one is no name, and nothing is known about what it stands for.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")

#: Base states in which a node takes jobs, and the others (node_states.c, 24.11).
HEALTHY = frozenset({"IDLE", "MIXED", "ALLOCATED"})
_BASES = HEALTHY | {"DOWN", "UNKNOWN", "ERROR", "FUTURE", "INVALID"}
#: Flags with which a node still takes jobs: a job that ends holds its own cores only, a planned one waits for its turn.
_HARMLESS = frozenset(
    {"COMPLETING", "PLANNED", "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE", "RESUME", "UNDRAIN", "EXTERNAL"}
)

#: Where a partition says who may use it: the parsers of PARTITION_INFO in src/plugins/data_parser.
_ADMISSION = {
    "AllowGroups": ("groups", "allowed"),
    "AllowAccounts": ("accounts", "allowed"),
    "DenyAccounts": ("accounts", "deny"),
    "AllowQos": ("qos", "allowed"),
    "DenyQos": ("qos", "deny"),
    "AllocNodes": ("nodes", "allowed_allocation"),
}


def line(value: Any) -> str:
    """Return a text on one line, fit for a report; nothing for what is no text."""
    return " ".join(clean(value, 300).split()) if isinstance(value, str) else ""


def _long_line(value: Any) -> str:
    """Return a text that no report shows: a list of accounts may be long."""
    return clean(value, 20_000) if isinstance(value, str) else ""


def pairs(text: str, between: str | None = None) -> dict[str, str]:
    """Return what a text such as ``job=7 node=node1`` says, by name; ``between`` separates, else blanks do."""
    return dict(part.partition("=")[::2] for part in text.split(between) if part)


def _entries(text: str, key: str) -> list[Mapping[str, Any]]:
    return entries(document(text), key)


def named(value: Any) -> str:
    """Return a name, or nothing where it is none that Slurm would accept."""
    return value if isinstance(value, str) and _NAME.fullmatch(value) else ""


@dataclass(frozen=True)
class Node:
    """One node as slurmctld describes it. Memory in MiB; ``gres`` and ``gres_used`` as Slurm prints them.

    ``reason_by`` is whose the reason is: that of slurmctld's own is slurm's; ``reason_at`` since when, in seconds since
    1970, 0 where there is none.
    """

    name: str
    state: tuple[str, ...] = ()
    reason: str = ""
    reason_by: str = ""
    reason_at: int = 0
    gres: str = ""
    gres_used: str = ""
    version: str = ""
    address: str = ""
    reservation: str = ""
    partitions: tuple[str, ...] = ()
    port: int = 0
    cpus: int = 0
    cpus_used: int = 0
    threads: int = 0
    memory: int = 0
    memory_used: int = 0

    @property
    def known(self) -> bool:
        """True where the state has one base and only words that Slurm has."""
        return len(set(self.state) & _BASES) == 1

    @property
    def fit(self) -> bool:
        """True where the node takes jobs: a healthy base, and no flag that keeps them away or that nobody knows."""
        return self.open_to("")

    def open_to(self, reservation: str) -> bool:
        """Tell whether the node takes jobs that use this reservation, which keeps all others away from it."""
        own = {"RESERVED", "MAINTENANCE"} if reservation and reservation == self.reservation else set()
        return self.known and bool(set(self.state) & HEALTHY) and self.hindered <= own

    @property
    def set_down(self) -> bool:
        """True where the node answers, and an administrator has set it DOWN: it stays so until one takes that back."""
        silent = {"NOT_RESPONDING", "UNKNOWN"} & set(self.state)
        return "DOWN" in self.state and not silent and self.reason_by not in ("", "slurm")

    @property
    def hindered(self) -> frozenset[str]:
        """What keeps jobs away beside the base state."""
        return frozenset(self.state) - _BASES - _HARMLESS

    @property
    def told(self) -> str:
        """The state in Slurm's words, with the reason that was given for it."""
        return "+".join(self.state) + (f" ({self.reason})" if self.reason else "")


@dataclass(frozen=True)
class Partition:
    """One partition, with who may use it. ``exclusive``: a job has the nodes that it is on for itself."""

    name: str
    state: tuple[str, ...] = ()
    admission: Admission = field(default_factory=Admission)
    exclusive: bool = False

    @property
    def up(self) -> bool:
        """True where jobs start in it."""
        return self.state == ("UP",)


@dataclass(frozen=True)
class Job:
    """One job in the queue. ``nodes`` is a hostlist; ``ends`` is its limit in seconds since 1970, 0 for none."""

    id: int
    name: str = ""
    user: str = ""
    state: tuple[str, ...] = ()
    nodes: str = ""
    reason: str = ""
    ends: int = 0


def nodes_in(text: str) -> dict[str, Node]:
    """Return the nodes of ``scontrol show nodes --json`` by name."""
    found: dict[str, Node] = {}
    for entry in _entries(text, "nodes"):
        if name := named(entry.get("name")):
            partitions = entry.get("partitions")
            found[name] = Node(
                name=name,
                state=words(entry.get("state")),
                reason=line(entry.get("reason")),
                reason_by=line(entry.get("reason_set_by_user"))[:40],
                reason_at=number(entry.get("reason_changed_at")),
                gres=line(entry.get("gres")),
                gres_used=line(entry.get("gres_used")),
                version=line(entry.get("version"))[:40],
                address=line(entry.get("address")),
                reservation=line(entry.get("reservation")),
                partitions=tuple(filter(None, map(named, partitions[:200]))) if isinstance(partitions, list) else (),
                port=number(entry.get("port")),
                cpus=number(entry.get("cpus")),
                cpus_used=number(entry.get("alloc_cpus")),
                threads=number(entry.get("threads")),
                memory=number(entry.get("real_memory")),
                memory_used=number(entry.get("alloc_memory")),
            )
    return found


def partitions_in(text: str) -> dict[str, Partition]:
    """Return the partitions of ``scontrol show partitions --json`` by name."""
    found: dict[str, Partition] = {}
    for entry in _entries(text, "partitions"):
        if name := named(entry.get("name")):
            said = {parameter: _long_line(within(entry, *path)) for parameter, path in _ADMISSION.items()}
            # OverSubscribe as a number of jobs: EXCLUSIVE is 0, and NO is 1.
            jobs = within(entry, "maximums", "oversubscribe", "jobs")
            exclusive = isinstance(jobs, int) and not isinstance(jobs, bool) and jobs == 0
            found[name] = Partition(
                name, words(within(entry, "partition", "state")), Admission.of(said), exclusive=exclusive
            )
    return found


def jobs_in(text: str) -> list[Job]:
    """Return the jobs of ``squeue --json``."""
    return [
        Job(
            id=number(entry.get("job_id")),
            name=line(entry.get("name")),
            user=line(entry.get("user_name")),
            state=words(entry.get("job_state")),
            nodes=line(entry.get("nodes")),
            reason=line(entry.get("state_reason")),
            ends=number(entry.get("end_time")),
        )
        for entry in _entries(text, "jobs")
    ]


def settled(text: str, scope: list[str]) -> bool:
    """Tell whether waiting longer is pointless: every node of the scope takes jobs, or is out for a reason.

    A node that slurmctld has not heard from yet is worth waiting for.
    """
    nodes = nodes_in(text)
    waiting = {"UNKNOWN", "NOT_RESPONDING", "DOWN", "INVALID_REG"}
    return bool(nodes) and all(
        name in nodes and (nodes[name].fit or nodes[name].set_down or not waiting & set(nodes[name].state))
        for name in scope
    )


def places(nodes: Iterable[Node]) -> list[str]:
    """Return name and port of each node's slurmd, flat, as roles/slurm_service/files/reach-nodes takes them."""
    return [word for node in nodes for word in (node.name, str(node.port or 6818))]


def status(nodes: str, jobs: str, reached: str = "") -> dict[str, Any]:
    """Return nodes and jobs as ``clusterctl status`` shows them, from ``--json`` of scontrol and squeue.

    ``reached`` is what reach-nodes printed: ``connection`` of a node is its word for it, empty where it was not asked.
    """
    words = (line.split() for line in reached.splitlines())
    connections = {found[0]: found[-1] for found in words if len(found) == 3}
    return {
        "nodes": [
            {
                "name": node.name,
                "state": list(node.state),
                "cpus": node.cpus,
                "gres": node.gres,
                "gres_used": node.gres_used,
                "reason": node.reason,
                "reason_by": node.reason_by,
                "reason_at": node.reason_at,
                "reservation": node.reservation,
                "connection": connections.get(node.name, ""),
            }
            for node in nodes_in(nodes).values()
        ],
        "jobs": [
            {
                "id": job.id,
                "name": job.name,
                "user": job.user,
                "state": list(job.state),
                "nodes": job.nodes,
                "reason": job.reason,
                "ends": job.ends,
            }
            for job in jobs_in(jobs)
        ],
    }
