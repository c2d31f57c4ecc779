"""What a command on machines asks for, how its verdict is completed, and how its report is kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from provision import content, hostlist
from provision.errors import ExitCode
from provision.events.exit import exit_code
from provision.events.fold import RunReport
from provision.events.verdict import JUDGING, RunVerdict, verdict
from provision.inventory.loader import GROUPS, Inventory
from provision.judge import causes, manifest
from provision.model.checks import Verdict
from provision.model.cluster import Cluster, Hardware
from provision.report.documents import run_document
from provision.report.plan import in_order
from provision.runner.journal import Run


@dataclass
class Outcome:
    """What a command leaves for its report."""

    report: RunReport
    code: ExitCode
    run: Run
    document: dict[str, Any]
    judgement: RunVerdict | None = None
    goes_with: causes.Roots = field(default_factory=dict)


def begun(command: str, inventory: Inventory, hosts: Collection[str], *, strict: bool = False) -> RunReport:
    """Return the report of a run on ``hosts`` that is about to begin: what it owes, and what it is limited to."""
    report = RunReport(machines=frozenset(inventory.hostvars))
    if command in JUDGING:
        groups = {name: [host for host in members if host in hosts] for name, members in inventory.groups.items()}
        report.owed = manifest.owed(command, groups)
        whole = {host for group in GROUPS for host in inventory.groups.get(group, ())}
        report.limited = tuple(hosts) if set(hosts) != whole else ()
        report.strict = strict
    return report


def described(cluster: Cluster, groups: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """Return the declared cluster as verify's document keeps it: machines by function, nodes by kind, partitions."""

    def kind(has: Hardware) -> tuple[int | None, int | None, tuple[str, ...]]:
        return has.cpus, has.real_memory, tuple(f"{one.kind}:{one.count}" for one in has.gres or ())

    return {
        "name": cluster.name,
        "controller": cluster.controller,
        "database": cluster.database,
        "login": hostlist.fold(groups.get("slurm_login", ())),
        "kinds": [
            {"nodes": hostlist.fold(names), "cpus": cpus, "memory": memory, "gres": list(gres)}
            for names, (cpus, memory, gres) in cluster.kinds(kind)
        ],
        "partitions": [
            {"name": one.name, "nodes": hostlist.fold(one.nodes or [node.name for node in cluster.nodes])}
            for one in cluster.partitions
        ],
    }


def judged(command: str, report: RunReport, controller: str) -> RunVerdict | None:
    """Return the verdict of a judging command, with what rests on what; None for the others."""
    if command not in JUDGING:
        return None
    found = verdict(report)
    return replace(found, follows=causes.follows(found.checks, controller))


#: The worst first. What does not apply is worse than nothing only.
_WORST = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN, Verdict.PASS, Verdict.SKIP)


def by_subject(found: RunVerdict) -> dict[str, str]:
    """Return the worst verdict of each subject's checks, and as "all" that of the run."""
    subjects: dict[str, set[Verdict]] = {}
    for check in found.checks:
        subjects.setdefault(check.id.partition(".")[0], set()).add(check.verdict)
    worst = {name: next(word for word in _WORST if word in words) for name, words in subjects.items()}
    return {name: str(word) for name, word in sorted({**worst, "all": found.word}.items())}


def concluded(command: str, report: RunReport, record: Run, simulated: Collection[str], controller: str) -> Outcome:
    """Return what a run has shown, keep its report beside the inventory, and end its record.

    A verdict that could not be written down is no pass: ``clusterctl status`` would not repeat it. So it is made again
    after each thing that is written.
    """
    outcome = _outcome(command, report, record, simulated, controller)
    record.write_report(outcome.document)
    if record.broken != report.unrecorded:
        outcome = _outcome(command, report, record, simulated, controller)
    record.finish(_word(outcome.code), exit_code=int(outcome.code), to_sweep=[*report.unswept, *report.installing])
    if record.broken != report.unrecorded:
        outcome = _outcome(command, report, record, simulated, controller)
    return outcome


def _outcome(command: str, report: RunReport, record: Run, simulated: Collection[str], controller: str) -> Outcome:
    if record.broken:
        report.warnings[record.broken] = None
        report.unrecorded = record.broken
    code = exit_code(command, report, root=str(content.ROOT))
    judgement = judged(command, report, controller)
    kept = {"id": record.id, "directory": str(record.directory)}
    mended = causes.goes_with([one.check for one in in_order(report)], controller)
    document = run_document(
        command, code, report, simulated=tuple(simulated), run=kept, judgement=judgement, goes_with=mended
    )
    return Outcome(report, code, record, document, judgement, mended)


def _word(code: ExitCode) -> str:
    if code in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):
        return "interrupted"
    return "done" if code is ExitCode.DONE else "failed"
