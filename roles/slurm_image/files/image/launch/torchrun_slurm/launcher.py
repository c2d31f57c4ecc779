# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""What is started on a node: its words and its variables."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Mapping

from torchrun_slurm import hostfile, network, rdma
from torchrun_slurm.step import Refusal, Step, crowded, granted
from torchrun_slurm.worker import WORKER

#: This program, as its workers start it.
OWN = os.path.abspath(sys.argv[0])  # noqa: PTH100 - a link stays one


class Plan:
    """What follows from the step, from what is asked for, and from the user's variables, which stay."""

    def __init__(self, step: Step, given: argparse.Namespace, environment: Mapping[str, str]) -> None:
        self.step, self.given, self._environment = step, given, environment
        self.gpus = granted(environment)
        self.workers: int = given.nproc_per_node or self.gpus or 1
        self._more = self._of_the_launcher()
        self._refuse(crowded(step, environment))
        self.meets = environment.get("MASTER_ADDR") or network.address(step)
        port = environment.get("MASTER_PORT") or str(step.port)
        if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
            raise Refusal(f"MASTER_PORT is {port[:70]}: a port is from 1 to 65535", "unset MASTER_PORT: one is chosen")
        threads = environment.get("OMP_NUM_THREADS") or "1"
        # OpenMP takes a list, too: of nested regions each its own.
        if not re.fullmatch(r"\s*[1-9][0-9]*(?:\s*,\s*[1-9][0-9]*)*\s*", threads):
            raise Refusal(
                f"OMP_NUM_THREADS is {threads[:70]}: it must be a whole number from 1 on",
                "unset OMP_NUM_THREADS: processors are shared by the workers",
            )
        if step.task == 0 and port == str(step.port) and network.taken(step.port):
            raise Refusal(f"port {port} of {step.nodes[0]} is taken", "export MASTER_PORT=..., before srun")
        added = {"MASTER_ADDR": self.meets, "MASTER_PORT": port}
        at_once = self.workers if given.env != "torch" else step.each
        added["OMP_NUM_THREADS"] = str(max(1, len(os.sched_getaffinity(0)) // at_once))
        self.way = network.Way("", "")
        if len(step.nodes) > 1:
            self.way = network.way(environment, step.nodes[1] if step.node == 0 else self.meets)
            if self.way.name:
                added.update(NCCL_SOCKET_IFNAME=f"={self.way.name}", GLOO_SOCKET_IFNAME=self.way.name)
        self._gid = rdma.gid_index(environment) if len(step.nodes) > 1 else ""
        if self._gid:
            added["NCCL_IB_GID_INDEX"] = self._gid
        self.added: dict[str, str] = {name: environment.get(name) or value for name, value in added.items()}
        if given.env == "kubeflow":
            self.added.update(WORLD_SIZE=str(len(step.nodes)), RANK=str(step.node))
        if given.env == "torch":
            own = {"RANK": step.task, "LOCAL_RANK": step.local, "WORLD_SIZE": step.tasks, "LOCAL_WORLD_SIZE": step.each}
            self.added.update({name: str(value) for name, value in own.items()})

    def _of_the_launcher(self) -> list[str]:
        """Return the launcher's options that the user adds, and refuse those that would say otherwise than the job."""
        said = f"--launcher-options {self.given.launcher_options}"
        try:
            more = shlex.split(self.given.launcher_options)
        except ValueError as problem:
            raise Refusal(f"{said}: {problem}", "close the quote") from problem
        for word in more:
            name = word.partition("=")[0].replace("_", "-")
            # Launchers take the beginning of an option's name, too; of -H a value may stand in the same word.
            meant = [fix for own, fix in OURS.items() if name[:2] == "--" and len(name) > 2 and own.startswith(name)]
            meant += [OURS["--hostfile"]] if word.startswith("-H") else []
            if meant:
                raise Refusal(f"{said}: {word.partition('=')[0]} is said to the launcher already", meant[0])
        return [*more, *self.given.how]

    def _refuse(self, shared: int) -> None:
        given, step = self.given, self.step
        if given.env == "torch" and shared:
            problem = f"{step.each} tasks of a node, each a worker, for {shared} granted GPUs"
            fix = f"srun --ntasks-per-node={shared}; or CUDA_VISIBLE_DEVICES= for tasks that need none"
            raise Refusal(problem, fix)
        if given.env != "torch" and step.each > 1:
            problem = f"{step.each} tasks on a node would each start {self.workers} workers"
            raise Refusal(problem, "srun --ntasks-per-node=1; or --env torch, where each task is one worker")
        if given.env != "torch" and self.gpus and self.workers > self.gpus:
            problem = f"{self.workers} workers of a node for {self.gpus} granted GPUs"
            raise Refusal(problem, "leave --nproc-per-node out")
        if given.env == "ssh":
            hostfile.refuse(given.program, step.nodes, self.workers, self._environment)

    @property
    def launches(self) -> bool:
        """Whether a launcher starts several workers of which each is known apart."""
        return self.given.env in LAUNCHED

    def words(self, directory: str) -> list[str]:
        """Return what is run. ``directory``: where pipes and lists of this run are, of nobody else."""
        more = self._more
        program: list[str] = self.given.program
        if self.given.env == "ssh":
            program = hostfile.with_hosts(program, f"{directory}/hosts", self.added)
        if not self.launches:
            return [sys.executable, "-u", *program] if program[0].endswith(".py") else program
        options = [word for word in more if word not in MODULE | NO_PYTHON]
        start = [] if NO_PYTHON & set(more) else [sys.executable, "-u", *(["-m"] if MODULE & set(more) else [])]
        worker = [WORKER, directory, str(len(start) + 1), *start, *program]
        nodes, rank, port = str(len(self.step.nodes)), str(self.step.node), self.added["MASTER_PORT"]
        if self.given.env == "deepspeed":
            there = ["--node_rank", rank, "--master_addr", self.added["MASTER_ADDR"], "--master_port", port]
            listed = ["deepspeed", "--hostfile", f"{directory}/hosts", "--no_ssh"]
            return [*listed, *there, *options, "--no_python", OWN, *worker]
        # With underscores: releases before 2 know no others.
        return [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", nodes, "--node_rank", rank),
            *("--nproc_per_node", str(self.workers), "--master_addr", self.added["MASTER_ADDR"]),
            *("--master_port", port, *options, "--no_python", sys.executable, OWN, *worker),
        ]  # fmt: skip

    def list_hosts(self, directory: Path) -> None:
        """Write DeepSpeed's list of hosts."""
        lines = (f"{name} slots={self.workers}\n" for name in self.step.nodes)
        (directory / "hosts").write_text("".join(lines), encoding="ascii")

    def told(self) -> str:
        """Return what was found, in one line."""
        step, added = self.step, self.added
        several = self.given.env != "torch"
        each = f"{self.workers} {'worker' if self.workers == 1 else 'workers'}" if several else f"{step.each} tasks"
        adapters = "; ".join(rdma.adapters(self._environment, ours=self._gid)) or "no RDMA adapter that is up"
        by = f" by {self.way.name}" if self.way.name else f" by {self.way.said}" if self.way.said else ""
        return (
            f"job {step.job}, {len(step.nodes)} x {each}, first {step.nodes[0]} at {added['MASTER_ADDR']}:"
            f"{added['MASTER_PORT']}{by}, {added['OMP_NUM_THREADS']} threads each; {adapters}"
        )


#: Options of the launchers that say how a worker is started, which is done here.
MODULE, NO_PYTHON = {"-m", "--module"}, {"--no-python", "--no_python"}

#: With these values of --env a launcher is started; with others a task is one worker, or starts its workers by itself.
LAUNCHED = ("torchrun", "deepspeed")

#: Options of the launchers that follow from the job, and what says the same of it. rdzv: --rdzv-conf stays the user's.
_JOB, _MEET = "srun --nodes=N", "export MASTER_ADDR=... MASTER_PORT=..., before srun; or leave it out"
OURS = {
    **dict.fromkeys(("--nproc-per-node", "--num-gpus"), "torchrun-slurm --nproc-per-node N"),
    **dict.fromkeys(("--nnodes", "--num-nodes", "--standalone"), _JOB),
    "--node-rank": "leave it out: Slurm counts the nodes",
    "--hostfile": "leave it out: the job's nodes are known; srun --nodelist=... for some of them",
    **dict.fromkeys(("--rdzv-backend", "--rdzv-endpoint", "--rdzv-id"), _MEET),
    **dict.fromkeys(("--master-addr", "--master-port"), _MEET),
}
