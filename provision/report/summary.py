"""What a command tells a person: the run stage by stage, what went wrong folded by machine, and what to do next."""

from __future__ import annotations

import io
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from provision.events.fold import Failure, RunReport
from provision.events.verdict import JUDGING, RunVerdict, interruptions, verdict
from provision.model.text import clean, one_line
from provision.report.checks import COLOURS, fold, show_checks
from provision.report.plan import GoesWith, planned, show_plan, to_change

#: Columns below which a table would be a heap of broken words.
NARROW = 70


class _Console(Console):
    """A console that goes quiet when nobody reads any more, so that the command still ends with its own exit code."""

    def on_broken_pipe(self) -> None:
        """Instead of exiting with code 1, as rich does."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Printer:
    """Plain lines and tables on one stream, as wide as the terminal, and in characters that its encoding has."""

    def __init__(self, stream: TextIO | None = None) -> None:
        stream = stream or sys.stdout
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
        # In a pipe there is no width to keep to: a line stays a line, for grep.
        self.width = shutil.get_terminal_size().columns if stream.isatty() else 10_000
        self._console = _Console(file=stream, highlight=False, markup=False, emoji=False, width=self.width)

    @property
    def narrow(self) -> bool:
        """True where tables are written as lists."""
        return self.width < NARROW

    def line(self, text: str = "", style: str = "", indent: int = 0) -> None:
        """Write one paragraph, wrapped at words, further lines set in; what a machine said is cleaned first."""
        hang = " " * (indent + (1 if self.narrow else 2))
        for number, part in enumerate(clean(text).splitlines() or [""]):
            # A second line of the same text is set in, too: it is no line of ours.
            first = hang if number else " " * indent
            lines = textwrap.wrap(
                part, self.width, initial_indent=first, subsequent_indent=hang, break_on_hyphens=False
            )
            for piece in lines or [""]:
                self._console.print(Text(piece, style=style), soft_wrap=True)

    def whole(self, text: str) -> None:
        """Write one line that the terminal may wrap and a person can copy."""
        self._console.print(Text(one_line(text)), soft_wrap=True)

    def table(self, rows: Iterable[Sequence[str]], styles: Sequence[str] = ()) -> None:
        """Write columns without a frame, or, where it is narrow, one line per row."""
        rows = [tuple(one_line(cell) for cell in row) for row in rows]
        if self.narrow:
            for row in rows:
                self.line(" ".join(cell for cell in row if cell))
            return
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        for cells in zip(*rows, strict=True):
            table.add_column(overflow="fold", min_width=min(8, max(map(len, cells))))
        for number, row in enumerate(rows):
            table.add_row(*(Text(cell) for cell in row), style=styles[number] if styles else "")
        self._console.print(table)


def show_run(
    printer: Printer,
    command: str,
    report: RunReport,
    *,
    simulated: Sequence[str] = (),
    every_check: bool = False,
    next_command: str = "",
    log: str = "",
    judgement: RunVerdict | None = None,
    goes_with: GoesWith | None = None,
) -> None:
    """Write the summary of a command that ran playbooks; ``judgement`` is its verdict where it judges.

    ``goes_with`` is what :func:`provision.report.plan.show_plan` takes.
    """
    _stages(printer, report)
    if planned(command, report):
        show_plan(printer, report, every=every_check, goes_with=goes_with)
    judging = command in JUDGING
    judgement = (judgement or verdict(report)) if judging else None
    checks = judgement.checks if judgement else tuple(report.checks)
    if checks:
        follows = judgement.follows if judgement else None
        show_checks(printer, checks, every=every_check, follows=follows)
    if not judging:
        _failures(printer, report.failures)
        _failures(printer, report.unreachable)
    _ends(printer, report, judging=judging)
    for warning in report.warnings:
        printer.line(f"Warning: {warning}", style="yellow")
    if simulated:
        printer.line(f"simulated: {', '.join(simulated)} (simulated hardware is not counted as proven)")
    if report.stopped_by is not None:
        _stopped(printer, report)
    if judgement:
        printer.line(verdict_line(judgement, simulated), style=COLOURS[judgement.word])
    if report.hosts:
        printer.line(totals(report, planned=planned(command, report)))
    if log:
        printer.whole(f"record: {log}")
    if next_command:
        printer.whole(f"next: {next_command}")


def _ends(printer: Printer, report: RunReport, *, judging: bool) -> None:
    """Write why a run has ended that neither failed on a machine nor was stopped."""
    told = report.failures or report.unreachable or report.stopped_by is not None
    if not told and (report.rc != 0 or not report.started):
        for message in report.messages:
            printer.line(message)
    if not judging and report.stopped_by is None and report.began:
        for check in interruptions(report):
            printer.line(f"{fold([check.host])} {check.observed}".strip(), style="bold red")


def _stopped(printer: Printer, report: RunReport) -> None:
    ended = f"Stopped. {sum(report.swept.values())} processes on the machines were ended."
    if report.installing:
        ended += (
            f" Left to finish, because they install packages: {fold(report.installing)}. The next run waits for them."
        )
    if report.unswept:
        ended += f" Not asked, because they did not answer: {fold(report.unswept)}"
    printer.line(ended, style="bold yellow")


def verdict_line(judgement: RunVerdict, simulated: Sequence[str] = ()) -> str:
    """Return the verdict in one line: what was counted, what it does not speak of, and why it is no pass."""
    count = judgement.counts
    parts = [f"{count[word]} {word}" for word in ("fail", "unknown") if count[word]]
    parts.append(f"{count['proven']} proven")
    if count["simulated"]:
        parts.append(f"{count['simulated']} simulated" + (f": {' '.join(simulated)}" if simulated else ""))
    parts += [f"{count[word]} {word}" for word in ("warn", "unproven") if count[word]]
    line = f"verdict: {judgement.word} ({', '.join(parts)})"
    if judgement.limited:
        line += f", limited to {fold(judgement.limited)}: it says nothing about the rest of the cluster"
    return line + "".join(f"; {why}" for why in judgement.why)


def totals(report: RunReport, *, planned: bool = False) -> str:
    """Return the run in one line; ``planned`` tells that it was about what would be done."""
    hosts = len(report.hosts)
    return (
        f"{hosts} machine{'s' * (hosts != 1)}: "
        + (f"{len(to_change(report))} would change, " if planned else f"{len(report.changed_hosts)} changed, ")
        + f"{len(report.failed_hosts)} failed, {len(report.unreachable_hosts)} unreachable"
    )


def show_facts(printer: Printer, facts: Mapping[str, Any]) -> None:
    """Write names and values, one pair per line."""
    for name, value in facts.items():
        printer.line(f"{name}: {value}")


def _stages(printer: Printer, report: RunReport) -> None:
    rows = []
    for stage in report.stages.values():
        parts = [f"{len(stage.hosts - stage.failed - stage.unreachable)} ok"]
        parts += [
            f"{len(hosts)} {word}"
            for word, hosts in (
                ("changed", stage.changed),
                ("failed", stage.failed),
                ("unreachable", stage.unreachable),
            )
            if hosts
        ]
        if stage.hosts:
            rows.append((stage.name, ", ".join(parts), f"{stage.seconds:.1f} s"))
    if rows:
        printer.table(rows)


def _failures(printer: Printer, group: Mapping[Failure, set[str]]) -> None:
    """Write what failed of itself: what a check said stands among the checks."""
    for failure, hosts in group.items():
        if not failure.checked:
            printer.line(f"{fold(hosts)}: {failure.task}: {failure.reason}", style="bold red")
