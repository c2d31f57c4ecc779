"""What users train with in tests: a program whose workers meet, and a container to run it in."""

from __future__ import annotations

import subprocess

import labs

TRAIN = r"""
import os, sys, torch.distributed as dist, torch
dist.init_process_group("gloo")
one = torch.tensor([float(dist.get_rank())])
dist.all_reduce(one)
where = os.environ["NODE"]
# In one piece, which print() does not do where Python does not buffer (torchrun has it so).
sys.stdout.write(f"rank {dist.get_rank()}/{dist.get_world_size()} on {where}, sum {one.item():g}\n")
dist.destroy_process_group()
"""

#: A task's container: it knows the step, and has the launcher and the user's home.
CONTAINER = (
    "podman run --rm --network host --env SLURM_* --env NODE=$SLURMD_NODENAME --workdir $HOME --volume $HOME:$HOME"
    " --volume /usr/local/bin/torchrun-slurm:/usr/local/bin/torchrun-slurm:ro $(podman images --quiet | head -n 1)"
)


def met(lab: labs.Lab, done: subprocess.CompletedProcess[str]) -> None:
    """Assert that two workers on each of two nodes have met, and by which address."""
    assert done.returncode == 0, done.stdout + done.stderr
    ranks = sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))
    assert ranks == [f"rank {rank}/4 on node{rank // 2 + 1}, sum 6" for rank in range(4)]
    (told,) = (line for line in done.stderr.splitlines() if line.startswith("torchrun-slurm: job"))
    assert f"first node1 at {lab.address('node1')}:" in told
    assert " by eth0, " in told
