"""The parts of a run's report: tasks, failures, counts, stages; and how they are read from one event. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from provision.model.checks import Check


@dataclass(frozen=True)
class Task:
    """A task by the words that an operator knows it by; role is empty for a task of the playbook itself."""

    stage: str
    role: str
    name: str

    def __str__(self) -> str:
        return f"{self.role} | {self.name}" if self.role else self.name


@dataclass(frozen=True)
class Pending:
    """A check that failed before anything was done, and the stage that mends it."""

    stage: str
    check: Check


@dataclass(frozen=True)
class Failure:
    """Why a task did not succeed. ``checked`` is true where a check said so, with its cause and fix in the reason."""

    task: Task
    reason: str
    checked: bool = False


@dataclass
class HostCounts:
    """Task results of one machine; ``tasks`` counts all of them, skipped ones too, because each costs time."""

    ok: int = 0
    changed: int = 0
    failed: int = 0
    unreachable: int = 0
    skipped: int = 0
    tasks: int = 0

    def as_dict(self) -> dict[str, int]:
        """Return the counts under the names that JSON documents use."""
        return {
            "ok": self.ok,
            "changed": self.changed,
            "failed": self.failed,
            "unreachable": self.unreachable,
            "skipped": self.skipped,
            "tasks": self.tasks,
        }


@dataclass
class Stage:
    """One stage of the run; ``seconds`` from the first to the last event in it."""

    name: str
    started: datetime | None = None
    ended: datetime | None = None
    hosts: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    unreachable: set[str] = field(default_factory=set)

    @property
    def seconds(self) -> float:
        """Return how long the stage has run, 0 before it began."""
        if self.started is None or self.ended is None:
            return 0.0
        return max(0.0, (self.ended - self.started).total_seconds())


def moment(event: Mapping[str, Any]) -> datetime | None:
    try:
        return datetime.fromisoformat(str(event.get("created", "")))
    except ValueError:
        return None


def told(check: Check) -> str:
    parts = [check.observed or check.id]
    if check.cause:
        parts.append(f"Cause: {check.cause}")
    if check.fix:
        parts.append(f"Fix: {check.fix}")
    return ". ".join(part.rstrip(".") for part in parts)


def reason(result: Mapping[str, Any], otherwise: str = "failed") -> str:
    """Return the one sentence that says most: the failed loop items' messages, the message, or the error stream."""
    if "censored" in result:
        return "failed; the output is hidden because it may hold a secret"
    items = [item for item in result.get("results") or () if isinstance(item, Mapping) and item.get("failed")]
    if items:
        told = [f"{_label(item)}{reason(item)}" for item in items]
        return "; ".join(dict.fromkeys(told))
    message = str(result.get("msg") or "").strip()
    stderr = str(result.get("stderr") or result.get("module_stderr") or "").strip()
    if stderr and (message in ("", "non-zero return code") or message.startswith("Module ")):
        return f"{stderr.splitlines()[-1]} (exit code {result.get('rc', '?')})"
    return message or otherwise


def _label(item: Mapping[str, Any]) -> str:
    label = item.get("_ansible_item_label", item.get("item"))
    return f"{label}: " if isinstance(label, (str, int, float)) else ""
