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
from typing import TYPE_CHECKING, Any, Dict, Tuple

from torchrun_slurm.step import Refusal

if TYPE_CHECKING:
    from torchrun_slurm.asking import Asking, Begun

#: The exit code of a check that failed: sysexits.h's EX_TEMPFAIL. A site can have such jobs requeued (RequeueExit).
CHECK_FAILED = 75

FIREWALL = "A firewall between them, or an address of another network?"

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


def gathered(
    server: socket.socket,
    who: Message,
    expected: dict[int, str],
    wait: float,
    asking: Asking | None = None,
    answer: Message | None = None,
) -> dict[int, tuple[Line, Message]]:
    """Return the conversation and the first message of each other task, of those that came in so many seconds.

    Each is heard by itself: who connects and says nothing keeps nobody waiting.

    Args:
        server: listens.
        who: job and step, as others say them.
        expected: the other tasks, each with its node's name.
        wait: seconds.
        asking: asks back what keeps those that do not come; once one says it, the others are not waited for.
        answer: said to each that comes, and then all are waited for, or for what keeps them.
    """
    came: dict[int, tuple[Line, Message]] = {}
    heard: queue.Queue[tuple[Line, Message, float]] = queue.Queue()
    end = time.monotonic() + wait
    server.settimeout(0.1)

    def missing() -> set[str]:
        settled = asking.settled() if asking else set()
        return {node for task, node in expected.items() if task not in came and node not in settled}

    if asking:
        asking.missing, asking.answer = missing, answer or {}

    def hear(connection: socket.socket) -> None:
        line = Line(connection)
        heard.put((line, line.hear(REACH), time.time()))

    while missing() and time.monotonic() < end and not (asking and asking.refused and answer is None):
        with contextlib.suppress(OSError):  # nobody came meanwhile
            threading.Thread(target=hear, args=(server.accept()[0],), daemon=True).start()
        while not heard.empty():
            line, first, now = heard.get()
            if first.get("who") == who and told_all(first):
                came[first["task"]] = (line, {**first, "ahead": first["time"] - now})
                if answer:
                    line.say(answer)
    return came


def told_all(first: Message) -> bool:
    """Tell whether a task's first message is one."""
    kinds = {"task": int, "node": str, "at": list, "mark": str, "time": float}
    return all(isinstance(first.get(name), kind) for name, kind in kinds.items())


def refusal(told: Message) -> bool:
    """Tell whether a message says what is wrong, and the exit code."""
    problems, code = told.get("problems"), told.get("code")
    texts = isinstance(problems, list) and bool(problems) and all(isinstance(one, str) for one in problems)
    return texts and isinstance(code, int) and not isinstance(code, bool)


def resolved(name: str) -> str:
    """Return a name's IPv4 address; the name itself where it has none, of which who connects says what is wrong."""
    try:
        return socket.gethostbyname(name)
    except OSError:
        return name


def found_all(told: Message) -> bool:
    """Tell whether a task's second message says what it finds, and whom it does not reach."""
    found = told.get("found")
    return isinstance(told.get("unreachable"), list) and (
        isinstance(found, dict) and found.keys() >= {"gpus", "shm", "directory"}
    )


def joined(first: str, address: str, port: int, wait: float, begun: Begun | None = None) -> Line | None:
    """Return the conversation with the first node; where nothing listens there yet, it is tried for so many seconds.

    None where the first node says meanwhile, asking back (``begun``), that it is over.
    """
    end = time.monotonic() + wait
    while not (begun and begun.told):
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
    return None


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
