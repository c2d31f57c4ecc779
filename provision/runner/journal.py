"""The record of runs beside the inventory, and the lock that keeps two runs apart.

``.clusterctl/`` (0700) holds ``lock`` and ``runs/<id>/`` with ``run.json`` (who, when, what, outcome),
``journal.jsonl`` (what happened, line by line, readable after a kill), ``report.json`` (what the command reported) and
``ansible.log``. ``looks/`` is the same for commands that only read: a few, which push no other out.
Nothing in it depends on the caller's umask, and nothing in it is a secret.

Whether a run is alive is the kernel's word: each holds a lock (flock) on its own file ``alive`` from before its
directory can be seen until it ends, however it ends. Host names and process numbers tell less: containers and cloned
computers share them.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from provision import content
from provision.runner.journal_files import boot, computer, open_private, prepare, told, user, write_json, write_text

__all__ = ["Run", "at", "begin", "entries", "prepare", "runs", "state_directory", "unfinished", "write_text"]

NAME = ".clusterctl"

#: Ended runs of each command that are kept; older ones are removed when a new one begins.
KEPT_RUNS = 30

#: Ended runs older than this are removed too; the last verdict on the whole cluster never is.
KEPT_DAYS = 400

#: Ended runs of commands that only read.
KEPT_LOOKS = 10

#: Where runs are recorded that change something or judge the cluster, and where those that only look.
RUNS, LOOKS = "runs", "looks"

_ALIVE = "alive"

_ID = re.compile(r"^\d{8}-\d{6}-[0-9a-f]{4,8}$")


@dataclass
class Run:
    """One run's directory. ``finish`` ends it; a run that was killed has no ``ended`` in its ``run.json``."""

    id: str
    directory: Path
    facts: dict[str, Any]
    _journal: TextIOWrapper | None = field(default=None, repr=False)
    _broken: str = ""
    _torn: bool = False
    _held: int | None = field(default=None, repr=False)

    @property
    def ended(self) -> bool:
        """True when the run reached its end, whatever that was."""
        return "ended" in self.facts

    @property
    def alive(self) -> bool:
        """True while the process that began this run exists and has not ended it, wherever it runs."""
        if self.ended:
            return False
        try:
            descriptor = os.open(self.directory / _ALIVE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            return not isinstance(error, FileNotFoundError)  # who cannot be asked is not called dead
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    @property
    def ours_to_end(self) -> bool:
        """True where the run was begun on this computer or this kernel: locks of another may not be visible here."""
        return self.facts.get("boot") == boot() or self.facts.get("computer") == computer()

    @property
    def to_sweep(self) -> list[str] | None:
        """The machines on which something of a run may still be going on; None is all those it worked on."""
        names = self.facts.get("to_sweep", self.facts.get("hosts"))
        return [str(name) for name in names] if isinstance(names, list) else None

    def note(self, **facts: Any) -> None:
        """Write facts down in ``run.json``; a disk that is full loses them, and ``broken`` says so."""
        self.facts.update(facts)
        with self._trying("its end and what it left"):
            write_json(self.directory / "run.json", self.facts)

    def record(self, entry: Mapping[str, Any], *, sync: bool = False) -> None:
        """Append one line to the journal; ``sync`` also brings it to the disk, which a stage's end deserves.

        A disk that fills up during a run does not stop the run; ``broken`` says so afterwards.
        """
        if self._torn:
            return
        self._torn = True  # until the line is whole
        with self._trying("the journal"):
            if self._journal is None:
                self._journal = open_private(self.directory / "journal.jsonl", os.O_APPEND)
            self._journal.write(json.dumps(entry, ensure_ascii=False, default=str) + "\n")
            self._journal.flush()  # to the kernel: a killed process loses nothing
            if sync:
                os.fsync(self._journal.fileno())
            self._torn = False

    @contextmanager
    def _trying(self, what: str) -> Iterator[None]:
        """Go on where the system refuses to write, and keep the first reason in mind."""
        try:
            yield
        except OSError as error:
            self._broken = self._broken or f"the run's record lacks {what}: {error.strerror or error}"

    @property
    def broken(self) -> str:
        """Return why the record of the run is incomplete, empty when it is complete."""
        return self._broken

    def finish(self, outcome: str, **facts: Any) -> None:
        """Write down how the run ended (``done``, ``failed``, ``interrupted``, ``crashed``, ``killed``)."""
        self.facts.update(ended=_now(), outcome=outcome, **facts)
        self.record({"event": "end", "at": self.facts["ended"], "outcome": outcome, **facts}, sync=True)
        with suppress(OSError):
            if self._journal is not None:
                self._journal.close()
        self._journal = None
        self.note()
        self.release()

    def release(self) -> None:
        """Let go of the run's own lock; the kernel does it for a process that dies."""
        if self._held is not None:
            with suppress(OSError):
                (self.directory / _ALIVE).unlink()
            os.close(self._held)
            self._held = None

    def write_report(self, document: Mapping[str, Any]) -> None:
        """Keep the document that the command reported, for ``clusterctl status``; ``broken`` says if it is lost."""
        with self._trying("its report"):
            write_json(self.directory / "report.json", document)


def state_directory(inventory: Path) -> Path:
    """Return ``.clusterctl`` beside the inventory file, or inside the inventory where that is a directory.

    Links are followed first: one cluster has one lock, whatever name it is called by.
    """
    real = inventory.resolve()
    return (real if real.is_dir() else real.parent) / NAME


def begin(
    directory: Path,
    command: str,
    *,
    options: Mapping[str, Any] | None = None,
    hosts: Sequence[str] | None = None,
    room: str = RUNS,
) -> Run:
    """Make a new run's directory in a prepared state directory, and remove the oldest runs beyond the limit.

    ``options`` are recorded as they are: no secrets. ``hosts`` are the machines that it may work on. ``room`` is
    :data:`RUNS` or, for a command that only reads, :data:`LOOKS`.
    """
    now = datetime.now(UTC)
    # Four digits of the second's fraction, so that runs of one second stay in their order, and four by chance.
    run_id = f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 16:04x}{secrets.token_hex(2)}"
    path = directory / room / run_id
    new = path.with_name(f".new-{run_id}")
    facts: dict[str, Any] = {
        "schema": "clusterctl/run/1",
        "id": run_id,
        "command": command,
        "options": dict(options or {}),
        "hosts": None if hosts is None else list(hosts),
        "started": _now(),
        "user": user(),
        "sudo_user": os.environ.get("SUDO_USER", ""),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "computer": computer(),
        "boot": boot(),
        "versions": _versions(),
    }
    with told(path):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        new.mkdir(mode=0o700)
        new.chmod(0o700)  # a directory's set-group-id parent would otherwise add a bit
        held = os.open(new / _ALIVE, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        os.fchmod(held, 0o600)
        fcntl.flock(held, fcntl.LOCK_EX)
        write_json(new / "run.json", facts)
        new.rename(path)  # visible only now, and alive from the first moment
    run = Run(run_id, path, facts, _held=held)
    _remove_old(directory, room)
    return run


def runs(directory: Path, room: str = RUNS) -> list[Run]:
    """Return the runs that are on record, oldest first; unreadable ones are left out."""
    found: list[Run | None] = []
    with suppress(OSError):
        paths = sorted((directory / room).iterdir())
        found = [at(path) for path in paths if _ID.match(path.name) and not path.is_symlink()]
    return [run for run in found if run is not None]


def at(directory: Path) -> Run | None:
    """Return the run whose directory this is; None where it holds none that can be read."""
    with suppress(OSError, ValueError):
        facts = json.loads((directory / "run.json").read_text("utf-8"))
        if isinstance(facts, dict):
            return Run(directory.resolve().name, directory, facts)
    return None


def typed(run: Run) -> str:
    """Return a run's command as somebody else may read it: without what its options say."""
    options = run.facts.get("options")
    stages = options.get("stages") if isinstance(options, Mapping) else None
    command = str(run.facts.get("command"))
    some = stages if command == "provision" and stages != list(content.stages()) else None
    return " ".join(["clusterctl", command, *(some or ())])


def unfinished(directory: Path) -> list[Run]:
    """Return the runs that have left something to be ended, oldest first.

    Those whose process died before it could end them, and those that ended while machines could not be asked.
    """
    mine = [run for room in (RUNS, LOOKS) for run in runs(directory, room) if run.ours_to_end]
    return [run for run in mine if (run.facts.get("to_sweep") if run.ended else not run.alive)]


def entries(run_directory: Path) -> Iterator[dict[str, Any]]:
    """Yield a journal's lines; a last line that a kill has torn is left out."""
    with suppress(OSError), (run_directory / "journal.jsonl").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            with suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict):
                    yield entry


def _remove_old(directory: Path, room: str) -> None:
    """Remove ended runs by number and age; one that has not ended, or has left something, is never removed."""
    if room == LOOKS:
        # One that was killed has left nothing worth keeping either.
        gone = [run for run in runs(directory, room) if not run.alive and run.ours_to_end][:-KEPT_LOOKS]
    else:
        found = [run for run in runs(directory, room) if run.ended and not run.facts.get("to_sweep")]
        oldest = (datetime.now(UTC) - timedelta(days=KEPT_DAYS)).isoformat(timespec="seconds")
        newest: dict[str, int] = {}
        gone = []
        for run in reversed(found):
            command = str(run.facts.get("command"))
            newest[command] = newest.get(command, 0) + 1
            if newest[command] > KEPT_RUNS or str(run.facts["ended"]) < oldest:
                gone.append(run)
        kept = last_full_verdict(found)
        gone = [run for run in gone if kept is None or run.id != kept.id]
    for run in gone:
        shutil.rmtree(run.directory, ignore_errors=True)


def last_full_verdict(found: Sequence[Run]) -> Run | None:
    """Return the newest of these runs that judged the whole cluster; None where none did."""
    for run in reversed(found):
        options = run.facts.get("options")
        limited = isinstance(options, Mapping) and options.get("limit")
        judged = run.facts.get("command") == "verify" and run.ended and (run.directory / "report.json").exists()
        if judged and not limited:
            return run
    return None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for name in ("clusterctl", "ansible-core", "ansible-runner"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
