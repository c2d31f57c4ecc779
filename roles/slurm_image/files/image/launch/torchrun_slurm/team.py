# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""The nodes of a step together: looked at before the start.

The first node's task leads: it hears what each finds, and tells all whether they may start.
"""

from __future__ import annotations

import secrets
import sys
import time
from pathlib import Path
from typing import Any

from torchrun_slurm import health, network, requeue, talk
from torchrun_slurm.step import Refusal, Step

#: The exit code of a check that failed: sysexits.h's EX_TEMPFAIL. A site can have such jobs requeued (RequeueExit).
CHECK_FAILED = 75

#: A port of which a machine that is there says at least that nobody listens.
SSH = 22

FIREWALL = "A firewall between them, or an address of another network?"


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
        if self.step.tasks > 1:
            try:
                server = talk.listening(self.port)
            except OSError as problem:
                return [f"{self.step.name}: port {self.port} cannot be listened at: {problem.strerror}. ss -ltnp there"]
            with server:
                came = talk.gathered(server, self.who, self.step.tasks - 1, self.wait)
        for task, (line, first) in came.items():
            self.lines[task], self.ahead[task], self.names[task] = line, float(first["ahead"]), str(first["node"])
        looking = time.monotonic()
        problems = self._judged(came, health.look(gpus, hindered, self._way.problem))
        begun = looking if looking - begun > 1 else begun
        for line in self.lines.values():
            line.say({"problems": problems})
        asked = "GPUs answer" if gpus.told()["answering"] is not None else "no NVIDIA driver that knows of GPUs"
        asked = asked if gpus.granted else "no GPUs were asked for"
        where = f", {self._directory} is the same on all" if self._directory else ""
        by = f" by {self._way.name}" if self._way.said else ""
        well = f"nodes reach one another{by}, {asked}{where}"
        took = f"checked in {time.monotonic() - begun:.1f} s"
        self.looked = f"{took}: exit code {CHECK_FAILED}" if problems else f"{took}: {well}"
        return problems

    def _judged(self, came: dict[int, tuple[talk.Line, talk.Message]], own: dict[str, Any]) -> list[str]:
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
            return self._answered(came, own)

    def _answered(self, came: dict[int, tuple[talk.Line, talk.Message]], own: dict[str, Any]) -> list[str]:
        """Hear whom the others reach, try it here, and return what is wrong."""
        of_nodes = [(self.step.name, one) for one in health.wrong(own)]
        unreached = [(self.step.name, one) for one in talk.unreachable(self.places)]
        for task, (line, first) in sorted(came.items()):
            told = line.hear(talk.REACH + 2)
            said = health.wrong(first["found"], first["ahead"])
            if self._directory and not first["found"]["directory"]:
                said += list(filter(None, [health.not_seen(self.mark(task), first["mark"])]))
            failed = told.get("unreachable")
            said += ["it did not say whom it reaches"] if failed is None else []
            of_nodes += [(first["node"], one) for one in said]
            unreached += [(first["node"], one) for one in failed or []]
        self.at_fault = requeue.at_fault(self.step.nodes, {node for node, _ in of_nodes}, unreached)
        problems = [f"{node}: {one}" for node, one in of_nodes]
        by = f" by {self._way.name} ({self._way.said})" if self._way.said else ""
        return problems + [f"{node}: cannot reach {one}{by}. {FIREWALL}" for node, one in unreached]

    def _follow_check(self, gpus: health.Gpus, hindered: str) -> list[str]:
        # Before it is said that this one has come: a driver may take its time.
        found = health.look(gpus, hindered, self._way.problem)
        try:
            line = talk.joined(self.step.nodes[0], self.meets, self.port, self.wait)
        except Refusal as refusal:
            # Who is to blame shows in whether any other node is reached: a few of them tell.
            others = {name: (name, SSH) for name in self.step.nodes[1:10] if name != self.step.name}
            reached = len(others) - len(talk.unreachable(others, machines=True))
            self.at_fault = [self.step.nodes[0] if reached else self.step.name]
            return [f"{self.step.name}: {refusal.args[0]}. {refusal.args[1]}"]
        self.lines = {0: line}
        with talk.listening(0, self._way.address) as server:
            at = []
            if self.step.local == 0 and not self._way.problem:
                at = [self._way.address or network.own_address(self.meets), server.getsockname()[1]]
            about = {"who": self.who, "task": self.step.task, "node": self.step.name, "at": at, "mark": self._text}
            line.say({**about, "found": {**found, "time": time.time()}})
            told = line.hear(self.wait + talk.REACH)
            if "peers" in told:
                others = {name: tuple(place) for name, place in told["peers"].items() if name != self.step.name}
                line.say({"unreachable": talk.unreachable(others) if at else []})
                told = line.hear(self.step.tasks + 4 * talk.REACH)
        if "problems" not in told:
            return [f"{self.step.name}: {self.step.nodes[0]} went away during the check"]
        return list(told["problems"])
