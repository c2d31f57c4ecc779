# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Why a task does not come to the first node: that one asks back.

What keeps a task from coming may be the way to the first node. Without a question on another way nobody could tell it
from one whose image takes longer, and the whole step would wait for it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Callable, Iterable

from torchrun_slurm import network, talk

#: Seconds between questions, and for which a task that cannot come is there to be asked.
EVERY, ASKED = 0.25, 10.0

#: After so many questions in a row that nothing answers, not even that nobody listens, the way is closed.
SILENT = 2

#: Seconds in which a task comes that says it is on its way: a connection that is lost is known after talk.REACH.
COMES = talk.REACH + 0.5


class Begun:
    """A node's first task, where the first node asks it: that it has begun, and what keeps it from coming.

    ``told``: what the first node says when it is not to be come to any more, nothing before.
    """

    def __init__(self, port: int, who: talk.Message, node: str) -> None:
        self.told: talk.Message = {}
        self._message: talk.Message = {"who": {**who, "node": node}, "refused": [], "code": 0}
        self._asked = threading.Event()
        self._server: socket.socket | None = None
        # Where something else has the port nobody can ask, and who waits does so for as long as it was told to.
        with contextlib.suppress(OSError):
            self._server = talk.listening(port)
            threading.Thread(target=self._listen, args=(self._server,), daemon=True).start()

    def _listen(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while True:
                threading.Thread(target=self._answer, args=(server.accept()[0],), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            line = talk.Line(connection)
            question, message = line.hear(talk.REACH), self._message
            if question.get("who") != message["who"]:
                return
            line.say(message)
            # That all is well is said only where a task has come: on this way it would start unchecked.
            if talk.refusal(question):
                self.told = question
            if message["refused"]:
                self._asked.set()

    def refuse(self, problems: list[str], code: int, wait: float) -> bool:
        """Tell the first node what is wrong, and the exit code; return whether it asks for it in so many seconds."""
        self._message = {**self._message, "refused": problems, "code": code}
        asked = self._server is not None and self._asked.wait(wait)
        self.close()
        return asked

    def close(self) -> None:
        """Be asked no more."""
        if self._server:
            with contextlib.suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)  # whoever accepts is woken
            self._server.close()


class Asking:
    """The first node's questions to the nodes whose tasks have not come, while it is entered (``with``).

    ``refused``: what is wrong, and the exit code, by node. ``unreached``: pairs of a node and one that it cannot reach.
    ``since``: when the first of them was known to have begun (time.monotonic), 0 as long as none is. ``answer``: what
    they are told when all is over. ``ended``: nodes that know, or that cannot be told.
    """

    def __init__(self, who: talk.Message, first: str, place: tuple[str, int], port: int) -> None:
        self._who, self._first, self._place, self._port = who, first, place, port
        self._over = threading.Event()
        self._silent: dict[str, int] = {}
        self._begun: dict[str, float] = {}
        self.missing: Callable[[], Iterable[str]] = tuple
        self.answer: talk.Message = {}
        self.ended: set[str] = set()
        self.refused: dict[str, tuple[list[str], int]] = {}
        self.unreached: list[tuple[str, str]] = []
        self.since = 0.0

    def __enter__(self) -> Asking:
        self._over = threading.Event()
        threading.Thread(target=self._ask, args=(self._over,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def settled(self) -> set[str]:
        """Return the nodes that are not waited for."""
        return set(self.ended) if self.answer else set(self.refused)

    def _left(self) -> set[str]:
        return set(self.missing()) - {self._first} - self.settled()

    def _ask(self, over: threading.Event) -> None:
        # Of many nodes each is asked less often.
        while not over.wait(EVERY + len(self._left()) / 200):
            questions = [threading.Thread(target=self.one, args=(node,), daemon=True) for node in self._left()]
            for question in questions:
                question.start()
            for question in questions:
                question.join()

    def one(self, node: str) -> None:
        """Ask a node once."""
        who, answer = {**self._who, "node": node}, self.answer
        try:
            with socket.create_connection((node, self._port), timeout=talk.REACH) as connection:
                line = talk.Line(connection)
                line.say({"who": who, **answer})
                told = line.hear(talk.REACH)
        except (ConnectionRefusedError, socket.gaierror):
            self._silent.pop(node, None)  # it has not begun, or has no name here
            return
        except OSError as problem:
            self._silent[node] = self._silent.get(node, 0) + 1
            if self._silent[node] >= SILENT and self._comes_by(node):
                why = f"cannot reach {node} at port {self._port}: {problem}"
                self._closed(node, (self._first, node), f"{self._first}: {why}")
                self.ended.add(node)
            return
        self._silent.pop(node, None)
        problems, code = told.get("refused"), told.get("code")
        if told.get("who") != who or not isinstance(problems, list) or not isinstance(code, int):
            return
        if answer or problems:
            self.ended.add(node)
        self.since = self.since or time.monotonic()
        begun = self._begun.setdefault(node, time.monotonic())
        if problems:
            self.refused[node] = ([str(one) for one in problems], code)
        elif time.monotonic() - begun > COMES:
            at = f"{self._place[0]}:{self._place[1]}"
            self._closed(node, (node, self._first), f"{node}: cannot reach {self._first} at {at}")

    def _closed(self, node: str, pair: tuple[str, str], said: str) -> None:
        if node in self._left():
            self.unreached.append(pair)
            self.refused[node] = ([f"{said}. {talk.FIREWALL}"], talk.CHECK_FAILED)

    def _comes_by(self, node: str) -> bool:
        """Tell whether a node's tasks come on the way by which it is asked; else its silence says nothing of them."""
        try:
            return network.own_address(node) == socket.gethostbyname(self._place[0])
        except OSError:
            return False
