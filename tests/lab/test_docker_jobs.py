"""docker in a job: the template of a Megatron training runs as it was printed, and so does what people do beside it.

Everything as an ordinary user, in no group of an engine's. GPUs are device files; the image's nvidia-smi counts them.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import labs
import pytest

HERE = Path(__file__).parent
SEEDS = HERE.parent / "unit/seed_scripts"

#: What a site changes in the template: paths, partition, excluded names and sizes; its program is a stand-in.
CHANGED = {
    "#SBATCH --partition=TEST1 ": "#SBATCH --partition=batch ",
    "#SBATCH --exclude=g[01-86,88-89,91] ": "##SBATCH --exclude=none ",
    "#SBATCH --gres=gpu:8 ": "#SBATCH --gres=gpu:2 ",
    "#SBATCH --cpus-per-task=64 ": "#SBATCH --cpus-per-task=1 ",
    "#SBATCH --mem=1000G ": "#SBATCH --mem=500M ",
    'host_workspace="/home/test/test06/qzk/"': 'host_workspace="/home/ada/megatron/"',
    "--vocab-size 151936": "--vocab-size 128",
    "--num-layers 28": "--num-layers 2",
    "--hidden-size 1536": "--hidden-size 32",
    "--num-attention-heads 16": "--num-attention-heads 4",
    "--seq-length 4096": "--seq-length 16",
    "--max-position-embeddings 4096": "--max-position-embeddings 16",
    "--micro-batch-size 4": "--micro-batch-size 2",
    "--global-batch-size 512": "--global-batch-size 16",
    "--lr 1e-5": "--lr 1e-2",
    "--train-iters 500000": "--train-iters 5",
    "--save-interval 1000": "--save-interval 5",
}

NVIDIA_SMI = '#!/bin/sh\nfor gpu in /dev/nvidia[0-9]*; do echo "NVIDIA Simulated"; done\n'
DOCKERFILE = "FROM {base}\nCOPY nvidia-smi /usr/local/bin/\nLABEL of=ada\n"


def job(lab: labs.Lab, script: str, *options: str, user: str = "ada") -> subprocess.CompletedProcess[str]:
    """Run a script in a job of a user's, and wait for its end."""
    words = ["srun", "--immediate=60", "--time=5", *options, "bash", "-c", script]
    return lab.ssh("head", f"cd megatron && {shlex.join(words)}", user=user)


@pytest.fixture(scope="module")
def built(provisioned_lab: labs.Lab) -> Iterator[labs.Lab]:
    """A lab whose user has built the template's image in a job on one node, and has the stand-in of its program."""
    lab = provisioned_lab
    lab.said("mkdir -p megatron")
    base = lab.said("srun --nodelist=node1 podman images --quiet --filter readonly=true").split()[0]
    for name, text in {
        "pretrain_gpt.py": (HERE / "jobs/pretrain_gpt.py").read_text(encoding="utf-8"),
        "nvidia-smi": NVIDIA_SMI,
        "Dockerfile": DOCKERFILE.format(base=base),
    }.items():
        lab.said(f"cat >megatron/{name} <<'END'\n{text}END")
    lab.said("chmod +x megatron/nvidia-smi")
    done = job(lab, "docker build -t megatron_pytorch:latest .", "--nodelist=node1")
    assert done.returncode == 0, done.stdout + done.stderr
    yield lab
    lab.said("rm -rf megatron .local/share/clusterctl")


def test_the_template_of_a_megatron_training_runs_with_its_own_options(built: labs.Lab) -> None:
    text = (SEEDS / "megatron_docker.slurm").read_text(encoding="utf-8")
    for printed, here in CHANGED.items():
        assert text.count(printed) == 1, printed
        text = text.replace(printed, here)
    built.said(f"cat >megatron/megatron_docker.slurm <<'END'\n{text}END")

    submit = "cd megatron && sbatch --wait megatron_docker.slurm; cat output_*.log error_*.log"
    done = built.ssh("head", submit, user="ada")

    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    for node in (0, 1):
        assert f"Node Info: Rank {node}/2 | Master: node1:6420 | GPUs: 2" in said
    for rank in range(4):
        assert f"rank {rank}/4 on node{rank // 2 + 1}, local rank {rank % 2}" in said
    assert ", from one process " in said
    assert said.count("--privileged gives no more than this job has") == 2
    built.said("test -f megatron/data/Distill-Qwen-1.5B-OpenR1-Math-94k/checkpoints/iter_0000005.pt")
