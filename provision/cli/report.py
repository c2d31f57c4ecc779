"""The proof of a run as a page to hand on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

import provision
from provision.cli.options import inventory_option
from provision.errors import ClusterctlError, ExitCode

if TYPE_CHECKING:
    from provision.report.record import Record
    from provision.runner.journal import Run


@click.command()
@click.argument("run", required=False)
@click.option("--against", metavar="RUN", help="Show what became worse since this run.")
@click.option("--markdown", is_flag=True, help="Write Markdown for a ticket to standard output instead.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="Write to this file; - is standard output. Default: report.html in the run's directory.",
)
@inventory_option
def report(run: str | None, against: str | None, markdown: bool, output: Path | None, named: Path | None) -> int:
    """Write the proof of a verify run as one self-contained HTML page. Contacts no machine.

    RUN is the id or the directory of a run. The default is the last verify.

    \b
    Example:
        clusterctl report                                   # prints the page's path
        clusterctl report --against 20261127-224353-1f0a22  # what became worse since that run
        clusterctl report --markdown                        # for a ticket
    """
    from provision.report import page, paper
    from provision.runner.journal import write_text

    chosen = _chosen(run, named)
    before = _record(_chosen(against, named)) if against else None
    built = page.build(_record(chosen), before, release=provision.__version__)
    text = paper.markdown(built) if markdown else paper.html(built)
    if str(output) == "-" or (markdown and output is None):
        click.echo(text, nl=False)
        return ExitCode.DONE
    target = output or chosen.directory / "report.html"
    try:
        if output is None:
            write_text(target, text)  # for its owner alone, as all of a record is
        else:
            output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ClusterctlError(
            f"the report cannot be written: {target}: {error.strerror}", fix="choose another file with --output"
        ) from error
    click.echo(str(target.resolve()))
    return ExitCode.DONE


def _chosen(name: str | None, inventory: Path | None) -> Run:
    """Return the run that is meant: by its directory, by its id beside the inventory, else the last verify.

    Raises:
        ClusterctlError: there is none.
    """
    from provision.inventory.loader import default_path
    from provision.runner import journal

    if name and (os.sep in name or Path(name).is_dir()):
        if (found := journal.at(Path(name))) is None:
            raise ClusterctlError(f"{name} holds no run", fix="name a directory below .clusterctl/runs, or a run's id")
        return found
    path = inventory or default_path()
    state = journal.state_directory(path)
    known = [run for room in (journal.LOOKS, journal.RUNS) for run in journal.runs(state, room)]
    if name:
        for found in known:
            if found.id == name:
                return found
        raise ClusterctlError(f"there is no run '{name[:80]}' beside {path}", fix=_offer(known))
    judged = [run for run in known if run.facts.get("command") == "verify" and not run.alive]
    if not judged:
        raise ClusterctlError(f"there is no verdict beside {path} yet", fix=f"make one: clusterctl verify {path}")
    return judged[-1]


def _offer(known: list[Run]) -> str:
    judged = [run.id for run in known if run.facts.get("command") == "verify"][-3:]
    return f"name one of these: {', '.join(judged)}" if judged else "make one: clusterctl verify"


def _record(run: Run) -> Record:
    """Return what a run has left: its report, or where it was cut off the checks in its journal.

    Raises:
        ClusterctlError: it judged nothing, is going on, or is of a form that this release does not know.
    """
    from provision.cli.verify import reported
    from provision.events.verdict import JUDGING
    from provision.report.documents import schema
    from provision.report.record import Record
    from provision.runner import journal

    command = str(run.facts.get("command", ""))
    if command not in JUDGING:
        raise ClusterctlError(
            f"run {run.id} is of '{command[:40]}', which gives no verdict", fix="name a run of clusterctl verify"
        )
    if run.alive:
        raise ClusterctlError(f"run {run.id} has not ended", fix="wait for its end, or name another run")
    document = reported(run)
    form = str(document.get("schema", "no schema"))[:60]
    if document and form != schema(command):
        raise ClusterctlError(
            f"run {run.id} is recorded as {form}; this release reads {schema(command)}",
            fix="use the release of clusterctl that made it, or verify again",
        )
    if document:
        return Record(run.facts, document)
    outcome = str(run.facts.get("outcome") or "killed")[:40]
    checks = [check for entry in journal.entries(run.directory) for check in entry.get("checks") or ()]
    return Record(run.facts, {}, checks, f"this run was cut off ({outcome})")
