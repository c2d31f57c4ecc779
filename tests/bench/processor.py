"""What a command costs this computer: processor seconds of everything it started, and wall-clock seconds.

Counted: user and system time of the command, of all that it started and of all that those started, whether somebody
waited for them or not: Ansible's forks, each ``ssh``, and the masters that ``ControlPersist`` leaves in the background.
For that the measuring process becomes the "subreaper" of its descendants: what has lost its parent becomes its child
instead of init's. What is left when the command has ended is ended too, so that each measurement opens its own
connections, and its time is counted until then.

Not counted: what others do for the command without descending from it: ``sshd`` and what it starts, which also runs
here where machines are made up or simulated, Docker's engine, and the kernel's work outside of any process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Cost:
    """What a command cost, in seconds."""

    user: float
    system: float
    wall: float

    @property
    def processor(self) -> float:
        """Seconds of processor, in the program and in the kernel."""
        return self.user + self.system

    def as_dict(self) -> dict[str, float]:
        """Return what a person or a script compares."""
        return {"processor": round(self.processor, 3), "system": round(self.system, 3), "wall": round(self.wall, 3)}


def median(costs: Sequence[Cost]) -> Cost:
    """Return the median of each figure; ValueError without any."""
    if not costs:
        raise ValueError("there is no median of no measurement")
    names = ("user", "system", "wall")
    return Cost(**{name: statistics.median(getattr(cost, name) for cost in costs) for name in names})


def total(usages: Iterable[resource.struct_rusage], wall: float) -> Cost:
    """Return what processes used together, each with those of its own that it waited for, in ``wall`` seconds."""
    each = list(usages)
    return Cost(sum(usage.ru_utime for usage in each), sum(usage.ru_stime for usage in each), wall)


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Let what descends from this process become its child when it has lost its parent; OSError where Linux refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become the subreaper")
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def children() -> set[int]:
    """Return the processes whose parent is this one."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has ended meanwhile
            found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found


def measure(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    limit: float = 1800,
) -> tuple[Cost, str]:
    """Run a command to its end; return what it cost and what it printed.

    A command that fails, or takes longer than ``limit`` seconds, ends the benchmark: a figure of something else is
    none.
    """
    before = children()
    with adopting(), tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        start = time.monotonic()
        begun = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=env, cwd=cwd)
        # Looked at in turn, because a thread with a clock would be one more whose children are ours.
        done = 0
        while not done:
            time.sleep(0.005)
            done, status, used = os.wait4(begun.pid, os.WNOHANG)
            if not done and time.monotonic() - start > limit:
                begun.kill()
        wall = time.monotonic() - start
        begun.returncode = os.waitstatus_to_exitcode(status)
        usages = [used, *_left_behind(before)]
        output.seek(0)
        text = output.read()
    if begun.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {begun.returncode} after {wall:.1f} s:\n{text[-4000:]}")
    return total(usages, wall), text


def _left_behind(before: set[int]) -> list[resource.struct_rusage]:
    """End what the command has left running, also what that leaves in turn, and return what each of them used."""
    used = []
    deadline = time.monotonic() + 5
    while left := children() - before:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL)
        time.sleep(0.02)
        for pid in left:
            done, _, usage = os.wait4(pid, os.WNOHANG)
            if done:
                used.append(usage)
    return used
