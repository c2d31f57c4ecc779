"""What a person sees while a run goes on: a bar on a terminal, plain lines in a pipe. On standard error.

rich, which draws the bar, is imported only where there is a terminal: the import takes 0.15 s of the control node's
processor, as much as judging a machine.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

from provision.events.fold import RunReport
from provision.model.text import clean
from provision.report.going import Going
from provision.report.grid import Grid

if TYPE_CHECKING:
    from provision.report.bar import Bar

#: Seconds between two looks whether a pipe is to be told what is waited for.
_EVERY = 1.0


class Progress:
    """A callback for ``runner.run``; use as a context manager.

    Args:
        stream: where it is written; a bar only where that is a terminal which can draw.
        machines: how many the run has in scope.
        verbosity: 1 names each task, from 2 on Ansible's own output goes by instead.
        judging: a terminal then shows machines by subjects above the bar.
        expected: gives the stages and seconds of an earlier run of the same kind, none where there was none: then no
            time left is shown. It is asked only where a bar shows it: the answer is in records of some megabytes.
        clock: seconds.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        machines: int = 0,
        verbosity: int = 0,
        judging: bool = False,
        expected: Callable[[], Sequence[tuple[str, float]]] = tuple,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = _Quiet(stream)
        self._clock = clock
        self._verbosity = verbosity
        live = stream.isatty() and os.environ.get("TERM") != "dumb" and verbosity < 2
        known = expected() if live else ()
        grid = Grid() if live and judging else None
        self._going = Going(clock(), machines, known, live=live, verbosity=verbosity, grid=grid)
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._bar: Bar | None = self._drawn() if live else None
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def _drawn(self) -> Bar:
        from provision.report.bar import Bar

        return Bar(cast(TextIO, self._stream), lambda: self._going.look(self._clock()))

    def __enter__(self) -> Progress:
        if self._bar:
            self._bar.start()
        else:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._lines(self._going.end(self._clock()))
        self._over.set()
        if self._bar:
            self._bar.stop()
        else:
            self._thread.join()

    def say(self, text: str) -> None:
        """Write one line for good."""
        line = clean(text)
        with self._lock:
            if self._bar:
                self._bar.say(line)
            else:
                self._stream.write(line + "\n")
                self._stream.flush()

    def warn(self) -> None:
        """Say what a stop would cut."""
        self.say(
            f"Not stopped. Now: {self._going.waiting(self._clock())}. Ctrl-C again ends this on all machines, except "
            "where packages are installed or modules are built; the same command goes on later"
        )

    def __call__(self, report: RunReport, event: Mapping[str, Any]) -> None:
        """Take in one event."""
        if self._verbosity >= 2 and event.get("stdout"):
            # Ansible's lines are whole texts of their own: a limit would cut what was asked for.
            self._stream.write(clean(str(event["stdout"]), limit=10**6) + "\n")
            self._stream.flush()
        with self._lock:
            self._lines(self._going.take(report, event, self._clock()))

    def _lines(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.say(line)

    def _tick(self) -> None:
        while not self._over.wait(_EVERY):
            with self._lock:
                self._lines(self._going.silent(self._clock()))


class _Quiet:
    """A stream whose reader may go away, and whose encoding may lack a letter: the run goes on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write what the encoding has; nothing where nobody reads."""
        with suppress(OSError, ValueError):
            try:
                return self._stream.write(text)
            except UnicodeEncodeError:
                return self._stream.write(text.encode("ascii", errors="replace").decode("ascii"))
        return len(text)

    def flush(self) -> None:
        """Hand on what was written."""
        with suppress(OSError, ValueError):
            self._stream.flush()
