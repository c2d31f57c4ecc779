"""What a run in check mode tells: the failing checks as changes, by stage, and how files differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

from provision.events.diff import Diff
from provision.events.fold import RunReport
from provision.events.model import Pending
from provision.model.checks import Check
from provision.report.checks import Lines, fold

#: For what is to be done, by machine and id of a check: with whose mending it is gone, as ``id@machine``.
GoesWith = Mapping[tuple[str, str], Sequence[str]]

#: Observations of one check that are told, most machines first; what is a machine's own is counted.
_TOLD = 3


def planned(command: str, report: RunReport) -> bool:
    """Tell whether a run is about what would be done, and does nothing."""
    return command == "plan" or (command == "provision" and report.check_mode)


def in_order(report: RunReport) -> list[Pending]:
    """Return what there is to do, in the order of the run's stages."""
    stages = list(dict.fromkeys(stage for stage, _ in report.plays))
    return sorted(report.pending, key=lambda one: stages.index(one.stage) if one.stage in stages else len(stages))


def to_change(report: RunReport) -> set[str]:
    """Return the machines on which, or for which, something would be done."""
    return {one.check.host for one in report.pending}.union(*report.changes.values())


def show_plan(printer: Lines, report: RunReport, *, every: bool = False, goes_with: GoesWith | None = None) -> None:
    """Write what would be done: a line for each stage, machines that are alike and check; then how files differ.

    ``every`` tells also what only single machines have to say of a check; ``goes_with``, what is gone with another
    check's mending.
    """
    rows = [(task.stage, fold(hosts), str(task)) for task, hosts in report.changes.items()]
    rows += _rows(in_order(report), goes_with or {}, every=every)
    widths = [min(24, max((len(row[column]) for row in rows), default=0)) for column in (0, 1)]
    for stage, place, told in rows:
        words = [stage, place] if printer.narrow else [stage.ljust(widths[0]), place.ljust(widths[1])]
        printer.line((" " if printer.narrow else "  ").join([*words, told]), style="yellow")
    _differences(printer, report.diffs)
    if report.ok and not report.changes_pending:
        printer.line("nothing would change")


def _change(check: Check, goes_with: GoesWith) -> str:
    """Return what is to be mended; where it goes with another check, of which, and on which machine if on another."""
    roots = dict.fromkeys(name.removesuffix(f"@{check.host}") for name in goes_with.get((check.host, check.id), ()))
    return check.change + (f" (goes with {', '.join(roots)})" if roots else "")


def _rows(pending: Iterable[Pending], goes_with: GoesWith, *, every: bool) -> list[tuple[str, str, str]]:
    """Return stage, machines and words of each line."""
    checks: dict[tuple[str, str], dict[str, list[Check]]] = defaultdict(lambda: defaultdict(list))
    for one in pending:
        checks[one.stage, one.check.id][_change(one.check, goes_with)].append(one.check)
    rows = []
    for (stage, _), groups in checks.items():
        most = sorted(groups.items(), key=lambda group: len(group[1]), reverse=True)
        shown = most if every or len(most) <= _TOLD else most[: _TOLD - 1]
        rows += [(stage, fold(check.host for check in alike), change) for change, alike in shown]
        if rest := [check for _, alike in most[len(shown) :] for check in alike]:
            # What mending them brings, whichever of them it is.
            brings = tuple(dict.fromkeys(one for check in rest for one in check.consequences))
            told = replace(
                rest[0], observed="another reason on each machine (--verbose shows them)", consequences=brings
            )
            rows.append((stage, fold(check.host for check in rest), told.change))
    return rows


def _differences(printer: Lines, diffs: dict[Diff, set[str]]) -> None:
    programs: dict[tuple[str, str], list[Diff]] = defaultdict(list)
    for diff, hosts in sorted(diffs.items(), key=lambda one: one[0].path):
        if diff.lines is not None:
            programs[fold(hosts), str(PurePath(diff.path).parent)].append(diff)
            continue
        printer.line(f"{fold(hosts)}: {diff.path}", style="bold")
        lines = diff.text.splitlines()
        # The path stands above.
        for line in lines[2:] if lines[:1] == [f"--- {diff.path}"] else lines:
            printer.line(line, style={"+": "green", "-": "red", "@": "cyan"}.get(line[:1], ""))
    for (place, directory), members in programs.items():
        named = ", ".join(f"{PurePath(diff.path).name} ({diff.lines} lines)" for diff in members)
        printer.line(f"{place}: {directory}: programs of clusterctl's own: {named}", style="bold")
