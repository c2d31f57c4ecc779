# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""The nodes of a step together: looked at before the start, watched until the end.

The first node's task leads: it hears what each finds, tells all whether they may start, and which of them failed first.
Without it each knows only its own part, and the one that noticed last would have the last word in the log.
"""

from __future__ import annotations

import queue
import secrets
import sys
import time
from pathlib import Path
from typing import Any

from torchrun_slurm import health, network, requeue, talk, watch
from torchrun_slurm.step import Refusal, Step

#: The exit code of a check that failed: sysexits.h's EX_TEMPFAIL. A site can have such jobs requeued (RequeueExit).
CHECK_FAILED = 75

#: A port of which a machine that is there says at least that nobody listens.
SSH = 22

FIREWALL = "A firewall between them, or an address of another network?"

#: Seconds in which others tell of their failures after the first one that was heard of.
GRACE = 3.0

#: Seconds in which all have ended after they were told to: watch.PATIENCE and some.
ALL_ENDED = 20.0


def say(text: str) -> None:
    """Say it where the log is."""
    print(f"torchrun-slurm: {text}", file=sys.stderr, flush=True)


class Member:
    """This task among those of its step. ``wait``: seconds in which others come; ``lasts``: as in health.written."""

    def __init__(self, step: Step, meets: str, port: int, wait: float, place: str = "", lasts: bool = False) -> None:
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
        problems = self._judged(came, health.look(gpus, hindered))
        begun = looking if looking - begun > 1 else begun
        for line in self.lines.values():
            line.say({"problems": problems})
        asked = "GPUs answer" if gpus.told()["answering"] is not None else "no NVIDIA driver that knows of GPUs"
        asked = asked if gpus.granted else "no GPUs were asked for"
        where = f", {self._directory} is the same on all" if self._directory else ""
        self.looked = f"checked in {time.monotonic() - begun:.1f} s: nodes reach one another, {asked}{where}"
        return problems

    def _judged(self, came: dict[int, tuple[talk.Line, talk.Message]], own: dict[str, Any]) -> list[str]:
        """Have all try to reach all, and return what is wrong."""
        missing = sorted(set(range(1, self.step.tasks)) - set(came))
        if missing:
            shown = ", ".join(map(str, missing[:5]))
            late = f"task {shown}: torchrun-slurm did not come from there in {self.wait:g} s"
            self.at_fault = requeue.at_fault(self.step.nodes, {self.step.node_of(task) for task in missing}, [])
            return [f"{late}. What does its node say? For an image that takes longer: --check-wait"]
        # The others reach this one: they have come.
        self.places = {first["node"]: tuple(first["at"]) for _, first in came.values() if first["at"]}
        for line, _ in came.values():
            line.say({"peers": self.places})
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
        return problems + [f"{node}: cannot reach {one}. {FIREWALL}" for node, one in unreached]

    def _follow_check(self, gpus: health.Gpus, hindered: str) -> list[str]:
        # Before it is said that this one has come: a driver may take its time.
        found = health.look(gpus, hindered)
        try:
            line = talk.joined(self.step.nodes[0], self.meets, self.port, self.wait)
        except Refusal as refusal:
            # Who is to blame shows in whether any other node is reached: a few of them tell.
            others = {name: (name, SSH) for name in self.step.nodes[1:10] if name != self.step.name}
            reached = len(others) - len(talk.unreachable(others, machines=True))
            self.at_fault = [self.step.nodes[0] if reached else self.step.name]
            return [f"{self.step.name}: {refusal.args[0]}. {refusal.args[1]}"]
        self.lines = {0: line}
        with talk.listening(0) as server:
            at = [network.own_address(self.meets), server.getsockname()[1]] if self.step.local == 0 else []
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


class Run:
    """The program on this node, and what is heard of it and of the others.

    ``served``: the other nodes' programs only wait for the first one's, whose end is that of all.
    """

    def __init__(
        self,
        member: Member,
        program: watch.Program,
        rank: int | None,
        back: requeue.Requeue | None = None,
        *,
        served: bool = False,
    ) -> None:
        self.member, self.program, self._rank, self._back, self._served = member, program, rank, back, served
        self.heard: queue.Queue[talk.Heard] = queue.Queue()
        self.asked_to_end = False
        self._gone: set[int] = set()
        for task, line in member.lines.items():
            line.follow(task, self.heard)
        own = member.step.task
        program.follow(lambda code: self.heard.put((own, {"ended": code, "failure": self._failure(code)})))

    def _failure(self, code: int) -> dict[str, Any] | None:
        """Return what is known of this node's failure, None where there was none."""
        return {**self.program.failure(code, self._rank), "node": self.member.step.name} if code else None

    def next(self, until: float) -> talk.Heard | None:
        """Return what is heard next, None when it is too late."""
        try:
            return self.heard.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            return None

    def follow(self) -> int:
        """Be another node's task: tell the first how it ended here, and end as it says."""
        (first,) = self.member.lines.values()
        code: int | None = None
        while True:
            task, message = self.heard.get()
            if task == self.member.step.task:
                code = message["ended"]
                first.say(message)
            elif message is None:
                # Nobody can tell who failed first. What was started here would wait for the first node's workers.
                if code is None:
                    say(f"{self.member.step.name}: {self.member.step.nodes[0]} went away")
                    self.program.stop()
                    self._until_own_end()
                return code or 1
            elif "stop" in message:
                self.program.stop()
            elif "release" in message:
                self.program.stop()
                return int(message["release"])

    def _until_own_end(self) -> None:
        end = time.monotonic() + ALL_ENDED
        while (heard := self.next(end)) and heard[0] != self.member.step.task:
            pass

    def lead(self, hold: float) -> int:
        """Be the first node's task: return the exit code of whatever failed first, 0 where nothing did.

        ``hold``: seconds for which all stays as it is after a failure.
        """
        ended: dict[int, int] = {}
        failures: list[dict[str, Any]] = []
        tasks = {self.member.step.task, *(() if self._served else self.member.lines)}
        until = float("inf")
        told = False
        while not tasks <= set(ended):
            heard = self.next(until) if until < float("inf") else self.heard.get()
            if heard is not None:
                # Who was told to end is no cause.
                self._take(heard, ended, [] if told else failures)
            if failures and until == float("inf"):
                until = time.monotonic() + GRACE
            elif heard is None and (told or hold):
                break
            elif heard is None:
                told, until = True, time.monotonic() + ALL_ENDED
                for line in self.member.lines.values():
                    line.say({"stop": True})
                self.program.stop()
        code = self._tell(failures)
        silent = self._silent(ended) if code and self._back and not self.asked_to_end else []
        if silent and self._back:
            self._back.without(silent)
        elif code and hold and not self.asked_to_end:
            self._keep(hold)
        for line in self.member.lines.values():
            line.say({"release": code})
        self.program.stop()
        return code

    def _silent(self, ended: dict[int, int]) -> list[str]:
        """Return the nodes that have not told of their own end, and from which nothing comes any more."""
        quiet = {self.member.names[task] for task in self.member.lines if task not in ended or task in self._gone}
        places = {node: place for node, place in self.member.places.items() if node in quiet}
        return requeue.at_fault(self.member.step.nodes, talk.unreachable(places, machines=True), [])

    def _keep(self, seconds: float) -> None:
        """Leave allocation, containers, and workers that have not ended as they are, and say how to look at them."""
        job, end = self.member.step.job, time.time() + seconds
        until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(end))
        say(f"held until {until}, and no longer than the job's time limit")
        say(f"look: job-exec {job} COMMAND, job-shell {job} NODE; when you are done: scancel {job}")
        while time.time() < end and not self.asked_to_end:
            time.sleep(0.5)

    def _take(self, heard: talk.Heard, ended: dict[int, int], failures: list[dict[str, Any]]) -> None:
        task, message = heard
        if message is None and task not in ended:
            self._gone.add(task)
            lost = {
                "node": self.member.names.get(task, ""),
                "rank": None,
                "worker": "",
                "code": 1,
                "when": time.time(),
                "follows": False,
            }
            message = {"ended": 1, "failure": {**lost, "last": [f"task {task} went away: its node or container ended"]}}
        if message and "ended" in message and task not in ended:
            ended[task] = message["ended"]
            if message["failure"]:
                failures.append(message["failure"])
                # By the first node's clock.
                message["failure"]["when"] -= self.member.ahead.get(task, 0.0)

    def _tell(self, failures: list[dict[str, Any]]) -> int:
        """Have the first failure be the last that the log says; return its exit code."""
        if not failures:
            return 0
        one = watch.first(failures)
        if self.asked_to_end:
            say("ended by a signal: scancel, the time limit, or another part of the job")
            return int(one["code"])
        whose = f"rank {one['rank']} on {one['node']}" if one["rank"] is not None else one["node"]
        at = time.strftime("%H:%M:%S", time.localtime(one["when"]))
        code = f"exit code {one['code']}" if one["code"] <= 128 else f"signal {one['code'] - 128}"
        say(f"first to fail: {whose}, {at}, {code}. Its last lines:")
        print("\n".join(one["last"]), file=sys.stderr, flush=True)
        return int(one["code"])
