"""Commands that tell how the cluster is: verify and status."""

from __future__ import annotations

import json as json_module
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from provision.cli.options import Request, ansible_options, inventory_argument
from provision.errors import ClusterctlError, ExitCode
from provision.model.text import one_line

if TYPE_CHECKING:
    from provision.runner.journal import Run


@click.command()
@inventory_argument
@ansible_options
@click.option("--all", "every", is_flag=True, help="Also list the checks that passed.")
@click.option(
    "--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write JUnit XML to this file."
)
@click.option("--strict", is_flag=True, help="Also fail on warnings and on unproven checks.")
def verify(request: Request, every: bool, junit: Path | None, strict: bool) -> int:
    """Prove that the cluster works, up to a distributed training job through Slurm.

    \b
    Example:
        clusterctl verify inventory.ini --junit verify.xml
    """
    from provision.cli import flow
    from provision.cli.machines import next_command
    from provision.events.verdict import verdict
    from provision.report import documents
    from provision.report.summary import Printer, show_run

    passwords = flow.ask(request)
    opened = flow.open_cluster(request, passwords)
    try:
        outcome = flow.play(
            "verify", ["verify"], request, opened=opened, passwords=passwords, lock="shared", strict=strict
        )
    except ClusterctlError as error:
        if error.exit_code is not ExitCode.LOCKED:
            raise
        outcome = flow.beside("verify", opened, request, error)
    if junit is not None:
        seconds = sum(stage.seconds for stage in outcome.report.stages.values())
        try:
            text = documents.junit(outcome.judgement or verdict(outcome.report), seconds=seconds)
            junit.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ClusterctlError(
                f"the JUnit file cannot be written: {junit}: {error.strerror}", fix="choose another --junit"
            ) from error
    if request.json:
        flow.print_json(outcome.document)
    else:
        show_run(
            Printer(),
            "verify",
            outcome.report,
            simulated=opened.simulated,
            every_check=every or bool(request.verbosity),
            log=str(outcome.run.directory),
            judgement=outcome.judgement,
            next_command=next_command("verify", outcome.code, opened.path, limit=request.limit or ""),
        )
    return int(outcome.code)


@click.command()
@inventory_argument
@ansible_options
def status(request: Request) -> int:
    """Show nodes, states, GPUs, jobs, who changes the cluster now, the last run and the last verdict.

    Connects to each node's slurmd, because Slurm itself notices a dead one only after five minutes.

    \b
    Example:
        clusterctl status inventory.ini
    """
    from provision.cli import flow
    from provision.judge.lease import Lease, holder
    from provision.report.summary import Printer, show_facts, show_run

    passwords = flow.ask(request)
    opened = flow.open_cluster(request, passwords)
    past = last(opened.path)
    opened = replace(opened, hosts=(opened.cluster.controller,))
    request = replace(request, limit=opened.cluster.controller)
    outcome = flow.play("status", ["status"], request, opened=opened, passwords=passwords, lock=None, quiet=True)
    slurm = outcome.report.data.get("cluster_status") or {}
    lease = (outcome.report.data.get("cluster_lease") or {}).get("holder")
    outcome.document |= {"slurm": slurm, "lease": lease, **past}
    if request.json:
        flow.print_json(outcome.document)
        return int(outcome.code)
    printer = Printer()
    if outcome.code is not ExitCode.DONE:
        show_run(printer, "status", outcome.report, simulated=opened.simulated)
    rows: list[tuple[str, ...]] = [("NODE", "STATE", "CPUS", "GRES", "IN USE", "REASON")]
    rows += [_node(node) for node in slurm.get("nodes", ())]
    if len(rows) > 1:
        printer.table(rows)
    jobs = slurm.get("jobs", ())
    if jobs:
        printer.table([("JOB", "USER", "STATE", "NODES"), *(_job(job) for job in jobs)])
    facts: dict[str, object] = {"jobs": len(jobs)} if slurm else {}
    if lease:
        facts |= {"changes the cluster now": holder(Lease(**lease), time.time() - lease["renewed"], now=time.time())}
    show_facts(printer, facts | {key.replace("_", " "): _run_line(value) for key, value in past.items() if value})
    if opened.simulated:
        printer.line(f"simulated: {', '.join(opened.simulated)}")
    return int(outcome.code)


def last(inventory: Path) -> dict[str, Any]:
    """Return the last run that could change something and the last verdicts, each None where there is none.

    ``last_verdict`` is on the whole cluster: one that was made with ``--limit`` is ``last_limited``, and only if it is
    newer. A verify that was killed before it could tell is an unknown verdict.
    """
    from provision.runner import journal

    found: dict[str, Any] = {"last_run": None, "last_verdict": None, "last_limited": None}
    for run in journal.runs(journal.state_directory(inventory)):
        facts = {key: run.facts.get(key) for key in ("id", "command", "started", "ended", "outcome", "exit_code")}
        if run.facts.get("command") == "provision":
            found["last_run"] = facts
        elif run.facts.get("command") == "verify" and not run.alive:
            report = reported(run)
            facts |= {"verdict": report.get("verdict") or "unknown", "limited": report.get("limited") or []}
            facts["failed"] = next((one for one in report.get("checks") or () if one.get("verdict") == "fail"), None)
            limit = (run.facts.get("options") or {}).get("limit")
            if facts["limited"] or (limit and not report):
                found["last_limited"] = facts | {"limit": limit}
            else:
                found |= {"last_verdict": facts, "last_limited": None}
    return found


def last_verdicts(inventory: Path) -> dict[str, dict[str, str]]:
    """Return the verdict of the last verify that spoke of each machine, when it began, and the driver that it found."""
    from provision.runner import journal

    found: dict[str, dict[str, str]] = {}
    for run in reversed(journal.runs(journal.state_directory(inventory))):
        report = reported(run) if run.facts.get("command") == "verify" and not run.alive else {}
        said: dict[str, dict[str, tuple[str, str]]] = {}
        for check in report.get("checks") or ():
            said.setdefault(check["host"], {})[check["id"]] = (check["verdict"], check["observed"])
        for host, checks in said.items():
            verdicts = {verdict for verdict, _ in checks.values()}
            word = next((word for word in ("fail", "unknown") if word in verdicts), "pass")
            verdict, driver = checks.get("nvidia_driver.version", ("skip", ""))
            own = {"verdict": word, "at": str(run.facts.get("started")), "driver": "" if verdict == "skip" else driver}
            found.setdefault(host, own)
        if report and not report.get("limited"):
            break
    return found


def reported(run: Run) -> dict[str, Any]:
    """Return the report of a run that ended by itself, nothing for one that was killed while it wrote it."""
    if run.facts.get("exit_code") is None:
        return {}
    with suppress(OSError, ValueError):
        report = json_module.loads((run.directory / "report.json").read_text(encoding="utf-8"))
        if isinstance(report, dict) and report.get("exit_code") == run.facts["exit_code"]:
            return report
    return {}


def _run_line(facts: dict[str, Any]) -> str:
    told = facts.get("verdict") or facts.get("outcome") or "never finished"
    if "verdict" in facts and facts.get("outcome") not in ("done", "failed"):
        told += f" ({facts.get('outcome') or 'never finished'})"
    if facts.get("limited") or facts.get("limit"):
        told += f", limited to {facts.get('limit') or ', '.join(facts['limited'])}"
    if failed := facts.get("failed"):
        told += f", first {failed.get('host')} {failed.get('id')}: {one_line(str(failed.get('observed', '')))}"
    return f"{told}, {facts.get('ended') or facts.get('started')} ({facts.get('command')}, {facts.get('id')})"


def _resources(text: object) -> str:
    """Return resources without what Slurm adds to them when it prints them."""
    from provision.model.gres import printed  # not for what only shows help

    with suppress(ValueError):
        text = ",".join(map(str, printed(str(text or ""))))
    return str(text or "-")


def _node(node: dict[str, Any]) -> tuple[str, ...]:
    connection = node.get("connection") or "open"
    silent = "" if connection == "open" else f"slurmd does not answer: {connection}"
    return (
        str(node.get("name", "")),
        state_word(node),
        str(node.get("cpus", "")),
        _resources(node.get("gres")),
        _resources(node.get("gres_used")),
        "; ".join(filter(None, (silent, str(node.get("reason", "") or "")))),
    )


def _job(job: dict[str, Any]) -> tuple[str, str, str, str]:
    return str(job.get("id", "")), str(job.get("user", "")), state_word(job), str(job.get("nodes", ""))


def state_word(one: Mapping[str, Any]) -> str:
    """Return the state of a node or of a job as sinfo and squeue write it, in small letters."""
    return "+".join(one.get("state", ())).lower()
