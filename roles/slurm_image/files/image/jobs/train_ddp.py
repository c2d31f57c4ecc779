# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""A small training with DistributedDataParallel, to be replaced by yours; what is around the model stays.

    train_ddp.py [--steps 100] [--checkpoint FILE] [--batch 32] [--tensorboard DIRECTORY]

It is told by RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT what it is; without them it is alone. Data
follow from the step's number alone, so that a run that was interrupted ends with the loss of one that was not, on as
many or as few workers. A file named by STOP_FILE has all workers save and end at the same step.
"""

import argparse
import contextlib
import os
import time
from pathlib import Path

import stop_file
import torch
import torch.distributed as dist

# Loaded here, before there is a group: what optimizers load later would keep the group as a default of its functions.
import torch.distributed.nn
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument(
    "--checkpoint", type=Path, metavar="FILE", help="written and resumed from; where it is gone, FILE.old before it is"
)
parser.add_argument("--every", type=int, default=20, help="steps between checkpoints")
parser.add_argument("--tensorboard", default="", help="where the loss is written for TensorBoard")
parser.add_argument("--batch", type=int, default=32, help="of all workers together")
given = parser.parse_args()

rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
cuda = torch.cuda.is_available()
# Without torchrun's workers each may see one GPU only.
local = int(os.environ.get("LOCAL_RANK", "0")) % max(1, torch.cuda.device_count())
device = torch.device("cuda", local) if cuda else torch.device("cpu")
if cuda:
    torch.cuda.set_device(device)
if world > 1:
    dist.init_process_group("nccl" if cuda else "gloo", init_method="env://")
if given.batch % world:
    raise SystemExit(f"--batch {given.batch} cannot be shared by {world} workers")
print(f"rank {rank} of {world} on {os.environ.get('SLURMD_NODENAME', os.uname().nodename)}, {device}", flush=True)

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 8)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
step = 0
# The last two are kept; a job that ends between two renames has left the older one.
kept = [given.checkpoint, given.checkpoint.with_name(given.checkpoint.name + ".old")] if given.checkpoint else []
last = next((path for path in kept if path.exists()), None)
if last:
    saved = torch.load(last, map_location=device)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
    if rank == 0:
        print(f"resumed at step {step}, saved by {saved.get('world', '?')} workers, now {world}", flush=True)
parallel = DistributedDataParallel(model, device_ids=[local] if cuda else None) if world > 1 else model


def data(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return this worker's part of a step's batch."""
    of_step = torch.Generator().manual_seed(1000 + number)
    given_, wanted = torch.randn(given.batch, 64, generator=of_step), torch.randn(given.batch, 8, generator=of_step)
    own = slice(rank * given.batch // world, (rank + 1) * given.batch // world)
    return given_[own].to(device), (wanted * 0.1 + given_[:, :8])[own].to(device)


def mean(value: torch.Tensor) -> float:
    """Return the mean of all workers' values."""
    if world > 1:
        dist.all_reduce(value)
    return value.item() / world


def save() -> None:
    """Write the checkpoint as a whole or not at all."""
    if rank == 0 and given.checkpoint:
        given.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        fresh = given.checkpoint.with_name(given.checkpoint.name + ".new")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "world": world}
        with fresh.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())  # else a machine that loses its power may have the name without the content
        if given.checkpoint.exists():
            given.checkpoint.replace(kept[1])
        fresh.replace(given.checkpoint)


if mean(torch.tensor(step, dtype=torch.float64, device=device)) != step:
    raise SystemExit(f"rank {rank} begins at step {step}, others elsewhere: is --checkpoint one file on all nodes?")

writer = None
if given.tensorboard and rank == 0:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(given.tensorboard)
told, begun = step, time.monotonic()
while step < given.steps:
    asked, answer = data(step)
    loss = nn.functional.mse_loss(parallel(asked), answer)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    all_loss = mean(loss.detach().clone())
    if rank == 0 and (step % 10 == 0 or step == given.steps):
        print(f"step {step} loss {all_loss:.6f}", flush=True)
        if "JOB_TRAINING" in os.environ:
            # What the cluster's monitoring shows of this job.
            speed = (step - told) * given.batch / (time.monotonic() - begun)
            figures = f"step={step}\nsamples_per_second={speed:.6g}\nloss={all_loss:.6g}\n"
            with contextlib.suppress(OSError):
                Path(os.environ["JOB_TRAINING"]).write_text(figures)
            told, begun = step, time.monotonic()
        if writer:
            writer.add_scalar("loss", all_loss, step)
    stop = stop_file.asked(device)
    if stop or step % given.every == 0 or step == given.steps:
        save()
    if stop:
        if rank == 0:
            print(f"stopped at step {step}", flush=True)
        break
if writer:
    writer.close()
if world > 1:
    # The first worker may still be saving, and Slurm ends a step soon after the first of its tasks that ends (--wait).
    dist.barrier(device_ids=[local] if cuda else None)
    # What holds the group keeps its threads until Python is gone, and gloo's may then end a worker by SIGABRT.
    del parallel
    dist.destroy_process_group()
