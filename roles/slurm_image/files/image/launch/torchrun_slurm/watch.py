# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""The program that was started: what its workers said at last, how it ended, and which of them failed first."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Callable, Mapping

#: Bytes of a stream that are kept: a traceback with what led to it.
KEPT = 1 << 14

#: Lines of a failure that are shown where it has no traceback.
LINES = 15

TRACEBACK = b"Traceback (most recent call last):"

#: What PyTorch writes before each line of a traceback in a group of ranks (excepthook of distributed_c10d.py).
RANK = re.compile(r"^\[rank\d+\]: ?")

#: What torch.distributed.run says of the worker that ended first (torch/distributed/elastic/multiprocessing/errors).
ROOT_CAUSE = re.compile(
    r"Root Cause \(first observed failure\):.*?rank\s*: (\d+) \(local_rank: (\d+)\).*?exitcode\s*: (-?\d+)", re.DOTALL
)

#: A launcher's own end where it only tells of its worker's, or was told to end: torchrun-slurm says both, in a line.
SAID_ANYWAY = re.compile(rf"{ROOT_CAUSE.pattern}|SignalException: Process \d+ got signal: \d+", re.DOTALL)

#: Words of a failure that follows from another rank's: the connection to it was lost.
COMMUNICATION = re.compile(r"gloo|nccl|tim(ed|e) ?out|connection|peer|socket|store|broken pipe", re.IGNORECASE)

#: How NCCL's watchdog ends a rank, by SIGABRT and without a traceback, that has lost the others or waited too long for
#: them (ProcessGroupNCCL.cpp). It says "CUDA error" where the rank's own GPU failed.
ABANDONED = re.compile(
    r"watchdog thread terminated with exception: (\[[^]]*\] *)*"
    r"(Watchdog caught collective operation timeout|NCCL error)"
)

#: Seconds between asking a program to end and ending it. Slurm's own KillWait is 30.
PATIENCE = 15.0


class Tail:
    """The end of what a stream said, and when it began to tell of a failure."""

    def __init__(self) -> None:
        self.kept = b""
        self.began = 0.0

    def add(self, data: bytes) -> None:
        """Take what was said. The last traceback counts: programs survive those before it."""
        joint = self.kept[-len(TRACEBACK) + 1 :] + data
        if TRACEBACK in joint:
            self.began = time.time()
        self.kept = (self.kept + data)[-KEPT:]

    def last(self) -> list[str]:
        """Return the lines of the last traceback, or the last ones."""
        text = self.kept.decode(errors="replace")
        at = text.rfind(TRACEBACK.decode())
        # Of a bar that is drawn again and again only what stands at last.
        lines = [line.rstrip().rpartition("\r")[2] for line in text[max(at, 0) :].rstrip("\n").split("\n")]
        return lines if at >= 0 else lines[-LINES:]

    def lost_others(self) -> bool:
        """Return whether this tells of a rank that gave up because others did not answer it.

        Of a traceback the line counts that names the error: warnings may come behind it, as NCCL's do.
        """
        if not self.began:
            return bool(ABANDONED.search(self.kept.decode(errors="replace")))
        lines = (RANK.sub("", line) for line in self.last()[1:])
        return bool(COMMUNICATION.search(next((line for line in lines if line and not line.startswith(" ")), "")))


def hand_on(data: bytes) -> None:
    """Write all of it to the common error stream; where that is gone, what is said is kept all the same."""
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        pass


class Program:
    """A program that runs, with a pipe for each worker's error stream in a directory of its own."""

    def __init__(self, words: list[str], environment: Mapping[str, str], directory: Path, workers: int) -> None:
        self._selector = selectors.DefaultSelector()
        #: A launcher's own traceback, until it is known whether it says more than that a worker has failed.
        self._held = b""
        self._launches = workers > 0
        self.tails: dict[str, Tail] = {}
        for worker in map(str, range(workers)):
            os.mkfifo(directory / f"{worker}.err", 0o600)
            self._open(worker, directory / f"{worker}.err")
        self._process = subprocess.Popen(words, env=dict(environment), stderr=subprocess.PIPE)
        assert self._process.stderr  # noqa: S101 - it is a pipe
        self.tails[""] = Tail()
        self._selector.register(self._process.stderr.fileno(), selectors.EVENT_READ, ("", None))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _open(self, worker: str, pipe: Path) -> None:
        self.tails.setdefault(worker, Tail())
        stream = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self._selector.register(stream, selectors.EVENT_READ, (worker, pipe))

    def _read(self) -> None:
        """Hand on what all say, byte for byte, until the program itself says no more."""
        while True:
            for key, _ in self._selector.select():
                worker, pipe = key.data
                data = os.read(key.fd, 1 << 16)
                if data:
                    self.tails[worker].add(data)
                    hand_on(data if worker else self._without_traceback(data))
                    continue
                self._selector.unregister(key.fd)
                if pipe is None:
                    return
                # A worker that is started again opens it anew.
                os.close(key.fd)
                self._open(worker, pipe)

    def _without_traceback(self, data: bytes) -> bytes:
        """Return what is handed on of what the program itself says: of a launcher nothing from its traceback on."""
        at = data.find(TRACEBACK) if self._launches else -1
        if self._held or at >= 0:
            at = 0 if self._held else at
            self._held, data = self._held + data[at:], data[:at]
        if len(self._held) > KEPT:  # that is no launcher's
            data, self._held, self._launches = data + self._held, b"", False
        return data

    def signal(self, number: int) -> None:
        """Send the program a signal."""
        if self._process.poll() is None:
            self._process.send_signal(number)

    def stop(self) -> None:
        """Ask the program to end, and end it where it does not."""

        def end() -> None:
            self.signal(signal.SIGTERM)
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.signal(signal.SIGKILL)

        threading.Thread(target=end, daemon=True).start()

    def follow(self, ended: Callable[[int], None]) -> None:
        """Call with the exit code, 128 and the signal's number where one ended it, when the program has ended."""

        def wait() -> None:
            code = self._process.wait()
            # What its own children still hold open is not waited for.
            self._reader.join(1.0)
            if not SAID_ANYWAY.search(self._held.decode(errors="replace")):
                hand_on(self._held)
            ended(128 - code if code < 0 else code)

        threading.Thread(target=wait, daemon=True).start()

    def failure(self, code: int, rank: int | None) -> dict[str, Any]:
        """Return what is known of the first failure on this node.

        ``rank``: whose program this is, None for a launcher of several, which says itself who ended first.
        """
        said = ROOT_CAUSE.search(self.tails[""].kept.decode(errors="replace"))
        if said:
            worker, rank, code = said[2], int(said[1]), int(said[3])
        else:
            begun = {name: tail.began for name, tail in self.tails.items() if tail.began and name}
            worker = min(begun, key=lambda name: begun[name]) if begun else ""
        tail = self.tails.get(worker) or self.tails[""]
        last = tail.last()
        return {
            "rank": rank,
            "worker": worker,
            "code": 128 - code if code < 0 else code,
            "when": tail.began or time.time(),
            "last": last,
            # Nobody ends a worker by TERM for its own sake.
            "follows": tail.lost_others() or code in (-signal.SIGTERM, 143),
        }


def first(failures: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the failure from which others follow: a lost connection is no cause while another failed by itself."""
    return min(failures, key=lambda one: (one["follows"], one["when"]))
