"""Commands that run playbooks on the machines: discover, preflight, plan, provision."""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from provision.cli.complete import complete_stages, stage_names
from provision.cli.options import (
    Request,
    ansible_options,
    check_option,
    diff_option,
    full_option,
    inventory_argument,
    timeout_option,
)
from provision.errors import ClusterctlError, ExitCode, did_you_mean

if TYPE_CHECKING:
    from provision.runner.journal_lock import Hold


@click.command()
@inventory_argument
@ansible_options
@check_option
def discover(request: Request) -> int:
    """Ask machines for hardware that the inventory leaves out, and record it in host_vars/ beside it.

    \b
    Example:
        clusterctl discover inventory.ini --limit node[1-4]
    """
    return _run("discover", ["discover"], request, lock=None if request.check else "alone")


@click.command()
@inventory_argument
@ansible_options
def preflight(request: Request) -> int:
    """Ask the machines whether they match the inventory and can be provisioned. Changes nothing.

    \b
    Example:
        clusterctl preflight inventory.ini
    """
    return _run("preflight", ["preflight"], request, lock=None)


@click.command()
@click.argument("words", metavar="[INVENTORY] [STAGE]...", nargs=-1, shell_complete=complete_stages)
@click.option(
    "--detailed-exitcode", is_flag=True, help=f"Exit with {ExitCode.CHANGES_PENDING.value} when changes are pending."
)
@ansible_options
def plan(request: Request, words: tuple[str, ...], detailed_exitcode: bool) -> int:
    """Show what provision would change, with restarts, reboots and file differences. Changes nothing.

    \b
    Example:
        clusterctl plan inventory.ini --limit node2
    """
    inventory, stages = inventory_and_stages(words)
    request = replace(request, inventory=inventory, check=True, diff=True)
    return _run("plan", stages, request, lock=None, detailed=detailed_exitcode)


@click.command()
@click.argument("words", metavar="[INVENTORY] [STAGE]...", nargs=-1, shell_complete=complete_stages)
@check_option
@diff_option
@full_option
@click.option(
    "--kernel", is_flag=True, help="In the stage gpu, also install and boot the distribution's newest kernel."
)
@click.option("--drain", "drains", is_flag=True, help="Wait for running jobs that a new slurm.conf would end.")
@timeout_option
@ansible_options
def provision(request: Request, words: tuple[str, ...], kernel: bool, drains: bool, timeout: int) -> int:
    """Bring the machines to the declared state, in all stages or only in those named.

    A second run changes nothing. Stages: discover, preflight, base, containers, gpu, rdma, munge, slurm, monitoring.

    \b
    Examples:
        clusterctl provision inventory.ini
        clusterctl provision inventory.ini munge slurm --limit node2
        clusterctl provision inventory.ini gpu --kernel
    """
    inventory, stages = inventory_and_stages(words)
    request = replace(request, inventory=inventory)
    if kernel and "gpu" not in stages:
        raise ClusterctlError("--kernel is for the stage gpu", fix="add the stage gpu, or name no stage")
    if kernel:
        newest = json.dumps({"nvidia_driver_newest_kernel": True})
        request = replace(request, extra_vars=(*request.extra_vars, newest))
    waits = timeout if drains and not request.check else None
    return _run("provision", stages, request, lock=None if request.check else "alone", timeout=waits)


@click.command()
@inventory_argument
@click.option("--yes", "confirmed", default="", metavar="CLUSTER", help="The cluster's name, instead of a question.")
@ansible_options
def reset(request: Request, confirmed: str) -> int:
    """Take Slurm, keys, shared mounts and certificates of the cluster off all its machines. All jobs end.

    Packages, drivers, Docker, accounts, exported directories and the accounting database stay.

    \b
    Example:
        clusterctl reset inventory.ini
    """
    from provision.cli import flow
    from provision.report.summary import Printer, show_run

    passwords = flow.ask(request)
    opened = flow.open_cluster(request, passwords)
    name = opened.cluster.name
    if request.limit:
        raise ClusterctlError("reset is for the whole cluster", fix="for some nodes: clusterctl node remove NODES")
    if not confirmed:
        try:
            question = (
                f"All jobs end, and Slurm forgets them. Type the cluster's name to reset {len(opened.hosts)} machines"
            )
            confirmed = click.prompt(question, err=True)
        except click.Abort:  # nobody is there
            confirmed = ""
    if confirmed != name:
        raise ClusterctlError(f"the cluster's name is {name}, not '{confirmed}'", fix=f"to reset it: --yes {name}")
    request = replace(request, extra_vars=(*request.extra_vars, json.dumps({"machine_reset_cluster": name})))
    outcome = flow.play("reset", ["reset"], request, opened=opened, passwords=passwords, lock="alone")
    if request.json:
        flow.print_json(outcome.document)
    else:
        log = str(outcome.run.directory)
        show_run(Printer(), "reset", outcome.report, simulated=opened.simulated, log=log)
    return int(outcome.code)


def inventory_and_stages(words: Sequence[str]) -> tuple[Path | None, list[str]]:
    """Split the arguments: the first is an inventory if it looks like a path or is one, else a stage.

    No stage means all of them; the order is always that of ``playbooks/site.yml``.

    Raises:
        ClusterctlError: a stage does not exist; the nearest is suggested.
    """
    known = stage_names()
    inventory = None
    rest = list(words)
    if rest and rest[0] not in known and _is_path(rest[0], known):
        inventory = Path(rest.pop(0))
    for word in rest:
        if word not in known:
            if "/" in word or "." in word or Path(word).exists():
                raise ClusterctlError(f"'{word}' is no stage", fix=f"name the inventory first: {word} {rest[0]}")
            raise ClusterctlError(
                f"there is no stage '{word}'",
                fix=did_you_mean(word, known, f"the stages are {', '.join(known)}"),
            )
    return inventory, [stage for stage in known if stage in rest or not rest]


def _is_path(word: str, known: Sequence[str]) -> bool:
    if Path(word).exists() or "/" in word or "." in word:
        return True
    # A misspelt stage deserves its suggestion rather than "no such inventory".
    return not difflib.get_close_matches(word, known, n=1)


def _run(
    command: str,
    stages: list[str],
    request: Request,
    *,
    lock: Hold | None,
    detailed: bool = False,
    timeout: int | None = None,
) -> int:
    """Run stages, and show what they did. ``timeout``: seconds to wait for jobs that the change would end."""
    from provision.cli import flow
    from provision.report.summary import Printer, show_run
    from provision.slurm.conf import require_confinement

    passwords = flow.ask(request)
    opened = flow.open_cluster(request, passwords)
    if command in ("plan", "provision"):
        require_confinement(opened.cluster)
    outcome = flow.play(command, stages, request, opened=opened, passwords=passwords, lock=lock)
    if timeout is not None:
        # Not for what waits for no jobs.
        from provision.cli.node import end
        from provision.cli.node_states import FOR_CHANGE, Work, change, drain
        from provision.judge.queue import to_drain

        work = Work(request, opened, passwords)
        if names := to_drain(outcome.report.checks):
            drained = drain(work, names, FOR_CHANGE, timeout, empty=True)
            if drained.code is not ExitCode.DONE:
                return end(request, drained)
            outcome = flow.play(command, stages, request, opened=opened, passwords=passwords, lock=lock)
        if outcome.code not in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):
            # Also those of an earlier call, which has not waited long enough.
            change(work, "resumed", [node.name for node in opened.cluster.nodes], FOR_CHANGE)
    code = outcome.code
    if detailed and code is ExitCode.DONE and outcome.report.changes_pending:
        code = ExitCode.CHANGES_PENDING
        outcome.document["exit_code"] = int(code)
    if request.json:
        flow.print_json(outcome.document)
    else:
        show_run(
            Printer(),
            command,
            outcome.report,
            simulated=opened.simulated,
            every_check=bool(request.verbosity),
            log=str(outcome.run.directory),
            judgement=outcome.judgement,
            goes_with=outcome.goes_with,
            next_command=next_command(
                "plan" if request.check else command,
                ExitCode.CHANGES_PENDING if code is ExitCode.DONE and outcome.report.changes_pending else code,
                opened.path,
                outcome.report.refused_hosts,
                limit=request.limit or "",
            ),
        )
    return int(code)


def next_command(
    command: str, code: ExitCode, inventory: Path, refused: Collection[str] = (), *, limit: str = ""
) -> str:
    """Return what an operator does next, as a command or a sentence; ``refused`` are machines left out by preflight."""
    name = shlex.quote(str(inventory)) + (f" --limit {shlex.quote(limit)}" if limit else "")
    if code in (ExitCode.DONE, ExitCode.CHANGES_PENDING):
        return {
            "discover": f"clusterctl preflight {name}",
            "preflight": f"clusterctl provision {name}",
            "plan": f"clusterctl provision {name}" if code is ExitCode.CHANGES_PENDING else "",
            "provision": f"clusterctl verify {name}",
        }.get(command, "")
    if code in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):
        return f"clusterctl {command} {name} goes on where it was stopped"
    if code is ExitCode.MACHINE_FAILED and refused:
        from provision import hostlist  # not for what only shows help

        place = hostlist.fold(refused)
        return (
            f"repair {place} as described above, then again: clusterctl {command} {name}. "
            f"Until then each run goes on without {place}, no --limit is needed"
        )
    if code is ExitCode.VERIFICATION_FAILED:
        return f"fix what is named above, or see what provision would change: clusterctl plan {name}"
    if code in (ExitCode.MACHINE_FAILED, ExitCode.MACHINE_UNREACHABLE, ExitCode.PREFLIGHT_REFUSED):
        return f"fix what is named above, then again: clusterctl {command} {name}"
    return ""
