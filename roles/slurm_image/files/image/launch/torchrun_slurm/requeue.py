# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""A job goes back into the queue without the nodes that are at fault (--requeue-on=node-failure).

In a container there is no scontrol. So what brings a program into one leaves a process outside before (``offer``),
which is told by a descriptor which nodes the job is to leave out, and knows nothing else to do.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from typing import Iterable, MutableMapping

from torchrun_slurm.step import hosts, whole

OPTION = "--requeue-on"

#: How often a job goes back at most, as with the templates' turns: whatever is wrong with the cluster ends some day.
TURNS = 20

#: The descriptor of the process outside. docker hands on what begins with SLURM_; Podman, descriptors from 3 on.
VARIABLE, DESCRIPTOR = "SLURM_REQUEUE_DESCRIPTOR", 3

#: Seconds in which slurmctld answers, and in which all of it is done: Slurm's own KillWait is 30.
ANSWER, DONE = 8, 25

#: Of Slurm's KillWait the least seconds in which what ends with its job can put that back.
LEAST_KILL_WAIT = 10

#: Those with which Slurm ends a job that goes back: what puts it back would not come to its end.
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def at_fault(nodes: Iterable[str], own: Iterable[str], unreached: Iterable[tuple[str, str]]) -> list[str]:
    """Return the nodes that are to blame, none where it is all of several nodes: then it is not theirs.

    ``own``: those with something wrong of their own. ``unreached``: pairs of a node and one that it cannot reach; who
    is in most of them is to blame, and the one that is not reached where that is even.
    """
    blamed = set(own)
    pairs = [pair for pair in unreached if not blamed & set(pair)]
    while pairs:
        worst = max(
            (one for pair in pairs for one in reversed(pair)), key=lambda one: sum(one in pair for pair in pairs)
        )
        blamed.add(worst)
        pairs = [pair for pair in pairs if worst not in pair]
    all_of_them = set(nodes)
    return [] if blamed >= all_of_them and len(all_of_them) > 1 else sorted(blamed)


def slurm(*words: str) -> str:
    """Return what a command of Slurm's prints; RuntimeError says why it does not work."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=ANSWER)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise RuntimeError(f"{words[0]}: {problem}") from problem
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"{words[0]} ended with {done.returncode}"])[-1])
    return done.stdout


def back(job: int, without: list[str]) -> str:
    """Put a job back into the queue, to run on other nodes; return what went wrong, nothing where it was done.

    Slurm takes a list of nodes for jobs that wait, so it goes back held; it then begins two minutes later (slurmctld).
    """
    try:
        asked = slurm("squeue", "--noheader", f"--jobs={job}", "--format=%D|%P|%x").strip().split("|")
        count, partition, before = int(asked[0]), asked[1], asked[2]
        excluded = sorted({*hosts(before.replace("(null)", "")), *without})
        there = set(slurm("sinfo", "--noheader", "--Node", f"--partition={partition}", "--format=%N").split())
        if len(there - set(excluded)) < count:
            few = f"partition {partition} has {len(there)} nodes, too few for {count} without {','.join(excluded)}"
            return f"the job is not requeued: {few}"
        kill_wait = re.search(r"KillWait\s*=\s*(\d+)", slurm("scontrol", "show", "config"))
        if kill_wait and int(kill_wait[1]) < LEAST_KILL_WAIT:
            return (
                f"the job is not requeued: Slurm's KillWait is {kill_wait[1]} s, in which it may not be put back whole"
            )
        slurm("scontrol", "requeuehold", str(job))
    except (RuntimeError, ValueError, IndexError) as problem:
        return f"the job is not requeued: {problem}"
    wrong = tried("scontrol", "update", f"JobId={job}", f"ExcNodeList={','.join(excluded)}")
    held = tried("scontrol", "release", str(job)) and tried("scontrol", "release", str(job))
    if held:
        return f"the job is requeued, and held: {held}. scontrol release {job}"
    return f"the job is requeued, with these nodes: {wrong}" if wrong else ""


def tried(*words: str) -> str:
    """Run a command of Slurm's; return why it does not work, nothing where it does."""
    try:
        slurm(*words)
    except RuntimeError as problem:
        return str(problem)
    return ""


def serve(connection: socket.socket, job: int) -> None:
    """Wait for the list of nodes, and answer with what came of it; end where nobody can ask any more."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    with connection, connection.makefile("rb") as asked:
        line = asked.readline()
        if line:
            connection.sendall(json.dumps(back(job, [str(one) for one in json.loads(line)])).encode() + b"\n")


def offer(environment: MutableMapping[str, str], words: Iterable[str]) -> None:
    """Leave a process outside of the container that a program is about to enter, where its words ask for it."""
    job = environment.get("SLURM_JOB_ID", "")
    if not job.isdigit() or not any(OPTION in word for word in words):
        return
    here, there = socket.socketpair()
    if os.fork() == 0:
        try:
            here.close()
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nothing, stream)
            serve(there, int(job))
        finally:
            os._exit(0)
    there.close()
    # What else is there is nothing of the program's: Slurm gave it three streams.
    kept = here.detach()
    if kept == DESCRIPTOR:
        os.set_inheritable(kept, True)
    else:
        os.dup2(kept, DESCRIPTOR)
        os.close(kept)
    environment[VARIABLE] = str(DESCRIPTOR)


class Requeue:
    """The way to put one's own job back. It is taken from the environment: what is started here does not get it."""

    def __init__(self, environment: MutableMapping[str, str], job: int) -> None:
        self._job = job
        self._turns = whole(environment, "SLURM_RESTART_COUNT")
        told = environment.pop(VARIABLE, "")
        self._outside = int(told) if told.isdigit() else None
        if self._outside is not None:
            try:
                os.set_inheritable(self._outside, False)
            except OSError:
                self._outside = None

    def hindered(self) -> tuple[str, str] | tuple[()]:
        """Return why this cannot be done and what to do, nothing where it can."""
        # Of Slurm's commands a container has one that answers a single question.
        if self._outside is None and not shutil.which("squeue"):
            return (
                f"{OPTION}: no way leads from this container to Slurm",
                f"give {OPTION} on the line of srun or docker run",
            )
        return ()

    def without(self, nodes: list[str]) -> bool:
        """Put the job back, and say so; Slurm ends it then. Return whether it is put back."""
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)
        shown = ", ".join(nodes)
        if self._turns >= TURNS:
            say(f"{shown}: the job is not requeued, after {TURNS} turns")
            return False
        say(f"{shown}: the job is requeued without it, for turn {self._turns + 1} of at most {TURNS}")
        hindered = self._ask(nodes)
        if hindered:
            say(hindered)
        return not hindered

    def _ask(self, nodes: list[str]) -> str:
        if self._outside is None:
            return back(self._job, nodes)
        try:
            with socket.socket(fileno=self._outside) as outside:
                outside.settimeout(DONE)
                outside.sendall(json.dumps(nodes).encode() + b"\n")
                with outside.makefile("rb") as answer:
                    return str(
                        json.loads(
                            answer.readline() or b'"the job is not requeued: nobody outside of the container answers"'
                        )
                    )
        except (OSError, ValueError) as problem:
            return f"whether the job is requeued is not known: {problem}. squeue --jobs={self._job}"


def say(text: str) -> None:
    """Say it where the log is."""
    print(f"torchrun-slurm: {text}", file=sys.stderr, flush=True)
