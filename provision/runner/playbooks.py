"""Running playbooks: one ansible-playbook process through ansible-runner, its events folded into a report.

ansible-runner's own defaults would switch host keys off, keep every event and the caller's environment on disk, and
leave workers behind when stopped; each line here that says otherwise has a test.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from provision import content
from provision.ansible_env import clean_environment
from provision.errors import ClusterctlError
from provision.events.fold import RunReport
from provision.judge import road
from provision.runner import journal
from provision.runner.limits import Deadline
from provision.runner.process import MARK, Stop, end_connections, kill_marked, named
from provision.runner.record import recorded
from provision.runner.secret import offered

#: Called after each event with the report so far and the event itself.
OnEvent = Callable[[RunReport, Mapping[str, Any]], None]

#: Where the callback is that hands events over; it extends ansible-runner's own.
CALLBACKS = content.ROOT / "plugins" / "callback"

#: Characters of one task's result that Ansible hands over; more arrives as nothing at all. Checks of 10,000 nodes fit.
MAX_RESULT = 8_000_000


@dataclass(frozen=True)
class Options:
    """What a run may be told, under Ansible's own names. ``limit`` names machines one by one; None means all.

    ``left_out`` are machines that could not be reached a moment ago: no task that is delegated to one waits for it.
    ``time_factor`` stretches the run's limits (``cluster_time_factor``). ``extra_args`` are handed over as they are.
    The passwords and ``extra_vars`` go through pipes: they are in no file, argument or environment.
    """

    limit: Collection[str] | None = None
    left_out: Collection[str] = ()
    tags: Sequence[str] = ()
    skip_tags: Sequence[str] = ()
    check: bool = False
    diff: bool = False
    extra_vars: Mapping[str, Any] = field(default_factory=dict)
    extra_args: Sequence[str] = ()
    forks: int | None = None
    time_factor: int = 1
    verbosity: int = 0
    user: str = ""
    become_password: str | None = None
    vault_password: str | None = None
    vault_files: Sequence[str] = ()
    vault_ids: Sequence[str] = ()


def run(
    playbooks: Sequence[str | Path],
    *,
    inventory: Path | str,
    record: journal.Run,
    options: Options | None = None,
    report: RunReport | None = None,
    targets: Sequence[Any] = (),
    on_event: OnEvent | None = None,
    warn: Callable[[], None] | None = None,
) -> RunReport:
    """Run playbooks (names of ours, or paths) in one process and return what happened.

    ``inventory`` is a path, or a text with a comma as Ansible takes it (``"localhost,"``). ``report`` may hold what is
    known already, such as the probe's checks. When a signal stops the run, our processes are ended here and on
    ``targets`` (``provision.ssh.target.Target``) before this returns; ``stopped_by`` says which signal it was. A run
    that has reached its limit (``provision.runner.limits``) is stopped in the same way, as if by SIGALRM. With ``warn``
    the first Ctrl-C calls it, and the second stops the run.
    """
    options = options or Options()
    paths = [content.playbook(item) if isinstance(item, str) else item.resolve() for item in playbooks]
    report = report if report is not None else RunReport()
    report.plays = [pair for path in paths for pair in _plays(path)]
    stop = Stop(record.id, warn)
    deadline = Deadline({stage for stage, _ in report.plays}, len(targets), options.time_factor)

    def to_be_cancelled() -> bool:
        """Asked twice a second while Ansible runs."""
        if stop.signal is None and (told := deadline.reached(report.stage)):
            report.warnings[told] = None
            stop.request(signal.SIGALRM)
        return stop.overdue()

    with ExitStack() as stack:
        runner = _runner(paths, inventory, record, options, stack)
        runner.event_handler = recorded(report, record, on_event)
        runner.cancel_callback = to_be_cancelled
        stack.callback(tidy, record)
        stack.callback(end_connections, record.id)
        stack.enter_context(stop.watching())
        report.began, report.rc, report.finished = True, None, False
        try:
            runner.run()
        except BaseException:
            kill_marked(record.id)
            if stop.signal is None:
                raise
        report.rc = runner.rc if isinstance(runner.rc, int) else None
        if stop.signal is not None:
            report.stopped_by = stop.signal
            kill_marked(record.id)
            swept = sweep(targets, record.id, become_password=options.become_password)
            report.swept = {name: count for name, count in swept.items() if count is not None}
            report.installing = sorted(swept.keys() - report.swept.keys())
            report.unswept = sorted({target.name for target in targets if target.sweepable} - swept.keys())
    return report


def sweep(targets: Sequence[Any], run_id: str, *, become_password: str | None = None) -> dict[str, int | None]:
    """Kill the run's processes on the machines; return how many on each, None where packages are being installed.

    A machine that is gone keeps its own.
    """
    if not targets:
        return {}
    from provision.ssh import reach  # paramiko costs 0.2 s; only a stop needs it

    return reach.sweep(targets, run_id, become_password=become_password)


def _runner(
    paths: Sequence[Path],
    inventory: Path | str,
    record: journal.Run,
    options: Options,
    stack: ExitStack,
) -> Any:
    from ansible_runner import Runner, RunnerConfig
    from ansible_runner.utils import get_callback_dir

    # A directory of the run's own: a connection that something else has opened here may have been made without a look
    # at the host key. Short, because the path of a socket has 108 bytes at most.
    short = tempfile.gettempdir() if len(tempfile.gettempdir()) < 32 else "/tmp"  # noqa: S108 - made private below
    sockets = stack.enter_context(tempfile.TemporaryDirectory(prefix="cctl-", dir=short, ignore_cleanup_errors=True))
    project = record.directory / "project"
    project.mkdir(mode=0o700)
    playbook = project / "run.yml"
    # What the machines are asked before the first of these stages serves all of them.
    observed = road.roles_of(path.stem for path in paths)
    given = {"__observed_roles": observed} if observed else {}
    # Only the last of them lets others change the cluster.
    imports = [
        {"ansible.builtin.import_playbook": str(path), "vars": {**given, "__goes_on": path != paths[-1]}}
        for path in paths
    ]
    _write(playbook, json.dumps(imports))
    config = RunnerConfig(
        private_data_dir=str(record.directory),
        artifact_dir=str(record.directory),
        ident="ansible",
        playbook=str(playbook),
        inventory=str(inventory) if isinstance(inventory, str) else str(inventory.absolute()),
        cmdline=shlex.join(_arguments(record, options, stack)),
        fact_cache_type="memory",
        quiet=True,
    )
    config.prepare()
    # From here on it is ours: prepare() has copied the caller's whole environment, and would have it written to a file.
    config.env = clean_environment() | {
        MARK: record.id,
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": sockets,
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_RETRY_FILES_ENABLED": "False",
        "ANSIBLE_CALLBACK_PLUGINS": os.pathsep.join([get_callback_dir(), str(CALLBACKS)]),
        "ANSIBLE_STDOUT_CALLBACK": "clusterctl_events",
        "AWX_ISOLATED_DATA_DIR": config.artifact_dir,
        "MAX_EVENT_RES": str(MAX_RESULT),
    }
    # As under ansible-playbook: relative paths in an inventory mean the directory where the command was given.
    config.cwd = str(Path.cwd())
    config.pexpect_timeout = 0.5
    return Runner(config)


def _arguments(record: journal.Run, options: Options, stack: ExitStack) -> list[str]:
    """Return ansible-playbook's options. Values that may be secret are offered through pipes, open while it runs."""

    told = {
        "clusterctl_command": journal.typed(record),
        "clusterctl_process": named(os.getpid()),
        "clusterctl_time_factor": options.time_factor,
    }
    arguments = ["-e", f"clusterctl_run={record.id}", "-e", json.dumps(told)]
    if options.left_out:
        arguments += ["-e", json.dumps({"clusterctl_left_out": sorted(options.left_out)})]
    if limit := _limit(record, options):
        arguments += ["--limit", limit]
    for flag, values in (("--tags", options.tags), ("--skip-tags", options.skip_tags)):
        if values:
            arguments += [flag, ",".join(values)]
    arguments += [flag for flag, wanted in (("--check", options.check), ("--diff", options.diff)) if wanted]
    for flag, mark, name, text in (
        ("-e", "@", "extra-vars", json.dumps(dict(options.extra_vars)) if options.extra_vars else None),
        ("--become-password-file", "", "become", options.become_password),
        ("--vault-password-file", "", "vault", options.vault_password),
    ):
        if text is not None:
            arguments += [flag, f"{mark}{stack.enter_context(offered(record.directory / name, text))}"]
    arguments += options.extra_args
    if options.forks:
        arguments += ["--forks", str(options.forks)]
    if options.user:
        arguments += ["--user", options.user]
    if options.verbosity:
        arguments.append("-" + "v" * options.verbosity)
    for flag, values in (("--vault-password-file", options.vault_files), ("--vault-id", options.vault_ids)):
        for value in values:
            arguments += [flag, value]
    return arguments


def _limit(record: journal.Run, options: Options) -> str:
    if options.limit is None:
        return ""
    text = ",".join(sorted(options.limit))
    if len(text) < 1000:
        return text
    path = record.directory / "limit"
    _write(path, text.replace(",", "\n") + "\n")
    return f"@{path}"


def _plays(path: Path, stage: str = "") -> Iterator[tuple[str, str]]:
    """Yield (stage, play name) in the order in which Ansible will start them; the stage is the file's name.

    What a stage imports is part of it: its observation and its proof. ``site.yml`` is no stage.

    Raises:
        ClusterctlError: the playbook is not there (exit code 2).
    """
    try:
        plays = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ClusterctlError(
            f"there is no playbook {path}", fix="reinstall clusterctl, or complete the checkout"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError):
        return  # Ansible will say where and why, better than we could
    for play in plays if isinstance(plays, list) else ():
        if not isinstance(play, Mapping):
            continue
        imported = play.get("ansible.builtin.import_playbook") or play.get("import_playbook")
        if isinstance(imported, str):
            yield from _plays(path.parent / imported, stage or ("" if path.stem == "site" else path.stem))
            continue
        hosts = play.get("hosts", "")
        pattern = ",".join(str(host) for host in hosts) if isinstance(hosts, list) else str(hosts)
        yield stage or path.stem, str(play.get("name") or pattern).strip()


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
        handle.write(text)


def tidy(record: journal.Run) -> None:
    """Keep Ansible's own output as ``ansible.log`` and remove everything else that ansible-runner has written."""
    from provision.model.text import clean

    artifacts = record.directory / "ansible"
    with suppress(OSError):
        _write(record.directory / "ansible.log", "")
        with (
            (artifacts / "stdout").open(encoding="utf-8", errors="replace") as lines,
            (record.directory / "ansible.log").open("a", encoding="utf-8") as log,
        ):
            log.writelines(clean(line.rstrip("\r\n"), limit=10**6) + "\n" for line in lines)
    for path in (artifacts, record.directory / "project", record.directory / "env"):
        shutil.rmtree(path, ignore_errors=True)
    for name in ("extra-vars", "become", "vault", "limit"):
        with suppress(OSError):
            (record.directory / name).unlink()
