"""Who may change the cluster now: the lease on its controller, and what it says of its holder. Pure.

A lease is a text in a file of the controller. How old the file is says the controller's own clock, so that clocks of
administrators' computers need not agree.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from provision.model.text import one_line

#: Of a lease that does not say it: two hours, what the longest stage may take on few machines.
BOUND = 7200
#: The longest that a lease may ask for, whatever it says: a week.
LONGEST = 7 * 86400


@dataclass(frozen=True)
class Lease:
    """Who changes the cluster.

    ``process`` tells the holder's process from all others (``provision.runner.process.named``); ``since`` and
    ``renewed`` are in seconds of the holder's clock; ``bound`` is after how many seconds without a sign of life the
    lease is free.
    """

    run: str = ""
    user: str = "somebody"
    host: str = "a computer that it does not name"
    directory: str = ""
    command: str = ""
    process: str = ""
    since: int = 0
    renewed: int = 0
    bound: int = BOUND

    @property
    def text(self) -> str:
        """The lease as its file has it: one line of plain characters, which no reader changes."""
        return json.dumps(asdict(self))

    def same_run(self, other: Lease) -> bool:
        """Tell whether both are of one run: of clusterctl by its number, of ansible-playbook by its process."""
        return bool(self.run and self.run == other.run) or bool(self.process and self.process == other.process)


class Answer(StrEnum):
    """What a lease says to one who asks."""

    FREE = "free"
    MINE = "mine"
    HELD = "held"


def lease_from(text: str) -> Lease | None:
    """Return the lease that a file's text is; None where nobody holds one. One that cannot be read is held."""
    if not text.strip():
        return None
    try:
        told = json.loads(text)
    except ValueError:
        return Lease()
    return Lease(**_fields(told)) if isinstance(told, Mapping) else Lease()


def _fields(told: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields(Lease):
        value = told.get(field.name)
        if field.type == "str" and isinstance(value, str):
            found[field.name] = one_line(value, 255)
        elif field.type == "int" and isinstance(value, int) and 0 <= value < 2**40:
            found[field.name] = value
    return found


def answer(lease: Lease | None, age: float, me: Lease, *, dead: bool = False, take: bool = False) -> Answer:
    """Return whether ``me`` may change the cluster.

    ``age`` is in seconds, since its holder's last sign of life. ``dead``: the holder's process was on this computer,
    and is gone. ``take``: the operator takes it from whoever has it.
    """
    if lease is None:
        return Answer.FREE
    if lease.same_run(me):
        return Answer.MINE
    return Answer.FREE if dead or take or age > min(lease.bound, LONGEST) else Answer.HELD


def holder(lease: Lease, age: float, *, now: float) -> str:
    """Return who changes the cluster: where from, by what, since when, and the last sign of life."""
    told = [f"'{lease.command}'" if lease.command else "", f"in {lease.directory}" if lease.directory else ""]
    run = f"run {lease.run}" if lease.run else ""
    since = f"since {_moment(lease.since)}" if lease.since else ""
    words = [" ".join(filter(None, told)), run, since, f"last sign of life {_moment(now - age)}"]
    return f"{lease.user}@{lease.host} ({', '.join(filter(None, words))})"


def refusal(lease: Lease, age: float, *, cluster: str, now: float) -> tuple[str, str]:
    """Return who changes the cluster, and what is to be done about it."""
    problem = f"the cluster {cluster} is being changed by {holder(lease, age, now=now)}"
    ends = _moment(now - age + min(lease.bound, LONGEST))
    fix = (
        f"wait for its end, or ask {lease.user}. If that run is dead, add -e cluster_lease_take=true to this command, "
        f"or wait until {ends}"
    )
    return problem, fix


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(max(0, seconds), UTC):%Y-%m-%d %H:%M} UTC"
