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
        # Who starts the workers, torchrun or Slurm: the variables of each are unit-tested.
        (1, "--nproc-per-node 2 train.py"),
        pytest.param(2, "--env torch train.py", marks=pytest.mark.jobs),
        pytest.param(1, "--env kubeflow sh platform.sh", marks=pytest.mark.jobs),
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


AGAIN = r"""#!/bin/sh
#SBATCH --nodes=1 --ntasks-per-node=1 --mem=500M --time=5 --open-mode=append --output=again.log
srun --container-image=$(podman images --quiet --filter readonly=true | head -n 1) --container-mounts=$HOME \
    torchrun-slurm --requeue-on=node-failure --output-dir $HOME/out --env kubeflow \
    sh -c 'echo ran on $SLURMD_NODENAME'
"""


def test_a_job_goes_on_without_the_node_that_is_at_fault(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    lab.said(f"mkdir -p out; rm -f again.log; cat >again.sh <<'END'\n{AGAIN}END")
    lab.root("node1", "mount -t tmpfs -o ro,size=1m broken /home/ada/out")
    try:
        job = lab.said("sbatch --parsable again.sh")
        lab.requeued(job)
        asked = f"squeue --noheader --states=all --jobs={job} --format='%T %x'"
        labs.until(lambda: lab.said(asked) == "COMPLETED node1", 60, lambda: lab.said(f"{asked}; cat again.log"))
    finally:
        lab.root("node1", "umount /home/ada/out")

    log = lab.said("cat again.log; rm -r again.log again.sh out").splitlines()
    (wrong,) = (line for line in log if line.startswith("torchrun-slurm: not started: "))
    assert wrong == "torchrun-slurm: not started: node1: /home/ada/out cannot be written: Read-only file system"
    assert "torchrun-slurm: node1: the job is requeued without it, for turn 1 of at most 20" in log
    # Its own output and what the launcher says of it are two streams, which srun brings as they come.
    assert "ran on node2" in log
