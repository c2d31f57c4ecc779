# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""What Slurm says of the step that this is a task of."""

from __future__ import annotations

import os
import re
from typing import Mapping

#: Ports below those that the kernel gives out by itself (ip_local_port_range), and apart from Slurm's own.
FIRST_PORT, PORTS = 20000, 10000


#: Names, each with ranges anywhere in it: n[1-3,07]x,login.
_RANGES = r"\[\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*\]"
LISTED = re.compile(rf"(?:[^,\[\]\s]|{_RANGES})+(?:,(?:[^,\[\]\s]|{_RANGES})+)*", re.ASCII)

#: What to do about a variable of Slurm's that says nonsense.
SLURMS = "Slurm sets it: leave it as it is, and start it with srun"


class Refusal(Exception):  # noqa: N818 - it is none of the program's
    """What cannot work, and what to do."""


def hosts(nodelist: str) -> list[str]:
    """Return the names of Slurm's list of nodes: n[1-3,07],login -> n1, n2, n3, n07, login.

    Raises:
        ValueError: it is no such list.
    """
    if nodelist and not LISTED.fullmatch(nodelist):
        raise ValueError(f"{nodelist[:200]} is no list of nodes")
    found: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", nodelist):
        names = [""]
        for text, ranges in re.findall(r"([^\[]+)|\[([^\]]*)\]", part):
            ends = [text] if text else [number for one in ranges.split(",") for number in numbers(one)]
            names = [name + end for name in names for end in ends]
        found += names
    return found


def numbers(one: str) -> list[str]:
    """Return the numbers of a range, as wide as they are written."""
    first, _, last = one.partition("-")
    if last and int(last) < int(first):
        raise ValueError(f"{one} ends before it begins")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last or first) + 1)]


def number(environment: Mapping[str, str], *names: str) -> int | None:
    """Return the number that the first of some variables has, None where none has one."""
    found = (re.match(r"\d+", environment.get(name, "")) for name in names)
    return next((int(one[0]) for one in found if one), None)


def whole(environment: Mapping[str, str], name: str) -> int:
    """Return the number that a variable of Slurm's is, and 0 where there is none; refuse what is none."""
    text = environment.get(name) or "0"
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise Refusal(f"{name} is {text[:70]}, which is no number", SLURMS)
    return int(text)


def tasks(listed: str, node: int) -> int:
    """Return a node's tasks of Slurm's list: 4(x2),1 -> 4, 4, 1."""
    found = re.findall(r"(\d+)(?:\(x(\d+)\))?", listed)
    each = [int(count) for count, times in found for _ in range(int(times or 1))]
    return each[node] if node < len(each) else 1


def granted(environment: Mapping[str, str]) -> int:
    """Return how many GPUs this task may use."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([one for one in visible.split(",") if one.strip() and one.strip() not in ("-1", "NoDevFiles")])
    return number(environment, "SLURM_GPUS_ON_NODE") or 0


def crowded(step: Step, environment: Mapping[str, str]) -> int:
    """Return the GPUs that a node's tasks share where they are fewer than the tasks, else 0.

    Tasks that see some of the node's GPUs were given these (--gpus-per-task, --gpu-bind), and share them on purpose.
    """
    mine, on_node = granted(environment), number(environment, "SLURM_GPUS_ON_NODE") or 0
    return mine if 0 < mine < step.each and mine >= on_node else 0


class Step:
    """The step: its nodes, its tasks, and which of them this is."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        if not environment.get("SLURM_JOB_ID"):
            raise Refusal("this is no job of Slurm's", "srun --nodes=2 --ntasks-per-node=1 torchrun-slurm ...")
        source = "SLURM_STEP_NODELIST" if environment.get("SLURM_STEP_NODELIST") else "SLURM_JOB_NODELIST"
        try:
            self.nodes = hosts(environment.get(source, ""))
        except ValueError as error:
            raise Refusal(f"{source}: {error}", SLURMS) from error
        if not self.nodes:
            raise Refusal("SLURM_STEP_NODELIST is empty", "start it with srun")
        in_step = "SLURM_STEP_NODELIST" in environment
        if not in_step and len(self.nodes) > 1:
            problem = f"the job has {len(self.nodes)} nodes, and this is its batch script, which runs on the first only"
            raise Refusal(problem, "srun --ntasks-per-node=1 torchrun-slurm ...")
        self.job = whole(environment, "SLURM_JOB_ID")
        self.step = number(environment, "SLURM_STEP_ID", "SLURM_STEPID") or 0
        self.node = number(environment, "SLURM_NODEID") or 0
        self.tasks = (number(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS") or len(self.nodes)) if in_step else 1
        self.task = (number(environment, "SLURM_PROCID") or 0) if in_step else 0
        self.local = (number(environment, "SLURM_LOCALID") or 0) if in_step else 0
        self._listed = environment.get("SLURM_STEP_TASKS_PER_NODE", "1") if in_step else "1"
        self.each = tasks(self._listed, self.node)

    @property
    def name(self) -> str:
        """The name of this node."""
        return self.nodes[self.node] if self.node < len(self.nodes) else os.uname().nodename

    def node_of(self, task: int) -> str:
        """Return the name of a task's node; tasks are given out node by node where nobody asks for another order."""
        for node, name in enumerate(self.nodes):
            task -= tasks(self._listed, node)
            if task < 0:
                return name
        return self.nodes[-1]

    @property
    def port(self) -> int:
        """One that follows from job and step: the same on all nodes, another one for the job beside."""
        return FIRST_PORT + (self.job * 31 + self.step) % PORTS

    @property
    def talk_port(self) -> int:
        """Where the first node's torchrun-slurm listens for the others: below the ports of all workers."""
        return self.port - PORTS

    @property
    def back_port(self) -> int:
        """Where the others' are asked what keeps them from coming: another one, also on the same computer."""
        return FIRST_PORT - PORTS + (self.port + PORTS // 2) % PORTS
