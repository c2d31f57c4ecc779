"""A run's record as a report reads it: its checks, and texts and numbers that stay small whatever they are. Pure.

A record holds what machines said of themselves. Each text is made one line and cut, and all of them together have a
budget: whatever a machine tells, a page stays small.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from markupsafe import escape

from provision.events.accepted import ID
from provision.model.checks import Check, Verdict, check_from
from provision.model.text import one_line
from provision.report.checks import fold

#: What a check, or a machine in one subject, can be: the worst first, each with its sign and what it means.
WORDS = {
    "fail": ("✕", "failed"),
    "unknown": ("?", "not decided"),
    "warn": ("!", "warning"),
    "unproven": ("○", "not proven"),
    "simulated": ("≈", "passed, simulated"),
    "pass": ("✓", "passed"),
    "skip": ("·", "does not apply"),
}
ORDER = tuple(WORDS)
#: Worse is higher; what does not apply can take the place of a pass without harm.
RANK = {"pass": 0, "simulated": 0, "skip": 0, "unproven": 1, "warn": 2, "unknown": 3, "fail": 4}

#: Characters of a text and of a name.
TEXT, NAME = 320, 80


@dataclass(frozen=True)
class Record:
    """A run as it lies on the disk: ``run.json``, ``report.json`` (empty: none), else its journal's checks.

    ``cut`` says how it ended without a report, empty where it came to its end.
    """

    facts: Mapping[str, Any]
    document: Mapping[str, Any]
    journal: Sequence[Mapping[str, Any]] = ()
    cut: str = ""


@dataclass
class Ink:
    """What is left to write with."""

    left: int

    def __call__(self, text: object, limit: int = TEXT) -> str:
        """Return a text as one bounded line, a mark where there is no room for it any more."""
        told = one_line(text, limit)
        cost = len(str(escape(told)).encode())
        if cost > self.left:
            return "…"
        self.left -= cost
        return told

    def share(self, parts: int) -> Ink:
        """Take a part of what is left, so that nobody's texts take the room of others'."""
        part = Ink(self.left // max(1, parts))
        self.left -= part.left
        return part


@dataclass
class Read:
    """The checks of a record, and by (host, id) on which others each rests."""

    checks: list[Check] = field(default_factory=list)
    follows: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    unreadable: int = 0


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def listed(value: Any, most: int = 100_000) -> Sequence[Any]:
    return value[:most] if isinstance(value, list) else ()


def number_in(value: Any) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if number else None


def read_checks(record: Record) -> Read:
    found = Read()
    for item in listed(record.document.get("checks")) if record.document else record.journal:
        try:
            check = check_from({**item, "consequences": (), "details": ()})
            if not ID.fullmatch(check.id):
                raise ValueError(check.id)
        except (KeyError, TypeError, ValueError):
            found.unreadable += 1
            continue
        found.checks.append(check)
        if follows := listed(item.get("follows"), 64):
            found.follows[check.host, check.id] = tuple(map(str, follows))
    return found


def word_of(check: Check) -> str:
    """Return what a check has come to: a pass on simulated hardware, and a skip that leaves a proof open, are none."""
    if check.verdict is Verdict.PASS:
        return "simulated" if check.simulated else "pass"
    if check.verdict is Verdict.SKIP:
        return "unproven" if check.unproven else "skip"
    return str(check.verdict)


def worst_of(words: Iterable[str]) -> str:
    return min(words, key=ORDER.index, default="skip")


def place(hosts: Iterable[str], ink: Ink) -> str:
    return ink(fold(one_line(host, NAME) for host in hosts) or "the cluster", 200)


def verdict_of(record: Record) -> str:
    told = str(record.document.get("verdict"))
    return told if told in ("pass", "fail") and not record.cut else "unknown"


def _moment(value: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(str(value))
    except ValueError:
        return None


def when(facts: Mapping[str, Any]) -> str:
    """Return when a run began, and how long it took."""
    began, ended = _moment(facts.get("started")), _moment(facts.get("ended"))
    if began is None:
        return "at an unknown time"
    told = f"{began:%-d %B %Y, %H:%M} {began.tzname() or ''}".strip()
    if ended is not None and began.tzinfo == ended.tzinfo and ended > began:
        minutes, seconds = divmod(int((ended - began).total_seconds()), 60)
        told += f", {minutes} min {seconds} s" if minutes else f", {seconds} s"
    return told
