"""torchrun-slurm as the image has it, as tasks on two nodes that are both this computer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import worker
from waiting import PATIENCE, until

from provision import content

LAUNCH = content.ROOT / "roles/slurm_image/files/image/launch"
sys.path.insert(0, str(LAUNCH))


class Node:
    """A task on one of two nodes, both of them this computer."""

    #: Each test's job has ports of its own, also beside other workers, and most likely beside other pytests.
    #: The ports of two jobs meet where their numbers differ by 5000.
    job = worker.NUMBER * 600 + os.getpid() * 13 % 500

    def __init__(self, program: Path, number: int, words: list[str], **environment: str) -> None:
        step = {"SLURM_JOB_ID": str(Node.job), "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[1-2]"}
        step |= {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_LOCALID": "0"}
        step |= {"SLURM_NODEID": str(number), "SLURM_PROCID": str(number), "SLURMD_NODENAME": f"n{number + 1}"}
        own = {**os.environ, **step, "MASTER_ADDR": "127.0.0.1"}
        own.pop("CUDA_VISIBLE_DEVICES", None)
        own |= environment
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(
            [sys.executable, str(program), *words], env=own, text=True, start_new_session=True, **pipes
        )

    def vanish(self) -> None:
        """End as a machine does that loses its power."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.end()

    def end(self, seconds: float = PATIENCE) -> tuple[int, list[str]]:
        """Return the exit code and what was said on standard error."""
        _, said = self.process.communicate(timeout=seconds)
        return self.process.returncode, said.splitlines()

    def catches(self, number: int) -> bool:
        """Tell whether the task has a handler of its own for a signal."""
        status = Path("/proc", str(self.process.pid), "status").read_text(encoding="ascii")
        (caught,) = (int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt:"))
        return bool(caught >> (number - 1) & 1)


def both(program: Path, *words: str, **environment: str) -> tuple[Node, Node]:
    Node.job += 1
    return Node(program, 0, list(words), **environment), Node(program, 1, list(words), **environment)


#: What a node runs; RANK is its number, as with a platform.
def script(text: str) -> tuple[str, ...]:
    return ("--env", "kubeflow", sys.executable, "-c", text)


def watched(program: Path, *words: str) -> tuple[Node, Node]:
    """Start a program that does not end by itself on both nodes, and return once both watch it."""
    nodes = both(program, *words, *script("import time; time.sleep(3600)"))
    for node in nodes:
        # The only signal that Python leaves alone and torchrun-slurm takes from then on.
        until(lambda node=node: node.catches(signal.SIGUSR1), "the start of the program")
    return nodes
