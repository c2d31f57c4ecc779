#!/usr/bin/env python3
"""Stands in for DeepSpeed's launcher: has PyTorch's start what DeepSpeed's would, from the same words.

With --no_ssh it is started on each node and starts the workers of its own; otherwise it is started on one, and enters
the nodes of the host file by ssh.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

parser = argparse.ArgumentParser(allow_abbrev=False)
for name in ("--hostfile", "--master_addr", "--master_port"):
    parser.add_argument(name, required=True)
parser.add_argument("--node_rank", default="0")
parser.add_argument("--no_ssh", action="store_true")
parser.add_argument("--no_python", action="store_true")
parser.add_argument("program", nargs=argparse.REMAINDER)
given = parser.parse_args()

listed = [line.split(" slots=") for line in Path(given.hostfile).read_text(encoding="utf-8").splitlines()]


def words(rank: str) -> list[str]:
    """Return the command that starts a node's workers."""
    options = ["--nnodes", str(len(listed)), "--node_rank", rank, "--nproc_per_node", listed[int(rank)][1]]
    options += ["--master_addr", given.master_addr, "--master_port", given.master_port]
    options += ["--no_python"] if given.no_python else []
    return [sys.executable, "-m", "torch.distributed.run", *options, *given.program]


if given.no_ssh:
    command = words(given.node_rank)
    os.execv(command[0], command)  # noqa: S606 - as DeepSpeed does
entered = [["ssh", host, shlex.join(words(str(rank)))] for rank, (host, _) in enumerate(listed)]
started = [subprocess.Popen(command) for command in entered]
sys.exit(max(process.wait() for process in started))
