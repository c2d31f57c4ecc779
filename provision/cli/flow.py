"""The flow that every command on machines shares: inventory, record, lock, access, one Ansible run, report."""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import click

from provision import hostlist
from provision.ansible_env import ignored_settings
from provision.cli import judged
from provision.cli.extra import extra_variables, require_no_redirection
from provision.cli.options import Request
from provision.errors import ClusterctlError, ExitCode
from provision.events.fold import RunReport
from provision.events.verdict import busy
from provision.inventory.loader import Inventory, cluster_hosts, default_path, hosts_in, load
from provision.model.cluster import Cluster
from provision.report.progress import Progress
from provision.runner import journal
from provision.runner import playbooks as runner
from provision.runner.estimate import last_run
from provision.runner.journal_lock import Hold
from provision.runner.journal_lock import lock as cluster_lock
from provision.runner.recover import recover
from provision.runner.secret import offered
from provision.ssh.target import Target


@dataclass(frozen=True)
class Opened:
    """An inventory that was found good, and what of it is in scope."""

    path: Path
    inventory: Inventory
    cluster: Cluster
    hosts: tuple[str, ...]

    @property
    def simulated(self) -> tuple[str, ...]:
        """What the inventory says is not real."""
        return self.cluster.simulated


@dataclass(frozen=True)
class Passwords:
    """What was asked for on the terminal; None where it was not."""

    become: str | None = None
    vault: str | None = None


def time_factor(inventory: Inventory) -> int:
    """Return how many times longer than usual the slowest machine may take."""
    told = [str(variables.get("cluster_time_factor", 1)) for variables in inventory.hostvars.values()]
    return max((int(text) for text in told if text.isascii() and text.isdigit()), default=1)


def targets_of(inventory: Inventory, hosts: Iterable[str], user: str = "") -> list[Target]:
    """Return machines as the probe wants them."""
    return [Target.from_hostvars(host, inventory.hostvars[host], user=user) for host in hosts]


def ask(request: Request) -> Passwords:
    """Ask for the passwords that the options demand, unseen; where nobody sits, read one line of input for each.

    Raises:
        ClusterctlError: there is no more input.
    """

    def prompt(text: str, wanted: bool) -> str | None:
        if not wanted:
            return None
        if sys.stdin.isatty():
            return str(click.prompt(text, hide_input=True, err=True))
        if not (line := sys.stdin.readline().rstrip("\r\n")):
            raise ClusterctlError(f"no {text} came from standard input", fix="type it on a terminal, or pipe it in")
        return line

    return Passwords(prompt("BECOME password", request.ask_become), prompt("Vault password", request.ask_vault))


def open_cluster(request: Request, passwords: Passwords | None = None) -> Opened:
    """Load and check the inventory.

    Raises:
        ClusterctlError: it is wrong (exit code 2); no machine has been contacted.
    """
    from provision.inventory.valid import declared

    hostlist.require_possible(request.limit or "", "--limit")
    if ignored := ignored_settings():
        click.echo(f"Warning: ignored: {', '.join(ignored)}; clusterctl uses its own settings", err=True)
    if request.inventory and request.named:
        raise ClusterctlError(f"two inventories are named: {request.inventory} and {request.named}", fix="name one")
    path = request.inventory or request.named or default_path()
    with ExitStack() as stack:
        vault = [word for file in request.vault_files for word in ("--vault-password-file", file)]
        vault += [word for name in request.vault_ids for word in ("--vault-id", name)]
        if passwords is not None and passwords.vault is not None:
            pipe = stack.enter_context(_private_directory()) / "vault"
            vault += ["--vault-password-file", str(stack.enter_context(offered(pipe, passwords.vault)))]
        inventory = load(path, vault=vault)
        require_no_redirection(request.extra_vars, vault=vault)
    return Opened(path, inventory, declared(inventory), hosts_in(inventory, request.limit))


def play(
    command: str,
    playbooks: Sequence[str],
    request: Request,
    *,
    opened: Opened,
    passwords: Passwords,
    lock: Hold | None,
    probe: bool = True,
    quiet: bool = False,
    strict: bool = False,
) -> judged.Outcome:
    """Run playbooks on the machines in scope that can be entered, and return what happened.

    ``lock`` is None for commands that only look: they wait for nobody, end nothing and leave no lasting record.
    ``quiet``: a bar, but no lines where there is no terminal.
    ``strict``, for a command that judges: warnings, and skips that leave something unproven, are no pass.

    Raises:
        ClusterctlError: the record cannot be written (2 or 3), or another run holds the lock or the lease (6).
    """
    targets = targets_of(opened.inventory, opened.hosts, request.user)
    with (
        session(command, opened, request, lock=lock, stages=playbooks) as record,
        Progress(
            sys.stderr,
            machines=len(opened.hosts),
            verbosity=request.verbosity,
            judging=command == "verify",
            expected=lambda: last_run(record, _room(lock)),
        ) as progress,
    ):
        if command == "provision" and lock == "alone":
            everywhere = targets_of(opened.inventory, cluster_hosts(opened.inventory), request.user)
            directory = journal.state_directory(opened.path)
            for told in recover(directory, everywhere, become_password=passwords.become):
                progress.say(f"Note: {told}")
        report = judged.begun(command, opened.inventory, opened.hosts, strict=strict)
        report.check_mode = request.check
        if command == "verify":
            report.data["declared"] = judged.described(opened.cluster, opened.inventory.groups)
        if probe:
            _probe(report, targets, passwords)
        out = report.left_out = report.failed_hosts | report.unreachable_hosts
        if out:
            progress.say(f"access: {hostlist.fold(out)} left out")
        if in_scope := set(opened.hosts) - out:
            options = replace(
                _options(request, passwords, limit=in_scope if request.limit or out else None),
                time_factor=time_factor(opened.inventory),
                left_out=report.unreachable_hosts & {opened.cluster.controller},
            )
            with _lease_released(report, record, opened, options):
                runner.run(
                    playbooks,
                    inventory=opened.path,
                    record=record,
                    options=options,
                    report=report,
                    targets=[target for target in targets if target.name not in out],
                    on_event=None if quiet and not sys.stderr.isatty() else progress,
                    # One who has typed it reads first what a stop would cut.
                    warn=progress.warn if lock == "alone" and sys.stdin.isatty() else None,
                )
        if report.refused:
            raise ClusterctlError(report.refused[0], fix=report.refused[1], exit_code=ExitCode.LOCKED)
        if command == "verify" and in_scope and not report.limited and opened.inventory.groups.get("monitoring"):
            _verdict_told(report, record, opened, options)
        return judged.concluded(command, report, record, opened.simulated, opened.cluster.controller)


def _verdict_told(report: RunReport, record: journal.Run, opened: Opened, options: runner.Options) -> None:
    """Let Prometheus know the verdict. Where the controller cannot be told, the alert says that it is old."""
    found = judged.judged("verify", report, opened.cluster.controller)
    if found is not None and report.stopped_by is None and opened.cluster.controller not in report.unreachable_hosts:
        told = {"clusterctl_verdicts": judged.by_subject(found), "clusterctl_verified": time.time()}
        # What verify has found is worth more than this: a full disk beside the inventory must not hide it.
        with suppress(OSError, ClusterctlError):
            runner.run(
                ["verdict"],
                inventory=opened.path,
                record=record,
                options=replace(options, limit={opened.cluster.controller}, extra_vars={**options.extra_vars, **told}),
            )


@contextmanager
def _lease_released(report: RunReport, record: journal.Run, opened: Opened, options: runner.Options) -> Iterator[None]:
    """Let others change the cluster also where a run ended before it came to its last play."""
    try:
        yield
    finally:
        if report.leased:
            told = {**options.extra_vars, "clusterctl_releases": True}
            runner.run(
                ["release"],
                inventory=opened.path,
                record=record,
                options=replace(options, limit={opened.cluster.controller}, extra_vars=told),
            )


def beside(command: str, opened: Opened, request: Request, refused: ClusterctlError) -> judged.Outcome:
    """Return the outcome of judging a cluster that another run is changing: unknown, and no machine was asked."""
    report = busy(refused.problem, fix=refused.fix)
    with session(command, opened, request, lock=None) as record:
        return judged.concluded(command, report, record, opened.simulated, opened.cluster.controller)


@contextmanager
def session(
    command: str, opened: Opened, request: Request, *, lock: Hold | None, stages: Sequence[str] = ()
) -> Iterator[journal.Run]:
    """Make a run's record, under the cluster's lock where asked; a run that ends by an exception is recorded too."""
    directory = journal.prepare(journal.state_directory(opened.path))
    shown = {name: getattr(request, name) for name in ("limit", "check", "full", "user", "forks")}
    record = journal.begin(
        directory,
        command,
        options={"inventory": str(opened.path), **shown, "stages": list(stages)},
        hosts=opened.hosts,
        room=_room(lock),
    )
    with ExitStack() as stack:
        if lock:
            try:
                stack.enter_context(cluster_lock(directory, record, lock))
            except ClusterctlError:
                _forget(record)
                raise
        try:
            yield record
        except ClusterctlError as error:
            if error.exit_code is ExitCode.LOCKED:
                _forget(record)
                raise
            record.finish("refused", exit_code=int(error.exit_code), problem=error.problem)
            raise
        except Exception as error:
            path = record.directory / "traceback.txt"
            journal.write_text(path, "".join(traceback.format_exception(error)))
            error.clusterctl_log = path  # type: ignore[attr-defined]
            record.finish("crashed", exit_code=int(ExitCode.BUG))
            raise
        except BaseException:
            record.finish("interrupted")
            raise


def _forget(record: journal.Run) -> None:
    """Remove the record of a run that somebody else's kept from beginning: it is no last run, and no verdict."""
    rmtree(record.directory, ignore_errors=True)
    record.release()


def _room(lock: Hold | None) -> str:
    return journal.RUNS if lock else journal.LOOKS


def _probe(report: RunReport, targets: Sequence[Target], passwords: Passwords) -> None:
    from provision.ssh import reach  # paramiko is slow to import, and check and render do not need it

    report.add_access(reach.probe(targets, become_password=passwords.become))


def _options(request: Request, passwords: Passwords, *, limit: set[str] | None) -> runner.Options:
    variables, files = extra_variables(request.extra_vars)
    if request.full:
        variables = {**variables, "cluster_full": True}
    return runner.Options(
        limit=limit,
        check=request.check,
        diff=request.diff,
        extra_vars=variables,
        extra_args=[word for file in files for word in ("-e", file)],
        forks=request.forks,
        verbosity=max(0, request.verbosity - 1),
        user=request.user,
        become_password=passwords.become,
        vault_password=passwords.vault,
        vault_files=request.vault_files,
        vault_ids=request.vault_ids,
    )


@contextmanager
def _private_directory() -> Iterator[Path]:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="clusterctl-") as name:
        yield Path(name)


def print_json(document: Mapping[str, Any]) -> None:
    """Print a command's document; a reader who leaves early does not change how the command ends."""
    with suppress(BrokenPipeError):
        click.echo(json.dumps(document, indent=2, ensure_ascii=True, default=str))
