"""What a command that judges asks for, and how its verdict is completed: shared by verify and preflight."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from provision.events.fold import RunReport
from provision.events.verdict import JUDGING, RunVerdict, verdict
from provision.inventory.loader import Inventory
from provision.judge import causes, manifest


def begun(command: str, inventory: Inventory, hosts: Collection[str], *, strict: bool = False) -> RunReport:
    """Return the report of a run on ``hosts`` that is about to begin: what it owes, and what it is limited to."""
    report = RunReport(machines=frozenset(inventory.hostvars))
    if command in JUDGING:
        groups = {name: [host for host in members if host in hosts] for name, members in inventory.groups.items()}
        report.owed = manifest.owed(command, groups)
        report.checks += manifest.unverified(command, groups)
        report.limited = tuple(hosts) if set(hosts) != set(inventory.hostvars) else ()
        report.strict = strict
    return report


def judged(command: str, report: RunReport, controller: str) -> RunVerdict | None:
    """Return the verdict of a judging command, with what rests on what; None for the others."""
    if command not in JUDGING:
        return None
    found = verdict(report)
    return replace(found, follows=causes.follows(found.checks, controller))
