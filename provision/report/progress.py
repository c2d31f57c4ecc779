"""What a person sees while a run goes on: one live line on a terminal, plain lines in a pipe. On standard error."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TextIO

from provision import hostlist
from provision.events.fold import RunReport
from provision.model.text import clean

#: Seconds between two drawings of the live line: often enough to look alive, too seldom to cost anything.
_EVERY = 0.25


class Progress:
    """A callback for ``runner.run``; use as a context manager.

    ``machines`` is how many the run has in scope. ``verbosity`` 1 names each task, from 2 on Ansible's own output
    goes by instead.
    """

    def __init__(self, stream: TextIO, *, machines: int = 0, verbosity: int = 0) -> None:
        self._stream = stream
        self._machines = machines
        self._verbosity = verbosity
        self._live = stream.isatty() and os.environ.get("TERM") != "dumb" and verbosity < 2
        self._began = time.monotonic()
        self._done: set[str] = set()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._line = ""
        self._stage = self._task = ""
        self._changed: set[str] = set()
        self._failed: set[str] = set()
        self._bad: set[str] = set()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Progress:
        if self._live:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end_task()
        self._over.set()
        if self._live:
            self._thread.join()
            self._write("\r\x1b[K")

    def say(self, text: str) -> None:
        """Write one line for good."""
        with self._lock:
            self._write(("\r\x1b[K" if self._live else "") + clean(text) + "\n")

    def __call__(self, report: RunReport, event: Mapping[str, Any]) -> None:
        """Take in one event."""
        kind = event.get("event")
        if self._verbosity >= 2 and event.get("stdout"):
            # Ansible's lines are whole texts of their own: a limit would cut what was asked for.
            self._write(clean(str(event["stdout"]), limit=10**6) + "\n")
        if kind in ("playbook_on_task_start", "playbook_on_play_start", "playbook_on_stats"):
            self._end_task()
            if report.stage != self._stage:
                self._stage = report.stage
                if not self._live and self._verbosity < 2:
                    self.say(f"{self._stage}: started after {self._elapsed()}")
            self._task = report.task
            self._done.clear()
            if self._verbosity == 1 and self._task and kind == "playbook_on_task_start":
                self.say(f"{self._stage}: {self._task}")
        elif str(kind).startswith("runner_on_"):
            data = event.get("event_data") or {}
            host = str(data.get("host", ""))
            self._done.add(host)
            if kind == "runner_on_ok" and (data.get("res") or {}).get("changed"):
                self._changed.add(host)
            if kind in ("runner_on_failed", "runner_on_unreachable") and not data.get("ignore_errors"):
                self._failed.add(host)
                self._bad.add(host)
        failed = len(self._bad)
        machines = f"{len(self._done)}/{self._machines or len(report.hosts)} machines"
        self._line = f"{self._stage}: {self._task}  {machines}" + (f", {failed} failed" if failed else "")

    def _end_task(self) -> None:
        if self._live or self._verbosity >= 2:
            self._changed.clear()
            self._failed.clear()
            return
        for word, hosts in (("changed", self._changed), ("failed", self._failed)):
            if hosts:
                self.say(f"{self._stage}: {self._task}: {word} {hostlist.fold(hosts)}")
                hosts.clear()

    def _tick(self) -> None:
        while not self._over.wait(_EVERY):
            with self._lock:
                width = shutil.get_terminal_size().columns - 1
                text = f"{self._elapsed()} {clean(self._line)}"
                self._write(f"\r\x1b[K{text[:width]}")

    def _elapsed(self) -> str:
        seconds = int(time.monotonic() - self._began)
        return f"{seconds // 60}:{seconds % 60:02d}"

    def _write(self, text: str) -> None:
        # Who closes standard error does not want to hear from us; the run goes on.
        with suppress(OSError, ValueError):
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                self._stream.write(text.encode("ascii", errors="replace").decode("ascii"))
            self._stream.flush()
