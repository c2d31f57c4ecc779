"""The lock that keeps runs on one cluster apart: one that changes it alone, or any number that judge it.

The kernel holds it (flock) and gives it back when a process ends, however it ends. Who holds it is read from the runs'
own records, never from the lock's file: a run is named only while it is alive and says itself that it holds the lock.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from provision.errors import ClusterctlError, ExitCode
from provision.runner.journal import Run, runs
from provision.runner.journal_files import told

#: ``alone`` for what changes the cluster, ``shared`` for what judges it and must not see it half changed.
Hold = Literal["alone", "shared"]


@contextmanager
def lock(directory: Path, run: Run, hold: Hold = "alone") -> Iterator[None]:
    """Hold the cluster's lock.

    Raises:
        ClusterctlError: others hold it (exit code 6); says who, since when and how to stop them.
    """
    path = directory / "lock"
    with told(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if hold == "alone" else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _refusal(holders(directory)) from None
        run.note(lock=hold)
        try:
            yield
        finally:
            run.note(lock=None)
    finally:
        os.close(descriptor)


def holders(directory: Path) -> list[Run]:
    """Return the runs that hold the lock now, oldest first."""
    return [run for run in runs(directory) if run.facts.get("lock") and run.alive]


def described(run: Run) -> str:
    """Return who runs what, where and since when."""
    facts = run.facts
    return (
        f"'{facts.get('command')}' of {facts.get('user')}@{facts.get('host')}, process {facts.get('pid')}, "
        f"since {facts.get('started')}, run {run.id}"
    )


def _refusal(found: list[Run]) -> ClusterctlError:
    if not found:
        who, fix = "a run that is just beginning or ending", "try again"
    else:
        who = "; ".join(described(run) for run in found)
        stops = "; ".join(f"on {run.facts.get('host')}: kill -INT {run.facts.get('pid')}" for run in found)
        fix = f"wait for it, or stop it {stops}"
    return ClusterctlError(f"the cluster is locked by {who}", fix=fix, exit_code=ExitCode.LOCKED)
