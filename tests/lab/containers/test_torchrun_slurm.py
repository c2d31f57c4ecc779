"""torchrun-slurm starts an ordinary user's training on two nodes, with real Slurm and PyTorch."""

from __future__ import annotations

import re

import labs
import pytest
from trainings import CONTAINER, TRAIN, met


# Slurm starts the workers. Torchrun itself is in tests/core, --env kubeflow below.
def test_workers_of_two_nodes_meet(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    lab.said(f"cat >train.py <<'END'{TRAIN}END")

    done = lab.ssh(
        "head",
        f"srun --nodes=2 --ntasks-per-node=2 sh -c '{CONTAINER} torchrun-slurm --env torch train.py'",
        user="ada",
    )

    met(lab, done)
    lab.said("rm train.py")


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
        labs.until(lambda: lab.state(job) == "COMPLETED", lambda: lab.said("squeue --me; cat again.log"))
    finally:
        lab.root("node1", "umount /home/ada/out")

    log = lab.said("cat again.log; rm -r again.log again.sh out").splitlines()
    (wrong,) = (line for line in log if line.startswith("torchrun-slurm: not started: "))
    assert wrong == "torchrun-slurm: not started: node1: /home/ada/out cannot be written: Read-only file system"
    assert "torchrun-slurm: node1: the job is requeued without it, for turn 1 of at most 20" in log
    # Its own output and what the launcher says of it are two streams, which srun brings as they come.
    assert "ran on node2" in log


#: A job whose step is on both nodes; what begins with SBATCH and the words after torchrun-slurm are each test's own.
STEP = r"""#!/bin/sh
#SBATCH --nodes=2 --ntasks-per-node=1 --mem=600M --time=5 --output=step.log --open-mode=truncate
srun --kill-on-bad-exit=1 --container-image=$(podman images --quiet --filter readonly=true | head -n 1) \
    --container-mounts=$HOME --container-workdir=$HOME torchrun-slurm """


def ended(lab: labs.Lab, words: str, before: str = "", step: str = STEP) -> tuple[str, list[str]]:
    """Submit such a job and wait for it; return its state and exit code, and its log without Slurm's own lines."""
    lab.said(f"cat >step.sh <<'END'\n{step}{words}\nEND")
    job = lab.ssh("head", f"{before} sbatch --parsable --wait step.sh", user="ada").stdout.strip()
    asked = f"sacct --noheader --parsable2 --allocations --jobs={job} --format=State,ExitCode"
    # Accounting is told a moment later than whoever waits.
    labs.until(lambda: re.search(r"\|\d", lab.said(f"{asked},End")), lambda: lab.said(asked))
    state, log = lab.said(asked), lab.said("cat step.log; rm step.sh step.log")
    return state, [line for line in log.splitlines() if not re.match(r"srun: |slurmstepd(-\S+)?: ", line)]


FAILS = r"""
import torch, torch.distributed as dist
dist.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
if dist.get_rank() == 1:
    raise ValueError("no label 1001")
dist.all_reduce(one)
"""


def test_the_exception_of_the_rank_that_failed_first_is_the_logs_end(provisioned_lab: labs.Lab) -> None:
    provisioned_lab.said(f"cat >fails.py <<'END'{FAILS}END")

    state, log = ended(provisioned_lab, "fails.py")

    provisioned_lab.said("rm fails.py")
    assert state == "FAILED|1:0"
    # PyTorch says which rank it is before each line.
    assert log[-1].removeprefix("[rank1]: ") == "ValueError: no label 1001", log
    (begun,) = (number for number, line in enumerate(log) if line.startswith("torchrun-slurm: first to fail: "))
    assert log[begun].startswith("torchrun-slurm: first to fail: rank 1 on node2, ")
    assert log[begun + 1] == "Traceback (most recent call last):"
    assert len(log) - begun < 10


#: What is broken on which machine and how it is mended, variables of the job, what is said of it.
CHECKED = {
    "the network of training": (
        "ip link add ib0 type bridge && ip addr add 10.99.0.$(hostname | tr -dc 0-9)/24 dev ib0 && ip link set ib0 up",
        "ip link del ib0",
        "NCCL_SOCKET_IFNAME=ib0",
        r"node\d: cannot reach node\d by ib0 \(NCCL_SOCKET_IFNAME=ib0\)\. A firewall",
    ),
    "a firewall": (
        # Slurm's own ports are below; sshd and munge are not asked.
        "[ $(hostname) = node1 ] || iptables -I INPUT -s FIRST -p tcp --syn --dport 10000:65535 -j DROP",
        "[ $(hostname) = node1 ] || iptables -D INPUT -s FIRST -p tcp --syn --dport 10000:65535 -j DROP",
        "",
        r"node1: cannot reach node2\. A firewall",
    ),
}


@pytest.mark.parametrize(
    "broken",
    # For every day the one that needs a look at another network than Slurm's.
    [name if name == "the network of training" else pytest.param(name, marks=pytest.mark.night) for name in CHECKED],
)
def test_what_the_check_finds_ends_the_job_with_75_and_names_the_node(provisioned_lab: labs.Lab, broken: str) -> None:
    lab = provisioned_lab
    breaking, repairing, variables, says = CHECKED[broken]
    lab.said("mkdir -p out")
    first = lab.address("node1")
    try:
        for node in ("node1", "node2"):
            lab.root(node, breaking.replace("FIRST", first))
        state, log = ended(lab, "--output-dir $HOME/out --env kubeflow echo ran", before=variables)
    finally:
        for node in ("node1", "node2"):
            lab.root(node, repairing.replace("FIRST", first))
        lab.said("rmdir out")

    assert state == "FAILED|75:0", log
    assert [line for line in log if re.match(f"torchrun-slurm: not started: {says}", line)], log
    assert "ran" not in log
    (took,) = (line for line in log if line.startswith("torchrun-slurm: checked in "))
    assert took.endswith(" s: exit code 75")


def test_a_node_that_does_not_reach_the_first_ends_the_step_also_where_srun_does_not(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    # By ports above, node2 tells srun, which runs on node1, of its tasks.
    closed = f"INPUT -s {lab.address('node2')} -p tcp --syn --dport 10000:19999 -j DROP"
    lab.root("node1", f"iptables -I {closed}")
    try:
        state, log = ended(lab, "--env kubeflow echo ran", step=STEP.replace("--kill-on-bad-exit=1 ", ""))
    finally:
        lab.root("node1", f"iptables -D {closed}")

    assert state == "FAILED|75:0", log
    (told,) = (line for line in log if line.startswith("torchrun-slurm: not started: "))
    assert told.startswith("torchrun-slurm: not started: node2: node1 cannot be reached at "), log
