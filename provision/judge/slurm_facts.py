"""What is asked about Slurm on one machine, and what it should be. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from provision.judge.answers import mapping
from provision.judge.slurm_answers import line, nodes_in
from provision.model.slurm_json import number
from provision.model.text import MAX_ANSWER, sections

#: Seconds after its last start in which a container that the engine had to start again is taken for a failing one. The
#: engine waits for a minute at the most before it tries again.
YOUNG = 60


@dataclass(frozen=True)
class Wants:
    """What the inventory and the role want of one machine.

    ``daemons`` are its containers, ``image`` the one they run from ("" where it is not known), ``gres`` the inventory's
    node_gres, ``gpus`` whether slurmd is given the machine's real ones, ``memlock`` bytes (-1 is without limit),
    ``address`` the declared one, ``partitions`` the declared state by name. A node or partition that an administrator
    keeps from jobs fails only where the cluster is being ``verifying``. ``directories`` are those of cluster_mounts;
    ``home`` is ``shared`` where the test user's is, ``alone`` where there is no other machine. ``containers`` is what
    runs those of jobs. ``reservation`` is the one that the proof's jobs use.
    """

    host: str
    daemons: tuple[str, ...] = ()
    image: str = ""
    version: str = ""
    gres: object = ()
    gpus: bool = False
    simulated: tuple[str, ...] = ()
    memlock: int = -1
    address: str = ""
    partitions: Mapping[str, str] = field(default_factory=dict)
    verifying: bool = True
    directories: tuple[str, ...] = ()
    home: str = ""
    containers: str = "podman"
    reservation: str = ""

    @property
    def compute(self) -> bool:
        """True where jobs run on the machine."""
        return "slurmd" in self.daemons

    @property
    def controller(self) -> bool:
        """True where slurmctld runs."""
        return "slurmctld" in self.daemons


@dataclass(frozen=True)
class Container:
    """One container as the engine describes it. ``since`` is the seconds since its last start, None if not said."""

    status: str
    running: bool
    image: str = ""
    restarts: int = 0
    since: float | None = None
    memlock: tuple[int, int] | None = None

    @property
    def trouble(self) -> str:
        """Why it is not simply running; empty where it is."""
        if not self.running:
            return f"is {self.status or 'not running'}"
        # Once is what its restart policy is for; a daemon that keeps failing is restarted again within seconds.
        if self.restarts > 1 and self.since is not None and self.since < YOUNG:
            return f"was restarted {self.restarts} times, {self.since:.0f} s ago for the last time"
        return ""


@dataclass(frozen=True)
class Facts:
    """What was answered. ``machine`` and ``controller`` are the sections that the role's scripts printed there.

    ``silent`` says why the controller answered nothing, and is empty where it did.
    """

    machine: Mapping[str, str] = field(default_factory=dict)
    controller: Mapping[str, str] = field(default_factory=dict)
    silent: str = ""

    @classmethod
    def of(cls, machine: str, controller: str, problem: str) -> Facts:
        """Read what the scripts printed; ``problem`` is what the attempt to ask the controller ended with."""
        said = sections(controller)
        held_up = line(said.get("unasked", ""))
        silent = f"slurmctld could not be asked: {held_up}" if held_up else ""
        if not silent and not nodes_in(said.get("nodes", "")):
            silent = _why(said.get("nodes", ""), line(problem))
        return cls(sections(machine), said, silent)

    @property
    def engine_silent(self) -> str:
        """Why nothing is known of the containers; empty where the engine answered."""
        if "containers" not in self.machine:
            return "the machine did not answer"
        said = line(self.machine.get("engine", ""))
        if not said or re.search(r"No such (container|object)", said):
            return ""
        return "the container engine did not answer in time" if re.search(r"code (124|137)$", said) else said[:200]

    @property
    def containers(self) -> dict[str, Container]:
        """The containers of this machine by name."""
        return containers(self.machine.get("containers", ""), self.machine.get("now", ""))

    def trouble(self, daemon: str) -> str:
        """Return why a daemon's container does not run, empty where it does."""
        if silent := self.engine_silent:
            return silent
        found = self.containers.get(daemon)
        return f"{daemon} does not exist" if found is None else f"{daemon} {found.trouble}" if found.trouble else ""

    @property
    def munge_broken(self) -> str:
        """Why munge made no credential on this machine, without which no daemon can be asked. Empty where it did."""
        said, code = answered(self.machine.get("munge", ""))
        if code in (None, 0):
            return ""
        return (
            "munged did not answer in time" if code in (124, 137) else f"munge made no credential: {line(said)[:200]}"
        )

    @property
    def munge_silent(self) -> str:
        """Why slurmd could not be asked on this machine, where munge is the reason; empty where it is not."""
        return f"slurmd could not be asked: {why}" if (why := self.munge_broken) else ""

    @property
    def slurmctld_deaf(self) -> str:
        """Why slurmctld did not answer a daemon of this machine; empty where it did, or nobody asked."""
        said, code = answered(self.machine.get("ping", ""))
        if code is None or re.search(r" is UP\b", said):
            return ""
        return "slurmctld does not answer the node: another munge key, or a firewall before the controller"

    @property
    def slurmd_silent(self) -> str:
        """Why slurmd did not answer on its own machine, empty where it did."""
        if trouble := self.trouble("slurmd") or self.munge_silent:
            return trouble
        said, code = answered(self.machine.get("slurmd", ""))
        if code == 0 and re.search(r"(?m)^Slurmd PID\s*=", said):
            return ""
        return "slurmd did not answer in time" if code in (124, 137) else f"slurmd did not answer: {line(said)[:200]}"


def _why(said: str, problem: str) -> str:
    words, code = answered(said)
    if code in (124, 137):
        return "slurmctld did not answer in time"
    return f"the controller did not answer: {line(words[-300:]) or problem or 'it is not part of this run'}"[:300]


def answered(text: str) -> tuple[str, int | None]:
    """Split a command's words from the ``code N`` that follows them; no code means that nobody asked."""
    found = re.search(r"(?:^|\n)code (\d{1,3})\s*\Z", text)
    return (text[: found.start()], int(found[1])) if found else (text, None)


def containers(inspected: str, now: str = "") -> dict[str, Container]:
    """Return what ``docker container inspect`` printed, by name; nothing where it printed something else.

    ``now`` is the machine's time in UTC, as ``date -u +%Y-%m-%dT%H:%M:%S`` prints it.
    """
    try:
        entries = json.loads(inspected or "[]") if len(inspected) <= MAX_ANSWER else []
    except (ValueError, RecursionError):
        return {}
    found = {}
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(name := entry.get("Name"), str):
            found[line(name).lstrip("/")] = _container(entry, now)
    return found


def _container(entry: Mapping[str, Any], now: str) -> Container:
    state = mapping(entry.get("State"))
    flags = [key for key in ("Paused", "Restarting", "Dead") if state.get(key) is not False]
    unhealthy = mapping(state.get("Health")).get("Status") == "unhealthy"
    status = line(state.get("Status"))[:40]
    return Container(
        status="unhealthy" if unhealthy and status == "running" else status,
        running=state.get("Running") is True and status == "running" and not flags and not unhealthy,
        image=line(mapping(entry.get("Config")).get("Image")),
        restarts=number(entry.get("RestartCount")),
        since=_seconds(line(state.get("StartedAt")), line(now)),
        memlock=_memlock(mapping(entry.get("HostConfig")).get("Ulimits")),
    )


def _seconds(start: str, end: str) -> float | None:
    try:
        # Both are UTC; the engine's fractions have nine digits, which no parser of ours takes.
        return (datetime.fromisoformat(end[:19]) - datetime.fromisoformat(start[:19])).total_seconds()
    except ValueError:
        return None


def _memlock(limits: Any) -> tuple[int, int] | None:
    for limit in limits if isinstance(limits, list) else ():
        if mapping(limit).get("Name") == "memlock":
            return number(limit.get("Soft")), number(limit.get("Hard"))
    return None


def declared_partitions(partitions: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the state that the inventory declares for each partition, UP where it declares none."""
    found = {}
    for partition in partitions:
        values = {str(key).lower(): str(value) for key, value in partition.items()}
        if (name := values.get("partitionname", "")) and name.upper() != "DEFAULT":
            found[name] = values.get("state", "UP").upper()
    return found
