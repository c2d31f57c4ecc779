"""Processes whose output is bounded, for Ansible's ssh: what a machine answers must not fill the control node's memory.

Ansible keeps the whole output of a module, however long it is, and reads from a pipe until nothing more is in it: a
machine that writes faster than it is read ends in "out of memory", and takes the run of all others with it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from provision.ssh.told import Ear

#: Bytes of one answer, both streams together. Slurm's nodes in JSON are 4 KiB each: 2000 of them fit. Of the worst kind
#: of JSON, this much is half a GiB of Python's values.
LIMIT = 8 * 2**20

_CHUNK = 2**16


class TooMuchOutputError(OSError):
    """A machine has answered with more than anybody would read."""

    def __init__(self) -> None:
        super().__init__(f"the machine answered with more than {LIMIT // 2**20} MiB, which is no answer")


class BoundedPopen(subprocess.Popen[bytes]):
    """A process that is killed, and whose reader gets :class:`TooMuchOutputError`, when it has written too much."""

    def __init__(self, *arguments: Any, ear: Ear | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.left = LIMIT
        self.stdout = self.stdout and _Counted(self.stdout, self)  # type: ignore[assignment]
        self.stderr = self.stderr and _Counted(self.stderr, self, ear)  # type: ignore[assignment]


class _Counted:
    """A pipe that is read in pieces, and not beyond what its process may still write."""

    def __init__(self, pipe: Any, process: BoundedPopen, ear: Ear | None = None) -> None:
        self._pipe, self._process, self._ear = pipe, process, ear

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipe, name)

    def read(self, size: int = -1) -> bytes:
        """Return what is there, 64 KiB at most; empty at the end.

        Raises:
            TooMuchOutputError: the process has written more than its limit.
        """
        piece = os.read(self._pipe.fileno(), _CHUNK if size < 0 else min(size, _CHUNK))
        self._process.left -= len(piece)
        if self._process.left < 0:
            self._process.kill()
            raise TooMuchOutputError
        if self._ear is not None:
            self._ear.hear(piece)
        return piece


def module(ears: Callable[[], Ear | None] = lambda: None) -> SimpleNamespace:
    """Return what stands for the module ``subprocess`` where processes are to be bounded.

    ``ears`` makes, for each process that is started, what hears how far it is; None where nobody listens.
    """

    class Popen(BoundedPopen):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, ear=ears(), **options)

    return SimpleNamespace(**{**vars(subprocess), "Popen": Popen})
