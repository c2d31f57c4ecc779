"""The record of runs beside the inventory, and the lock that keeps two runs apart.

``.clusterctl/`` (0700) holds ``lock`` and ``runs/<id>/`` with ``run.json`` (who, when, what, outcome),
``journal.jsonl`` (what happened, line by line, readable after a kill), ``report.json`` (what the command reported) and
``ansible.log``.
Nothing in it depends on the caller's umask, and nothing in it is a secret.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import re
import secrets
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from provision.errors import ClusterctlError, ExitCode
from provision.runner.journal_files import open_private, prepare, told, write_json, write_text

__all__ = ["Run", "begin", "entries", "lock", "prepare", "runs", "state_directory", "unfinished", "write_text"]

NAME = ".clusterctl"

#: Runs that are kept; older ones are removed when a new one begins (facts/guarantees: 30 runs).
KEPT_RUNS = 30

_ID = re.compile(r"^\d{8}-\d{6}-[0-9a-f]{4}$")


@dataclass
class Run:
    """One run's directory. ``finish`` ends it; a run that was killed has no ``ended`` in its ``run.json``."""

    id: str
    directory: Path
    facts: dict[str, Any]
    _journal: TextIOWrapper | None = field(default=None, repr=False)
    _broken: str = ""

    @property
    def ended(self) -> bool:
        """True when the run reached its end, whatever that was."""
        return "ended" in self.facts

    @property
    def alive(self) -> bool:
        """True while the process that made this run exists on this computer."""
        return self.facts.get("host") == socket.gethostname() and _process_mark(
            int(self.facts.get("pid", 0))
        ) == self.facts.get("process")

    def record(self, entry: Mapping[str, Any], *, sync: bool = False) -> None:
        """Append one line to the journal; ``sync`` also brings it to the disk, which a stage's end deserves.

        A disk that fills up during a run does not stop the run; ``broken`` says so afterwards.
        """
        if self._broken:
            return
        try:
            if self._journal is None:
                self._journal = open_private(self.directory / "journal.jsonl", os.O_APPEND)
            self._journal.write(json.dumps(entry, ensure_ascii=False, default=str) + "\n")
            self._journal.flush()  # to the kernel: a killed process loses nothing
            if sync:
                os.fsync(self._journal.fileno())
        except OSError as error:
            self._broken = f"the journal could not be written: {error}"

    @property
    def broken(self) -> str:
        """Return why the journal is incomplete, empty when it is complete."""
        return self._broken

    def finish(self, outcome: str, **facts: Any) -> None:
        """Write down how the run ended (``done``, ``failed``, ``interrupted``, ``crashed``, ``killed``)."""
        self.facts.update(ended=_now(), outcome=outcome, **facts)
        self.record({"event": "end", "at": self.facts["ended"], "outcome": outcome, **facts}, sync=True)
        with suppress(OSError):
            if self._journal is not None:
                self._journal.close()
        self._journal = None
        with suppress(OSError):
            write_json(self.directory / "run.json", self.facts)

    def write_report(self, document: Mapping[str, Any]) -> None:
        """Keep the document that the command reported, for ``clusterctl status``."""
        with suppress(OSError):
            write_json(self.directory / "report.json", document)


def state_directory(inventory: Path) -> Path:
    """Return ``.clusterctl`` beside the inventory file, or inside the inventory where that is a directory.

    Links are followed first: one cluster has one lock, whatever name it is called by.
    """
    real = inventory.resolve()
    return (real if real.is_dir() else real.parent) / NAME


def begin(directory: Path, command: str, *, options: Mapping[str, Any] | None = None) -> Run:
    """Make a new run's directory in a prepared state directory, and remove the oldest runs beyond the limit.

    ``options`` are recorded as they are: no secrets.
    """
    now = datetime.now(UTC)
    run_id = f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    path = directory / "runs" / run_id
    facts: dict[str, Any] = {
        "schema": "clusterctl/run/1",
        "id": run_id,
        "command": command,
        "options": dict(options or {}),
        "started": _now(),
        "user": _user(),
        "sudo_user": os.environ.get("SUDO_USER", ""),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "process": _process_mark(os.getpid()),
        "versions": _versions(),
    }
    with told(path):
        path.mkdir(mode=0o700)
        path.chmod(0o700)  # a directory's set-group-id parent would otherwise add a bit
        write_json(path / "run.json", facts)
    run = Run(run_id, path, facts)
    _remove_old(directory, keep=run_id)
    return run


def runs(directory: Path) -> list[Run]:
    """Return the runs that are on record, oldest first; unreadable ones are left out."""
    found = []
    with suppress(OSError):
        for path in sorted((directory / "runs").iterdir()):
            if _ID.match(path.name) and not path.is_symlink():
                with suppress(OSError, ValueError):
                    found.append(Run(path.name, path, json.loads((path / "run.json").read_text("utf-8"))))
    return found


def unfinished(directory: Path) -> list[Run]:
    """Return the runs whose process has died before it could end them, oldest first."""
    here = socket.gethostname()
    return [run for run in runs(directory) if not run.ended and run.facts.get("host") == here and not run.alive]


def entries(run_directory: Path) -> Iterator[dict[str, Any]]:
    """Yield a journal's lines; a last line that a kill has torn is left out."""
    with suppress(OSError), (run_directory / "journal.jsonl").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            with suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict):
                    yield entry


@contextmanager
def lock(directory: Path, run: Run) -> Iterator[None]:
    """Hold the cluster's lock; the kernel gives it back when this process ends, however it ends.

    Raises:
        ClusterctlError: someone else holds it (exit code 6); says who, since when and how to stop them.
    """
    path = directory / "lock"
    with told(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "r+", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _held(handle.read(4096)) from None
        os.fchmod(descriptor, 0o600)
        handle.truncate(0)
        holder = {key: run.facts[key] for key in ("id", "command", "user", "host", "pid", "started")}
        handle.write(json.dumps(holder))
        handle.flush()
        yield
        handle.truncate(0)


def _held(text: str) -> ClusterctlError:
    try:
        holder = json.loads(text)
        who = "'{command}' of {user}@{host}, process {pid}, since {started}, run {id}".format(**holder)
        fix = f"wait for it, or stop it on {holder['host']}: kill -INT {holder['pid']}"
    except (ValueError, KeyError, TypeError):
        who, fix = "a run that has only just begun", "wait for it to end"
    return ClusterctlError(f"the cluster is locked by {who}", fix=fix, exit_code=ExitCode.LOCKED)


def _remove_old(directory: Path, *, keep: str) -> None:
    with suppress(OSError):
        names = sorted(path.name for path in (directory / "runs").iterdir() if _ID.match(path.name))
        for name in names[:-KEPT_RUNS]:
            if name != keep:
                shutil.rmtree(directory / "runs" / name, ignore_errors=True)


def _process_mark(pid: int) -> str:
    """Return what tells a process from a later one with the same number: its start in clock ticks; empty if gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.geteuid())


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for name in ("clusterctl", "ansible-core", "ansible-runner"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
