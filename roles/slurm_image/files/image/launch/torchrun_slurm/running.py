# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""The program on all nodes of a step, watched to its end.

The first node's task leads: it hears how it ended on each, and says which of them failed first. Without it each knows
only its own part, and the one that noticed last would have the last word in the log.
"""

from __future__ import annotations

import queue
import sys
import time
from typing import Any

from torchrun_slurm import requeue, talk, watch
from torchrun_slurm.team import Member, say

#: Seconds in which others tell of their failures after the first one that was heard of.
GRACE = 3.0

#: Seconds in which all have ended after they were told to: watch.PATIENCE and some.
ALL_ENDED = 20.0


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
