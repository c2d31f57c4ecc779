"""The processes of a run on this computer: found by the mark in their environment, stopped, and killed.

Ansible's workers leave their parent's process group and session (``setsid``), so that a signal to the group does not
reach them; what they all share is ``CLUSTERCTL_RUN`` in the environment they were started with.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from provision.runner.journal_files import boot

MARK = "CLUSTERCTL_RUN"

#: Seconds that Ansible gets to end by itself after an interrupt; it needs 0.2 s when nothing is stuck.
POLITE_SECONDS = 3.0

#: Seconds for what is left to die after a kill; only a process in an uninterruptible wait needs any.
KILL_SECONDS = 1.0


def marked(run_id: str) -> list[int]:
    """Return the processes on this computer that carry the run's mark, oldest number first."""
    wanted = f"{MARK}={run_id}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return sorted(pid for pid in found if pid != os.getpid())


def kill_marked(run_id: str) -> int:
    """Kill the run's processes on this computer; return how many there were.

    Again and again until none is left, because one that is being killed may be starting another.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + KILL_SECONDS
    while alive := [pid for pid in marked(run_id) if not _zombie(pid)]:
        for pid in alive:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        killed.update(alive)
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    return len(killed)


def end_connections(run_id: str) -> None:
    """End the connections that ssh keeps open for the next command (ControlPersist); nothing else is left of a run."""
    for pid in marked(run_id):
        with suppress(OSError):
            os.kill(pid, signal.SIGTERM)


def named(pid: int) -> str:
    """Return what tells a process from all others: its kernel's start, its container, its number, its own start."""
    fields = _stat(pid)
    return f"{_place()}:{pid}:{fields[19]}" if fields else ""


def gone(name: str) -> bool:
    """Tell whether the process of this name was in this container, of this start of the kernel, and is no more."""
    place, _, process = name.rpartition(":")[0].rpartition(":")
    here = place == _place() and not place.startswith("unknown")
    return here and process.isdigit() and (named(int(process)) != name or _zombie(int(process)))


def _place() -> str:
    with suppress(OSError):
        return f"{boot()}:{Path('/proc/self/ns/pid').stat().st_ino}"
    return boot()


class Stop:
    """A request to stop, made by a signal, and the thread that carries it out while the runner is waiting.

    ``warn`` is called by the first interrupt, which then is no request: the next one is.
    """

    def __init__(self, run_id: str, warn: Callable[[], None] | None = None) -> None:
        self.run_id = run_id
        self.warn = warn
        self.signal: int | None = None
        self._requested = threading.Event()
        self._now = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def request(self, number: int, _frame: FrameType | None = None) -> None:
        """Ask for a stop; a second request does not wait for politeness any more."""
        if number == signal.SIGINT and self.warn:
            # Not here: what it writes to may be in the middle of a line.
            threading.Thread(target=self.warn, daemon=True).start()
            self.warn = None
            return
        if self._requested.is_set():
            self._now.set()
        self.signal = self.signal or number
        self._requested.set()

    def overdue(self) -> bool:
        """True when a stop was asked for, carried out, and the run still goes on: it had only just begun."""
        if self.signal is None or self._thread is None or self._thread.is_alive():
            return False
        kill_marked(self.run_id)
        return True

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Catch interrupt, termination and hang-up while the block runs; the old handlers come back afterwards."""
        wanted = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # under nohup, a lost terminal is no reason to stop
            wanted.append(signal.SIGHUP)
        in_main = threading.current_thread() is threading.main_thread()
        before = {number: signal.signal(number, self.request) for number in wanted} if in_main else {}
        self._thread = threading.Thread(target=self._carry_out, daemon=True)
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._requested.set()
            self._thread.join()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _carry_out(self) -> None:
        self._requested.wait()
        if self.signal is None:
            return
        children = [pid for pid in marked(self.run_id) if _parent(pid) == os.getpid()]
        for pid in children:
            with suppress(OSError):
                os.kill(pid, signal.SIGINT)
        deadline = time.monotonic() + POLITE_SECONDS
        while time.monotonic() < deadline and not self._over.is_set() and not self._now.is_set():
            if not any(Path(f"/proc/{pid}").exists() and not _zombie(pid) for pid in children):
                break
            time.sleep(0.05)
        kill_marked(self.run_id)


def _parent(pid: int) -> int:
    return int(_stat(pid)[1]) if _stat(pid) else 0


def _zombie(pid: int) -> bool:
    fields = _stat(pid)
    return not fields or fields[0] == "Z"


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the command name: state, parent, ...; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
