"""How far a program on a machine is, heard over the connection that waits for its end.

Ansible hands over what a module has printed when the module has ended. Its standard error comes over ssh as it is
written, though, and is read here in any case (:mod:`provision.ssh.bounded`): so a line of progress costs no connection,
and a machine that tells nothing costs nothing. (Ansible's ``async`` with ``poll`` would cost a connection for each
poll, and says only whether the task has ended.)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from provision.model.told import MARK, Told, heard, shown

#: Seconds between two texts of one program that are handed on: ours take more time, and others have nothing to tell.
EVERY = 0.5

#: Things that one program may say have ended; a machine is not to fill the control node's terminal.
MOST = 100

_LINE = 2000


class Ear:
    """Finds told lines in one process's standard error, piece by piece, and hands them on."""

    def __init__(self, tell: Callable[[Told], None], host: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._tell, self._host, self._clock = tell, host, clock
        self._rest = b""
        self._last = -EVERY
        self._ended = 0
        self._text = ""

    def hear(self, piece: bytes) -> None:
        """Take in the next piece; a line counts when it is whole."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        self._rest = self._rest[-_LINE:]
        for line in lines:
            if line.startswith(MARK.encode()) and (told := heard(line[:_LINE].decode("utf-8", "replace"), self._host)):
                self._pass_on(told)

    def _pass_on(self, told: Told) -> None:
        now = self._clock()
        if told.ended:
            self._ended += 1
            if self._ended <= MOST:
                self._tell(told)
        elif now - self._last >= EVERY and told.text != self._text:
            self._last, self._text = now, told.text
            self._tell(told)


def ears(worker: Callable[[], Any], display: Callable[[str], Any]) -> Callable[[], Ear | None]:
    """Return what makes an ear for a process that is started now.

    Args:
        worker: returns Ansible's process for one task on one machine, None in Ansible's main process.
        display: writes a line of Ansible's output, from such a process too.
    """

    def make() -> Ear | None:
        working = worker()
        if working is None:
            return None
        # Ansible has found out by now to which machine the task is delegated.
        host = str(getattr(working._task, "delegate_to", None) or working._host.get_name())
        return Ear(lambda told: display(shown(told)), host)

    return make
