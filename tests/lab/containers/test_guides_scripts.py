"""Scripts of public guides run as they are printed, for an ordinary user; what is changed of each stands here.

That is paths, image, program, and sizes. NVIDIA's image, its GPUs and nvidia-smi are stood in for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import labs
import pytest

PRINTED = Path(__file__).parents[2] / "unit/seed_scripts"

#: A guide's image, on the site's own: it has PyTorch, and no package index is asked.
IMAGE = {
    "FROM nvcr.io/nvidia/pytorch:23.10-py3": "FROM {base}\nCOPY nvidia-smi /usr/local/bin/",
    "torch==2.1.0+cu121 -f https://download.pytorch.org/whl/torch_stable.html": "torch --no-index",
}
NVIDIA_SMI = '#!/bin/sh\nfor gpu in /dev/nvidia[0-9]*; do echo "NVIDIA Simulated"; done\n'

#: Of its program what needs a GPU is taken out; what the guide leaves to the reader is a small training.
PROGRAM = {
    "import torch.distributed as dist\n": (
        "import os, sys\nimport torch\nimport torch.distributed as dist\nimport torch.nn as nn\n"
        "from torch.utils.data import DistributedSampler\n\ndataset = torch.arange(32.0).reshape(8, 4) / 32\n"
    ),
    'backend="nccl"': 'backend="gloo"',
    "    torch.cuda.set_device(local_rank)\n": "    torch.manual_seed(0)\n    model = nn.Linear(4, 1)\n",
    "model, device_ids=[local_rank]": "model",
}
TRAINS = """
    model(dataset[list(sampler)]).square().mean().backward()
    torch.manual_seed(0)
    alone = nn.Linear(4, 1)
    alone(dataset).square().mean().backward()
    same = torch.allclose(model.module.weight.grad, alone.weight.grad)
    # In one piece, which print() does not do where Python does not buffer.
    sys.stdout.write(f"rank {dist.get_rank()} of {dist.get_world_size()} local {local_rank}: {same}\\n")
    dist.destroy_process_group()

main()
"""
JOB = {
    "--ntasks-per-node=4 ": "--ntasks-per-node=2 ",
    "--gres=gpu:4 ": "--gres=gpu:2 ",
    "--cpus-per-task=8 ": "--cpus-per-task=1 ",
    "/datasets:/datasets": "$HOME/guides:/datasets",
    "python train.py": "python /datasets/train.py",
}

#: A platform's: what its users type, and the script that this starts.
PLACE = "/mnt/zhaoyinghao/train_lora_llama3"
ENTRYPOINT = {
    f'"{PLACE}"': '"/home/ada/guides"',
    f"bash {PLACE}": "bash /home/ada/guides",
    "sleep 10000\n": "sleep 1\n",
}
LAUNCH = {"your_script.py": "$OUTPUT_DIR/train.py"}


def changed(name: str, changes: Mapping[str, str]) -> str:
    """Return a printed text with what a reader changes in it, each in one place."""
    text = (PRINTED / name).read_text(encoding="utf-8")
    for printed, here in changes.items():
        assert text.count(printed) == 1, printed
        text = text.replace(printed, here)
    return text


@pytest.fixture(scope="module")
def guides(provisioned_lab: labs.Lab) -> Iterator[labs.Lab]:
    """A lab whose user has the scripts in ~/guides, and has built their image in a job, as the guide has it."""
    lab = provisioned_lab
    base = lab.said("srun podman images --quiet --filter readonly=true").split()[0]
    texts = {
        "Dockerfile": changed("pytorch.Dockerfile", IMAGE).format(base=base),
        "nvidia-smi": NVIDIA_SMI,
        "train.py": changed("train_ddp.py", PROGRAM) + TRAINS,
        "ddp_train.slurm": changed("ddp_train.slurm", JOB),
        "entrypoint.sh": changed("platform_entrypoint.sh", ENTRYPOINT),
        "launch_ddp.sh": changed("launch_ddp.sh", LAUNCH),
    }
    lab.said("mkdir -p guides")
    for name, text in texts.items():
        lab.said(f"cat >guides/{name} <<'END OF FILE'\n{text}END OF FILE")
    lab.said("cd guides && chmod +x nvidia-smi && srun --mem=500M docker build -t pytorch-dist:1.0 . 2>&1")
    yield lab
    lab.said("rm -rf guides .local/share/clusterctl")


def test_the_guides_job_trains_with_a_task_for_each_gpu_in_its_own_image(guides: labs.Lab) -> None:
    said = guides.said("cd guides; sbatch --quiet --wait -o job.log ddp_train.slurm; cat job.log")

    assert sorted(said.splitlines()) == [f"rank {rank} of 4 local {rank % 2}: True" for rank in range(4)]


#: The platform says how many nodes there are and which this one is, and nothing of tasks.
PLATFORM = (
    "srun --nodes=2 --ntasks-per-node=1 --gpus-per-node=2 --mem=500M --container-image=pytorch-dist:1.0"
    " --container-mounts=$HOME/guides --container-workdir=$HOME/guides torchrun-slurm --env kubeflow bash entrypoint.sh"
)


# For every day --env kubeflow is that of test_torchrun_slurm.
@pytest.mark.night
def test_a_platforms_script_trains_with_its_own_idea_of_a_world(guides: labs.Lab) -> None:
    # Its program is torchrun's, of which Slurm knows one task a node.
    guides.said("sed -i 's/SLURM_LOCALID/LOCAL_RANK/; s/SLURM_NTASKS/WORLD_SIZE/' guides/train.py")

    done = guides.ssh("head", PLATFORM, user="ada")

    ranks = sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))
    assert ranks == [f"rank {rank} of 4 local {rank % 2}: True" for rank in range(4)], done.stdout + done.stderr
    assert done.returncode == 0
    assert guides.said("grep -c ^rank guides/launch_ddp.log") != "0"
