"""torchrun-slurm starts an ordinary user's training on two nodes, with real Slurm and PyTorch."""

from __future__ import annotations

import labs
import pytest

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


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        (1, "--nproc-per-node 2 train.py"),
        (2, "--env torch train.py"),
        (1, "--env kubeflow sh platform.sh"),
    ],
)
def test_workers_of_two_nodes_meet(provisioned_lab: labs.Lab, tasks: int, words: str) -> None:
    lab = provisioned_lab
    lab.said(f"cat >train.py <<'END'{TRAIN}END")
    lab.said(
        "cat >platform.sh <<'END'\n"
        "torchrun --nnodes $WORLD_SIZE --node_rank $RANK --nproc_per_node 2"
        " --master_addr $MASTER_ADDR --master_port $MASTER_PORT train.py\nEND"
    )

    done = lab.ssh(
        "head", f"srun --nodes=2 --ntasks-per-node={tasks} sh -c '{CONTAINER} torchrun-slurm {words}'", user="ada"
    )

    assert done.returncode == 0, done.stdout + done.stderr
    ranks = sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))
    assert ranks == [f"rank {rank}/4 on node{rank // 2 + 1}, sum 6" for rank in range(4)]
    (told,) = (line for line in done.stderr.splitlines() if line.startswith("torchrun-slurm: job"))
    assert f"first node1 at {lab.address('node1')}:" in told
    assert " by eth0, " in told
    lab.said("rm train.py platform.sh")
