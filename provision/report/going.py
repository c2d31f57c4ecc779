"""What goes on in a run, from its events and a clock: what a bar shows, and what a pipe is told. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from provision import hostlist
from provision.events.fold import ACCESS, RunReport
from provision.model.text import one_line
from provision.model.told import read
from provision.report.grid import Grid

#: Seconds of silence after which a pipe is told what is waited for.
SILENCE = 15.0

#: Seconds from which on a task is said to be waited for; one that has just begun is only named.
_LASTS = 5.0

#: What goes on before the first stage.
_ENTERING = "reach the machines"

#: Events with which a task ends, because another thing begins.
_BEGINNINGS = ("playbook_on_task_start", "playbook_on_play_start", "playbook_on_stats")


@dataclass(frozen=True)
class Look:
    """One look at a run: what a bar shows. ``left`` is empty where nothing is known of an earlier run."""

    stage: str
    task: str
    done: int
    machines: int
    failed: int
    elapsed: str
    left: str
    grid: Grid | None = None


@dataclass
class Going:
    """A fold over events; each comes with the time in seconds of one clock, as ``began`` is.

    Args:
        machines: in scope; a play may be for fewer.
        expected: the stages of an earlier run of the same kind with the seconds that each took, in their order.
        live: whether there is a bar: what it shows is then not told in lines too.
        verbosity: 1 tells each task, from 2 on Ansible's own output goes by instead.
        grid: what is shown of checks, where the run judges machines.
    """

    began: float
    machines: int = 0
    expected: Sequence[tuple[str, float]] = ()
    live: bool = False
    verbosity: int = 0
    grid: Grid | None = None
    _stage: str = ""
    _stage_began: float = 0.0
    _task: str = ""
    _task_began: float = 0.0
    _hosts: int = 0
    _done: set[str] = field(default_factory=set)
    _changed: set[str] = field(default_factory=set)
    _failed: set[str] = field(default_factory=set)
    _bad: set[str] = field(default_factory=set)
    _waiting: tuple[str, ...] = ()
    _told: dict[str, str] = field(default_factory=dict)
    _spoke: float = 0.0
    _announced: str = ""

    def __post_init__(self) -> None:
        self._spoke = self.began

    def take(self, report: RunReport, event: Mapping[str, Any], now: float) -> list[str]:
        """Take in one event, which ``report`` holds already; return the lines that are to stay."""
        kind, lines = str(event.get("event", "")), []
        if self.grid:
            self.grid.take(report.checks)
        data = event.get("event_data") or {}
        if kind in _BEGINNINGS:
            lines = self.end(now)
            if report.stage != self._stage:
                self._stage, self._stage_began = report.stage, now
                self._announced = "" if self.live else f"{self._stage}: started after {minutes(now - self.began)}"
            self._task, self._task_began, self._waiting = report.task, now, ()
            self._hosts = 0 if kind == "playbook_on_play_start" else max(self._hosts, len(self._done))
            self._done.clear()
            self._told.clear()
            if self.verbosity == 1 and self._task and kind == "playbook_on_task_start":
                lines.append(f"{self._stage}: {self._task}")
        elif kind.startswith("runner_on_"):
            self._result(kind, data)
        elif kind == "waiting":
            self._waiting = tuple(str(host) for host in data.get("hosts") or ())
        elif kind == "verbose" and (told := read(str(event.get("stdout", "")))):
            if told.ended:
                lines = [f"{self._stage}: {told.host}: {told.text}"]
            else:
                self._told[told.host] = told.text
        return self._spoken(lines, now)

    def _result(self, kind: str, data: Mapping[str, Any]) -> None:
        host = str(data.get("host", ""))
        self._done.add(host)
        self._told.pop(host, None)
        if kind == "runner_on_ok" and (data.get("res") or {}).get("changed"):
            self._changed.add(host)
        if kind in ("runner_on_failed", "runner_on_unreachable") and not data.get("ignore_errors"):
            self._failed.add(host)
            self._bad.add(host)

    def end(self, now: float) -> list[str]:
        """Return what there is to say of the task that ends now."""
        lines = []
        for word, hosts in (("changed", self._changed), ("failed", self._failed)):
            if hosts and not self.live:
                lines.append(f"{self._stage}: {self._task}: {word} {hostlist.fold(hosts)}")
            hosts.clear()
        return self._spoken(lines, now)

    def silent(self, now: float) -> list[str]:
        """Return the line that says what is waited for, where nothing was said for a while."""
        if self.live or self.verbosity >= 2 or now - self._spoke < SILENCE:
            return []
        return self._spoken([self.waiting(now)], now)

    def waiting(self, now: float) -> str:
        """Return what is waited for: the task, the machines that are still out, since when, what they have told."""
        if not self._stage:
            return f"{ACCESS}: {_ENTERING}: waiting ({minutes(now - self.began)})"
        line, lasted = f"{self._stage}: {self._task or 'begins'}", now - self._task_began
        if lasted >= _LASTS:
            out = hostlist.fold(set(self._waiting) - self._done)
            line += f": waiting{f' for {out}' if out else ''} ({minutes(lasted)})"
        told = self._progress()
        return one_line(f"{line}: {told}" if told else line)

    def look(self, now: float) -> Look:
        """Return what a bar shows now."""
        machines = max(len(self._done), self._hosts or self.machines)
        return Look(
            stage=one_line(self._stage or ACCESS),
            # What machines tell takes the place of the task's name: a line has no room for both.
            task=one_line(self._progress() or self._task) if self._stage else _ENTERING,
            done=len(self._done),
            machines=machines,
            failed=len(self._bad),
            elapsed=minutes(now - self.began),
            left=self._left(now),
            grid=self.grid,
        )

    def _progress(self) -> str:
        """Return what machines have told of the task: those that told the same together, the first three texts."""
        texts: dict[str, list[str]] = {}
        for host, text in self._told.items():
            texts.setdefault(text, []).append(host)
        return "; ".join(f"{hostlist.fold(hosts)}: {text}" for text, hosts in list(texts.items())[:3])

    def _left(self, now: float) -> str:
        """Return about how long it takes still, if it goes as the last time; empty where nobody knows."""
        stages = dict(self.expected)
        if not stages or (self._stage and self._stage not in stages):
            return ""
        names = list(stages)
        at = names.index(self._stage) if self._stage else 0
        spent = now - self._stage_began if self._stage else 0.0
        left = max(0.0, stages[names[at]] - spent) + sum(stages[name] for name in names[at + 1 :])
        return f"about {minutes(left)} left" if left >= 1 else "longer than last time"

    def _spoken(self, lines: list[str], now: float) -> list[str]:
        """Forget what Ansible's own output tells instead; a stage is named with the first line that it has."""
        kept = lines if self.verbosity < 2 else []
        if kept and self._announced:
            kept, self._announced = [self._announced, *kept], ""
        self._spoke = now if kept else self._spoke
        return kept


def minutes(seconds: float) -> str:
    """Return a duration as ``0:45`` or ``1:02:03``."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
