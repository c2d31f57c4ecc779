"""Start ranks of ddp_proof for tests, from a process that has imported PyTorch already.

Run by an interpreter that has it, with the program's directory as argument. Each line of input is a list of ranks, each
with its ``environment`` and ``arguments``; the answer is the largest exit code. As torchrun and srun do, all ranks are
told to end when one has failed. A rank that does not end in bounded time is killed, and the answer is 999.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

sys.path.insert(0, sys.argv[1])

import torch._dynamo  # type: ignore[import-not-found]  # noqa: F401  (DDP imports it, and that takes seconds)
from ddp_proof import program  # type: ignore[import-not-found]

BOUND = 300.0  # seconds; a rank waits 6 for another


def rank(order: dict[str, Any]) -> int:
    """Start one rank; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # as the program does first of all
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # rank 0's summary; our own output is the answers
        os.environ.update(order["environment"])
        sys.argv = ["ddp_proof", *order["arguments"]]
        code = program.main()
    finally:
        os._exit(code)


def run(orders: list[dict[str, Any]]) -> int:
    """Start the ranks and wait for all; return the largest exit code."""
    alive = {rank(order) for order in orders}
    worst, told, deadline = 0, 0.0, time.monotonic() + BOUND
    while alive:
        if time.monotonic() > deadline:
            for pid in alive:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            return 999
        for pid in list(alive):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                alive.remove(pid)
                worst = max(worst, abs(os.waitstatus_to_exitcode(status)))
        if worst and not told:
            told = time.monotonic() + 1  # by then the others have noticed by themselves, or wait in vain
        if told and time.monotonic() > told:
            for pid in alive:
                os.kill(pid, signal.SIGTERM)
            told = float("inf")
        time.sleep(0.05)
    return worst


if __name__ == "__main__":
    for line in sys.stdin:
        print(run(json.loads(line)), flush=True)
