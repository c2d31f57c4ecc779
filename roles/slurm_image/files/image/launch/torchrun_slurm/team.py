# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""The nodes of a step together: looked at before the start.

The first node's task leads: it hears what each finds, and tells all whether they may start.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import sys
import time
from pathlib import Path

from torchrun_slurm import health, network, requeue, talk
from torchrun_slurm.asking import ASKED, Asking, Begun
from torchrun_slurm.step import Refusal, Step
from torchrun_slurm.talk import CHECK_FAILED, FIREWALL

#: A port of which a machine that is there says at least that nobody listens.
SSH = 22


def say(text: str) -> None:
    """Say it where the log is."""
    print(f"torchrun-slurm: {text}", file=sys.stderr, flush=True)


class Member:
    """This task among those of its step. ``wait``: seconds in which others come; ``lasts``: as in health.written.

    ``meets`` is where the tasks talk; ``way``, by which interface the workers will.
    """

    def __init__(
        self,
        step: Step,
        meets: str,
        port: int,
        wait: float,
        place: str = "",
        lasts: bool = False,
        way: network.Way | None = None,
    ) -> None:
        self.step, self.meets, self.port, self.wait = step, meets, port, wait
        self.who = {"job": step.job, "step": step.step}
        self.lines: dict[int, talk.Line] = {}
        self.names = {0: step.nodes[0]}
        self.ahead: dict[int, float] = {}
        #: Where each node listened; the nodes that the check found to be at fault.
        self.places: dict[str, tuple[str, int]] = {}
        self.at_fault: list[str] = []
        self._directory, self._lasts = place, lasts
        self._text = secrets.token_hex(8)
        self.looked = ""
        #: The exit code where something is wrong; whom others that come late hear it from.
        self.code = CHECK_FAILED
        self._server: socket.socket | None = None
        self._begun: Begun | None = None
        self._asking = Asking(self.who, step.nodes[0], (meets, port), step.back_port)
        self._end = 0.0
        self._way = way or network.Way("", "")

    @property
    def leads(self) -> bool:
        """Whether this is the first node's first task."""
        return self.step.task == 0

    def mark(self, task: int) -> Path:
        """Return the file by which a task shows that it writes where the others do."""
        return health.mark(self._directory, self.step.job, self.step.step, task)

    def check(self, gpus: health.Gpus) -> list[str]:
        """Look at this node and at the way to the others; return what is wrong anywhere, after each node's name."""
        begun = time.monotonic()
        own = self.mark(self.step.task)
        hindered = self._directory and health.written(own, self._text, self._lasts)
        try:
            if self.leads:
                return self._lead_check(gpus, hindered, begun)
            return self._follow_check(gpus, hindered)
        finally:
            if self._directory and not hindered:
                own.unlink(missing_ok=True)

    def _lead_check(self, gpus: health.Gpus, hindered: str, begun: float) -> list[str]:
        came: dict[int, tuple[talk.Line, talk.Message]] = {}
        self._end = begun + self.wait
        if self.step.tasks > 1:
            try:
                self._server = talk.listening(self.port)
            except OSError as problem:
                return [f"{self.step.name}: port {self.port} cannot be listened at: {problem.strerror}. ss -ltnp there"]
            with self._asking:
                came = talk.gathered(self._server, self.who, self._others(), self.wait, self._asking)
            self._take(came)
        looking = time.monotonic()
        if self._asking.refused:
            problems = self._refused()
            begun = self._asking.since or begun
        else:
            problems = self._judged(came, gpus, hindered)
            begun = looking if looking - begun > 1 else begun
        for line in self.lines.values():
            line.say({"problems": problems, "code": self.code})
        took = f"checked in {time.monotonic() - begun:.1f} s"
        if problems:
            self.looked = f"{took}: exit code {self.code}"
            return problems
        asked = "GPUs answer" if gpus.told()["answering"] is not None else "no NVIDIA driver that knows of GPUs"
        asked = asked if gpus.granted else "no GPUs were asked for"
        where = f", {self._directory} is the same on all" if self._directory else ""
        by = f" by {self._way.name}" if self._way.said else ""
        self.looked = f"{took}: nodes reach one another{by}, {asked}{where}"
        if self._server:
            self._server.close()
        return []

    def _others(self) -> dict[int, str]:
        """Return the other tasks that have not come, each with its node's name."""
        return {task: self.step.node_of(task) for task in range(1, self.step.tasks) if task not in self.lines}

    def _take(self, came: dict[int, tuple[talk.Line, talk.Message]]) -> None:
        for task, (line, first) in came.items():
            self.lines[task], self.ahead[task], self.names[task] = line, float(first["ahead"]), str(first["node"])

    def _refused(self) -> list[str]:
        """Return what keeps tasks from coming, and have that one's exit code where it is the same for all of them."""
        refused = list(self._asking.refused.values())
        codes = {code for _, code in refused}
        self.code = codes.pop() if len(codes) == 1 else CHECK_FAILED
        self.at_fault = requeue.at_fault(self.step.nodes, [], self._asking.unreached)
        return [one for problems, _ in refused for one in problems]

    def blamed(self) -> list[str]:
        """Return the nodes that the check found to be at fault; who was told of it by the first node blames nobody."""
        if not self.leads and not self.lines and not (self._begun and self._begun.told):
            # Who is to blame shows in whether any other node is reached: a few of them tell.
            others = {name: (name, SSH) for name in self.step.nodes[1:10] if name != self.step.name}
            reached = len(others) - len(talk.unreachable(others, machines=True))
            return [self.step.nodes[0] if reached else self.step.name]
        return self.at_fault

    def told_first(self, problems: list[str]) -> bool:
        """Tell the first node, which this task could not come to, what is wrong; return whether it has asked for it."""
        begun, self._begun = self._begun, None
        # A first node that waits no longer asks nothing, either.
        left = max(0.0, min(ASKED, self._end - time.monotonic()))
        return begun is not None and (bool(begun.told) or begun.refuse(problems, self.code, left))

    def tell_all(self, problems: list[str]) -> None:
        """Have the other tasks know what is wrong: those that come later would wait for a first node that has ended."""
        self.told_first(problems)
        if not self._server:
            return
        left = self._end - time.monotonic()
        answer = {"problems": problems, "code": self.code}
        with self._server, self._asking:
            talk.gathered(self._server, self.who, self._others(), left, self._asking, answer)

    def refuse(self, problem: str, code: int) -> None:
        """Have the other tasks know of what this one refuses before the check, so that none waits for it."""
        if self.leads and self.step.tasks > 1:
            self.code, self._end = code, time.monotonic() + self.wait
            with contextlib.suppress(OSError):
                self._server = talk.listening(self.port)
            self.tell_all([problem])
        elif self._is_asked:
            Begun(self.step.back_port, self.who, self.step.name).refuse([problem], code, self.wait)

    @property
    def _is_asked(self) -> bool:
        """Whether the first node asks this task what keeps its node's from coming."""
        return self.step.local == 0 and self.step.node > 0

    def _judged(self, came: dict[int, tuple[talk.Line, talk.Message]], gpus: health.Gpus, hindered: str) -> list[str]:
        """Have all try to reach all, and return what is wrong."""
        missing = sorted(set(range(1, self.step.tasks)) - set(came))
        if missing:
            shown = ", ".join(map(str, missing[:5]))
            late = f"task {shown}: torchrun-slurm did not come from there in {self.wait:g} s"
            self.at_fault = requeue.at_fault(self.step.nodes, {self.step.node_of(task) for task in missing}, [])
            return [f"{late}. What does its node say? For an image that takes longer: --check-wait"]
        self.places = {first["node"]: tuple(first["at"]) for _, first in came.values() if first["at"]}
        with talk.listening(0, self._way.address) as here:
            # The others reach this one: they have come. Where workers meet elsewhere, that is no proof.
            own_place = {self.step.name: here.getsockname()} if self._way.said and self._way.address else {}
            for line, _ in came.values():
                line.say({"peers": {**self.places, **own_place}})
            return self._answered(came, gpus, hindered)

    def _answered(self, came: dict[int, tuple[talk.Line, talk.Message]], gpus: health.Gpus, hindered: str) -> list[str]:
        """Try here whom this node reaches, hear it of the others, with what they find, and return what is wrong."""
        unreached = [(self.step.name, one) for one in talk.unreachable(self.places)]
        # After all else: meanwhile the driver has answered.
        found = health.look(gpus, hindered, self._way.problem)
        own = health.wrong(found)
        of_nodes = [(self.step.name, one) for one in own]
        at_fault = {self.step.name} if health.blames(found, own) else set()
        for task, (line, first) in sorted(came.items()):
            told = line.hear(max(talk.REACH, gpus.limit) + 2)
            if not talk.found_all(told):
                of_nodes.append((first["node"], "it did not say what it finds"))
                at_fault.add(first["node"])
                continue
            said = health.wrong(told["found"], first["ahead"])
            if self._directory and not told["found"]["directory"]:
                said += list(filter(None, [health.not_seen(self.mark(task), first["mark"])]))
            of_nodes += [(first["node"], one) for one in said]
            if health.blames(told["found"], said):
                at_fault.add(first["node"])
            unreached += [(first["node"], one) for one in told["unreachable"]]
        self.at_fault = requeue.at_fault(self.step.nodes, at_fault, unreached)
        problems = [f"{node}: {one}" for node, one in of_nodes]
        by = f" by {self._way.name} ({self._way.said})" if self._way.said else ""
        return problems + [f"{node}: cannot reach {one}{by}. {FIREWALL}" for node, one in unreached]

    def _follow_check(self, gpus: health.Gpus, hindered: str) -> list[str]:
        self._end = time.monotonic() + self.wait
        # Before it is asked: from then on who does not come in asking.COMES has no way, and resolvers take longer.
        address = talk.resolved(self.meets)
        begun = Begun(self.step.back_port, self.who, self.step.name) if self._is_asked else None
        try:
            line = talk.joined(self.step.nodes[0], address, self.port, self.wait, begun)
        except Refusal as refusal:
            self._begun = begun
            return [f"{self.step.name}: {refusal.args[0]}. {refusal.args[1]}"]
        if line is None:
            self._begun = begun
            return self._told(begun.told if begun else {})
        if begun:
            begun.close()
        self.lines = {0: line}
        with talk.listening(0, self._way.address) as server:
            at = []
            if self.step.local == 0 and not self._way.problem:
                at = [self._way.address or network.own_address(self.meets), server.getsockname()[1]]
            about = {"who": self.who, "task": self.step.task, "node": self.step.name, "at": at, "mark": self._text}
            line.say({**about, "time": time.time()})
            told = line.hear(self.wait + talk.REACH)
            if "peers" in told:
                others = {name: tuple(place) for name, place in told["peers"].items() if name != self.step.name}
                unreached = talk.unreachable(others) if at else []
                line.say({"unreachable": unreached, "found": health.look(gpus, hindered, self._way.problem)})
                told = line.hear(self.step.tasks + 4 * talk.REACH + gpus.limit)
        return self._told(told)

    def _told(self, told: talk.Message) -> list[str]:
        """Return what is wrong, as the first node says it, and have its exit code."""
        if not talk.refusal(told) and told.get("problems") != []:
            return [f"{self.step.name}: {self.step.nodes[0]} went away during the check"]
        if told["problems"]:
            self.code = told["code"]
        return list(told["problems"])
