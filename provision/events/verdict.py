"""The verdict of a run: the only function that makes it. Pure.

Exit code, terminal, JSON, JUnit and ``clusterctl status`` repeat what it said. A pass needs a run that ended by itself,
with Ansible's code 0, and every check that was owed, none of them failed or unknown.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

from provision.events.fold import RunReport
from provision.model.checks import Check, Code, Detail, Level, Subject, Verdict
from provision.model.text import one_line

#: Commands whose checks are a verdict, here on the cluster, there on whether it can be provisioned.
JUDGING = ("preflight", "verify")

#: What can be wrong with a run itself. None of these is there when all is well: they are no proofs.
RUN = Subject("run", names=("ended", "lock", "lost", "matched", "recorded", "unreadable"), level=Level.CLUSTER)

#: What a check says that was owed and did not come.
NEVER_RAN = "never ran"

#: Ansible's return codes that checks and failed machines explain: some failed, were unreachable, or a play broke off.
_EXPLAINED = (2, 4, 8)


@dataclass(frozen=True)
class RunVerdict:
    """What a run has shown: all ``checks``, with one for whatever went wrong beside them and for each that never ran.

    ``limited`` names the machines of a run that was asked for a part of the cluster. ``follows`` says for checks, by
    (host, id), which others they rest on that did not pass.
    """

    word: Verdict
    checks: tuple[Check, ...]
    why: tuple[str, ...] = ()
    limited: tuple[str, ...] = ()
    strict: bool = False
    follows: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """True for a pass, and for nothing else."""
        return self.word is Verdict.PASS

    @property
    def counts(self) -> dict[str, int]:
        """How many checks are what; ``unproven`` are those skips that leave open what should be proven."""
        own = {word: [check for check in self.checks if check.verdict is word] for word in Verdict}
        return {
            "proven": sum(not check.simulated for check in own[Verdict.PASS]),
            "simulated": sum(check.simulated for check in own[Verdict.PASS]),
            "warn": len(own[Verdict.WARN]),
            "fail": len(own[Verdict.FAIL]),
            "unknown": len(own[Verdict.UNKNOWN]),
            "never_ran": sum(check.never_ran for check in own[Verdict.UNKNOWN]),
            "skip": sum(not check.unproven for check in own[Verdict.SKIP]),
            "unproven": sum(check.unproven for check in own[Verdict.SKIP]),
        }


def verdict(report: RunReport) -> RunVerdict:
    """Return the verdict of a run of a judging command: fail over unknown over pass; nothing proven is unknown."""
    broken = [*interruptions(report), *_incomplete(report)]
    seen = [*report.checks, *_of_failures(report)]
    there = {(check.host, check.id) for check in seen} | {("", check.id) for check in seen}
    missing = sorted(report.owed - there)
    checks = (
        *broken,
        *seen,
        *(
            Check(name, host, Verdict.UNKNOWN, observed=NEVER_RAN, details=(Detail(Code.NEVER_RAN),))
            for host, name in missing
        ),
    )
    words = {check.verdict for check in checks}
    why = [check.observed for check in broken]
    if missing:
        why.append(f"{len(missing)} checks {NEVER_RAN}")
    if not words - {Verdict.SKIP}:
        why.append("nothing was checked")
    word = Verdict.PASS
    if Verdict.FAIL in words:
        word = Verdict.FAIL
    elif Verdict.UNKNOWN in words or why:
        word = Verdict.UNKNOWN
    elif report.strict and (open_ := [check for check in checks if check.unproven or check.verdict is Verdict.WARN]):
        word = Verdict.FAIL
        why.append(f"--strict: {len(open_)} checks warn or are unproven")
    return RunVerdict(word, checks, tuple(why), report.limited, report.strict)


def interruptions(report: RunReport) -> list[Check]:
    """Return why this run is not a whole one, as unknown checks of the cluster; none for a run that ended by itself."""
    told = _not_ended(report)
    found = [RUN.unknown("ended", told)] if told else []
    lost: dict[str, list[str]] = {}
    for host, task in dict.fromkeys(report.lost):
        lost.setdefault(host, []).append(task or "a task")
    found += [
        RUN.unknown(
            "lost", f"did not arrive, because it was too large or could not be written: {', '.join(tasks)}", host=host
        )
        for host, tasks in lost.items()
    ]
    return found


def _incomplete(report: RunReport) -> list[Check]:
    """Return why a run that ended has not shown all: its record has a hole, or a play was for no machine.

    A run that was limited, or leaves machines out, has plays without machines.
    """
    fix = "make room for .clusterctl beside the inventory, make it writable, then run again"
    found = [RUN.unknown("recorded", report.unrecorded, fix=fix)] if report.unrecorded else []
    if report.unmatched and not report.limited and not report.left_out:
        found.append(RUN.unknown("matched", f"no machine matched: {', '.join(dict.fromkeys(report.unmatched))}"))
    return found


def busy(told: str, fix: str = "") -> RunReport:
    """Return the report of a command that another run kept from beginning; ``told`` says which run, in a sentence."""
    cause = "a provision is running: a half-changed cluster cannot be judged"
    return RunReport(locked=told, checks=[RUN.unknown("lock", told, cause=cause, fix=fix)])


def _not_ended(report: RunReport) -> str:
    """Return how the run was cut off, empty where it came to its end with a code that its checks explain."""
    if report.stopped_by is not None:
        if report.stopped_by == signal.SIGALRM:
            return "the run was stopped at its time limit"
        return f"the run was stopped ({signal.Signals(report.stopped_by).name}) before its end"
    if report.locked:
        return ""
    if report.rc is None and not report.finished:
        entered = "Ansible was killed before the end of the run" if report.began else ""
        return entered or ("" if report.unreachable or report.failures else "nothing was run")
    if not report.finished:
        return f"Ansible ended before the end of the run, with code {report.rc}"
    if report.rc == 0:
        return ""
    explained = report.rc in _EXPLAINED and (report.failures or report.unreachable)
    return "" if explained else f"Ansible ended with code {report.rc}, which no machine's result explains"


def _of_failures(report: RunReport) -> list[Check]:
    """Return an unknown check for each machine that stopped for another reason than a check."""
    known = {(check.host, check.id) for check in report.checks}
    found = []
    for word, group in (("failed", report.failures), ("unreachable", report.unreachable)):
        for failure, hosts in group.items():
            name = f"{failure.task.role or failure.task.stage or 'run'}.{word}"
            found += [
                Check(name, host, Verdict.UNKNOWN, observed=one_line(f"{failure.task}: {failure.reason}"))
                for host in sorted(hosts)
                if not failure.checked and (host, name) not in known
            ]
    return found
