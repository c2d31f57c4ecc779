# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""What the nodes of a step say to one another: the first one listens, the others talk with it, in lines of JSON.

Whoever reaches the first node's port could say something in a node's place, as with the store by which workers of
PyTorch meet; what is not of this job and step is not heard.
"""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
import time
from typing import Any, Dict, Tuple

from torchrun_slurm.step import Refusal

#: Seconds within which a host that is there takes a connection: the first repetition of what was lost comes after one.
REACH = 4.0

#: Bytes of one message; a failure's last lines are in it.
LONGEST = 1 << 18

Message = Dict[str, Any]
#: Of whom (a task's number), and what: None where the conversation has ended.
Heard = Tuple[int, Any]


class Line:
    """A conversation with one other task."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # A machine that lost its power says nothing: it is asked after 10 s, and given up after three questions.
        for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        self._connection = connection
        self._reader = connection.makefile("rb")

    def say(self, message: Message) -> None:
        """Send a message; whoever has gone does not hear it, which the reader notices."""
        with contextlib.suppress(OSError):
            self._connection.sendall(json.dumps(message).encode() + b"\n")

    def hear(self, seconds: float = 0.0) -> Message:
        """Return the next message, an empty one where none comes any more or in so many seconds (0: no limit)."""
        self._connection.settimeout(seconds or None)
        try:
            heard = json.loads(self._reader.readline(LONGEST) or b"{}")
            return heard if isinstance(heard, dict) else {}
        except (OSError, ValueError, RecursionError):
            return {}

    def follow(self, task: int, into: queue.Queue[Heard]) -> None:
        """Put what is heard from now on into a queue, None at the end."""

        def read() -> None:
            while True:
                message = self.hear()
                into.put((task, message or None))
                if not message:
                    return

        threading.Thread(target=read, daemon=True).start()


def listening(port: int, address: str = "") -> socket.socket:
    """Return a socket that listens, at all addresses or at one, on a port of the kernel's choice where it is 0."""
    return socket.create_server((address, port), backlog=1024, reuse_port=False)


def gathered(server: socket.socket, who: Message, expected: int, wait: float) -> dict[int, tuple[Line, Message]]:
    """Return the conversation and the first message of each other task, of those that came in so many seconds.

    Each is heard by itself: who connects and says nothing keeps nobody waiting.
    """
    came: dict[int, tuple[Line, Message]] = {}
    heard: queue.Queue[tuple[Line, Message, float]] = queue.Queue()
    end = time.monotonic() + wait
    server.settimeout(0.1)

    def hear(connection: socket.socket) -> None:
        line = Line(connection)
        heard.put((line, line.hear(REACH), time.time()))

    while len(came) < expected and time.monotonic() < end:
        with contextlib.suppress(OSError):  # nobody came meanwhile
            threading.Thread(target=hear, args=(server.accept()[0],), daemon=True).start()
        while not heard.empty():
            line, first, now = heard.get()
            if first.get("who") == who and told_all(first):
                came[first["task"]] = (line, {**first, "ahead": first["found"]["time"] - now})
    return came


def told_all(first: Message) -> bool:
    """Tell whether a task's first message is one."""
    kinds = {"task": int, "node": str, "at": list, "mark": str, "found": dict}
    found = first.get("found")
    return all(isinstance(first.get(name), kind) for name, kind in kinds.items()) and (
        isinstance(found, dict) and found.keys() >= {"gpus", "shm", "directory", "time"}
    )


def joined(first: str, address: str, port: int, wait: float) -> Line:
    """Return the conversation with the first node; where nothing listens there yet, it is tried for so many seconds."""
    end = time.monotonic() + wait
    while True:
        try:
            return Line(socket.create_connection((address, port), timeout=REACH))
        except ConnectionRefusedError as problem:
            if time.monotonic() > end:
                said = f"torchrun-slurm of {first} did not listen at {address}:{port} in {wait:g} s"
                raise Refusal(said, f"what does {first} say?") from problem
        except OSError as problem:
            said = f"{first} cannot be reached at {address}:{port}: {problem}"
            raise Refusal(said, "a firewall between the nodes, or the wrong network? nc -vz there") from problem
        time.sleep(0.1)


def unreachable(peers: dict[str, tuple[str, int]], *, machines: bool = False) -> list[str]:
    """Return the names of those that take no connection, all tried at once.

    ``machines``: those that do not answer at all; one that refuses is there.
    """
    failed = []

    def reach(name: str, place: tuple[str, int]) -> None:
        try:
            socket.create_connection(place, timeout=REACH).close()
        except OSError as problem:
            if not (machines and isinstance(problem, ConnectionRefusedError)):
                failed.append(name)

    tries = [threading.Thread(target=reach, args=one, daemon=True) for one in peers.items()]
    for one in tries:
        one.start()
    for one in tries:
        one.join()
    return sorted(failed)
