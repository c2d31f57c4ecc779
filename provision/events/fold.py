"""What happened on the machines: ansible-runner's events folded into a report.

Pure: no files, no clock (times come with the events), no Ansible. Feed a ``RunReport`` each event as it comes and
ask it anything at any time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from provision.events.accepted import CHECKING, action_of, checks_of, data_of, parts_of, pending_of, unreached_in
from provision.events.diff import Diff, diffs_of
from provision.events.model import Failure, HostCounts, Pending, Stage, Task, moment, reason, told
from provision.model.checks import Check
from provision.model.text import one_line

__all__ = ["ACCESS", "Failure", "HostCounts", "RunReport", "Stage", "Task"]

#: Checks of the access probe that mean "this machine was not reached"; the others mean "reached, but refused".
_NOT_REACHED = ("name", "route", "port", "host_key", "login")

#: The stage under which the probe's findings are counted; no playbook has this name.
ACCESS = "access"

#: Lines of Ansible's own errors that are kept; each failed task adds some, which are in its result as well.
MAX_MESSAGES = 50

_RESULTS = {
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
    "runner_on_skipped": "skipped",
}

#: The pattern of a play that has worked out that there is nothing to do on any machine.
NOBODY = "!all"


@dataclass
class RunReport:
    """A fold over events.

    ``plays`` is the order of the run as (stage, play name), so that a play's start tells the stage; without it
    everything is one stage with an empty name. The runner sets ``began``, ``rc``, and after a stop ``stopped_by`` (the
    signal's number), ``swept`` (processes ended, by machine), ``installing`` (machines that install packages, where
    nothing was ended) and ``unswept`` (machines that could not be asked).

    ``pending`` are the checks that failed before anything was done: what the run is to change, or in check mode
    (``check_mode``) would.

    Who starts the run says what it owes: ``owed`` as (machine, check id), without a machine where any may be spoken of;
    ``limited``, the machines it was limited to; ``left_out``, those that could not be entered; ``strict``, whether
    warnings count; ``machines``, those that checks may speak of (all where it is empty); ``locked`` and ``unrecorded``,
    why it could not begin, or not be recorded. ``verdict.verdict`` makes the verdict of all this.
    """

    plays: Sequence[tuple[str, str]] = ()
    hosts: dict[str, HostCounts] = field(default_factory=lambda: defaultdict(HostCounts))
    failures: dict[Failure, set[str]] = field(default_factory=lambda: defaultdict(set))
    unreachable: dict[Failure, set[str]] = field(default_factory=lambda: defaultdict(set))
    changes: dict[Task, set[str]] = field(default_factory=lambda: defaultdict(set))
    diffs: dict[Diff, set[str]] = field(default_factory=lambda: defaultdict(set))
    checks: list[Check] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    warnings: dict[str, None] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    stages: dict[str, Stage] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    stage: str = ""
    task: str = ""
    rc: int | None = None
    stopped_by: int | None = None
    swept: dict[str, int] = field(default_factory=dict)
    installing: list[str] = field(default_factory=list)
    unswept: list[str] = field(default_factory=list)
    began: bool = False
    finished: bool = False
    owed: frozenset[tuple[str, str]] = frozenset()
    machines: frozenset[str] = frozenset()
    limited: tuple[str, ...] = ()
    left_out: set[str] = field(default_factory=set)
    strict: bool = False
    check_mode: bool = False
    locked: str = ""
    unrecorded: str = ""
    unmatched: list[str] = field(default_factory=list)
    lost: list[tuple[str, str]] = field(default_factory=list)
    _play_name: str = ""
    _for_nobody: bool = False
    _at: int = 0

    # -- asking ----------------------------------------------------------------------------------------------------

    @property
    def changed(self) -> int:
        """Return how many task results changed something, over all machines."""
        return sum(counts.changed for counts in self.hosts.values())

    @property
    def changed_hosts(self) -> set[str]:
        """Return the machines on which something changed."""
        return {host for host, counts in self.hosts.items() if counts.changed}

    @property
    def changed_machines(self) -> int:
        """Return changed results outside the stage that only writes down what it found (discover)."""
        return sum(len(hosts) for task, hosts in self.changes.items() if task.stage != "discover")

    @property
    def started(self) -> bool:
        """True as soon as one machine has ended a task, well or badly; what the probe found does not count."""
        return any(counts.tasks for counts in self.hosts.values())

    @property
    def ok(self) -> bool:
        """True when the run reached its end and no machine failed or was unreachable."""
        return self.rc == 0 and self.finished and not self.failures and not self.unreachable

    @property
    def failed_hosts(self) -> set[str]:
        """Return the machines on which something failed."""
        return set().union(*self.failures.values()) if self.failures else set()

    @property
    def unreachable_hosts(self) -> set[str]:
        """Return the machines that could not be reached."""
        return set().union(*self.unreachable.values()) if self.unreachable else set()

    @property
    def refused_hosts(self) -> set[str]:
        """Return the machines that a check of preflight has refused."""
        own = [(failure, hosts) for failure, hosts in self.failures.items() if failure.task.stage == "preflight"]
        return {host for failure, hosts in own if failure.checked for host in hosts}

    @property
    def leased(self) -> bool:
        """True where the run has the cluster's lease."""
        return self._lease.get("held") is True

    @property
    def refused(self) -> tuple[str, str] | None:
        """Return who changes the cluster, and what to do, where that kept this run from changing anything."""
        told = [self._lease.get(key) for key in ("refused", "fix")]
        return None if not told[0] or self.changed_machines else (one_line(told[0]), one_line(told[1]))

    @property
    def _lease(self) -> Mapping[str, Any]:
        found = self.data.get("cluster_lease")
        return found if isinstance(found, Mapping) else {}

    def bad_checks(self) -> list[Check]:
        """Return the checks that stop a verdict of pass."""
        return [check for check in self.checks if not check.ok]

    @property
    def changes_pending(self) -> bool:
        """True where a run in check mode has found something to do."""
        return bool(self.pending) or self.changed > 0

    # -- folding ---------------------------------------------------------------------------------------------------

    def add(self, event: Mapping[str, Any]) -> None:
        """Fold one event in."""
        kind = str(event.get("event", ""))
        data = event.get("event_data") or {}
        if not kind:
            # ansible-runner hands on a bare number where the event's own file could not be written or read.
            self.lost.append(("", self.task))
        elif kind in _RESULTS:
            self._result(_RESULTS[kind], data, moment(event))
        elif kind == "playbook_on_task_start":
            self.task = str(data.get("task") or data.get("name") or "")
            self._current().ended = moment(event) or self._current().ended
        elif kind == "playbook_on_play_start":
            self._play(str(data.get("name", "")), moment(event))
            self._for_nobody = data.get("pattern") == NOBODY
        elif kind == "playbook_on_no_hosts_matched":
            if not self._for_nobody:
                self.unmatched.append(self._play_name)
        elif kind == "playbook_on_stats":
            self._stats(data)
        elif kind in ("warning", "system_warning", "deprecated"):
            self._warn(str(event.get("stdout", "")))
        elif kind == "error" or (kind == "verbose" and not self.started):
            self._say(str(event.get("stdout", "")).strip())

    def add_access(self, checks: Iterable[Check]) -> None:
        """Fold in the probe's checks: a machine that it could not enter is left out of the run, and counted here."""
        for check in checks:
            self.checks.append(check)
            if check.ok:
                continue
            step = check.id.rpartition(".")[2]
            not_reached = step in _NOT_REACHED
            failure = Failure(Task(ACCESS, "", check.id), told(check), checked=True)
            (self.unreachable if not_reached else self.failures)[failure].add(check.host)
            if not_reached:
                self.hosts[check.host].unreachable += 1
            else:
                self.hosts[check.host].failed += 1

    def _current(self) -> Stage:
        return self.stages.setdefault(self.stage, Stage(self.stage))

    def _play(self, name: str, when: datetime | None) -> None:
        for index in range(self._at, len(self.plays)):
            if self.plays[index][1] == name:
                self._at = index
                self.stage = self.plays[index][0]
                break
        self.task = ""
        self._play_name = name
        stage = self._current()
        stage.started = stage.started or when
        stage.ended = when or stage.ended

    def _result(self, outcome: str, data: Mapping[str, Any], when: datetime | None) -> None:
        host = str(data.get("host", ""))
        result = data.get("res")
        result = result if isinstance(result, Mapping) else {}
        task = Task(self.stage, str(data.get("role") or ""), str(data.get("task") or ""))
        counts, stage = self.hosts[host], self._current()
        counts.tasks += 1
        stage.hosts.add(host)
        stage.started = stage.started or when
        stage.ended = when or stage.ended
        if outcome != "skipped" and "res" in data and not result:
            # Every result has at least "changed": an empty one was larger than MAX_EVENT_RES, and has been thrown away.
            self.lost.append((host, str(task)))
        parts = parts_of(data)
        checks = checks_of(data, self.machines)
        self.checks += checks
        self.pending += [one for one in pending_of(data, self.machines) if not one.check.ok]
        self.data.update(data_of(data))
        for part in parts:
            for text in part.get("warnings") or ():
                self._warn(str(text))
        asked, why = unreached_in(data)
        if asked and asked not in self.left_out:
            # It was lost on the way, and its own tasks may all have ended before that.
            self.unreachable[Failure(task, why)].add(asked)
        if outcome == "failed" and data.get("ignore_errors"):
            outcome = "ok"
        setattr(counts, outcome, getattr(counts, outcome) + 1)
        if outcome == "ok" and result.get("changed"):
            counts.changed += 1
            stage.changed.add(host)
            self.changes[task].add(host)
        if outcome in ("ok", "failed"):
            for diff in diffs_of(parts):
                self.diffs[diff].add(host)
        if outcome == "failed":
            # Our own action says several checks in several lines; a module's text stays one.
            said = reason(result) if action_of(data) in CHECKING else one_line(reason(result))
            checked = not all(check.ok for check in checks) or self._repeats(data)
            self.failures[Failure(task, said, checked)].add(host)
            stage.failed.add(host)
        elif outcome == "unreachable":
            self.unreachable[Failure(task, one_line(reason(result, "unreachable")))].add(host)
            stage.unreachable.add(host)

    def _repeats(self, data: Mapping[str, Any]) -> bool:
        """Tell whether this failure only sums up checks that are recorded already.

        Playbooks that collect checks end with ``cluster_check: conclude``, to end badly under ansible-playbook too.
        """
        return action_of(data) == "cluster_check" and bool(self.bad_checks())

    def _stats(self, data: Mapping[str, Any]) -> None:
        """Take back failures that a ``rescue`` has repaired: Ansible's own counts know."""
        self.finished = True
        failed = data.get("failures") or {}
        for failure in [failure for failure in self.failures if failure.task.stage != ACCESS]:
            self.failures[failure] = {host for host in self.failures[failure] if failed.get(host, 0)}
            if not self.failures[failure]:
                del self.failures[failure]
        for stage in self.stages.values():
            stage.failed = {host for host in stage.failed if failed.get(host, 0)}
        for host, counts in self.hosts.items():
            if counts.tasks and not failed.get(host, 0):  # of one without, the probe's failure counts
                counts.failed = 0

    def _say(self, text: str) -> None:
        """Keep what Ansible says of itself: where no machine has failed, it is why the run did not go on."""
        if text and len(self.messages) < MAX_MESSAGES:
            self.messages.append(text)

    def _warn(self, text: str) -> None:
        text = one_line(text).removeprefix("[WARNING]: ").removeprefix("[DEPRECATION WARNING]: ")
        # Ansible makes its directory on a machine that it enters for the first time, with the right mode, and says so.
        if text and not text.startswith("Module remote_tmp "):
            self.warnings[text] = None
