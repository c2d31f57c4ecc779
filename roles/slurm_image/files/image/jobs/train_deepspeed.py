# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""A small training with DeepSpeed, to be replaced by yours.

    train_deepspeed.py [--zero 0|1|2|3] [--pipeline STAGES] [--steps 20] [--batch 32]
                       [--checkpoint DIRECTORY [--every 20]]

Started by torchrun-slurm --env deepspeed, or by deepspeed itself. Data follow from the step's number alone.
"""

import argparse
import os

import deepspeed
import stop_file
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", "0")))
parser.add_argument("--zero", type=int, default=2)
parser.add_argument("--pipeline", type=int, default=0)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--checkpoint", default="")
parser.add_argument("--every", type=int, default=20, help="steps between checkpoints: what a node's failure costs")
parser.add_argument("--batch", type=int, default=32, help="of all workers together")
given = parser.parse_args()

cuda = torch.cuda.is_available()
if not cuda:
    # Compiled at the start otherwise, which small images cannot do; it is for speed between processors alone.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
deepspeed.init_distributed(dist_backend="nccl" if cuda else "gloo")
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
print(f"rank {rank} of {world} on {os.environ.get('SLURMD_NODENAME', os.uname().nodename)}", flush=True)

torch.manual_seed(0)
layers = [nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 8)]
settings = {
    "train_batch_size": given.batch,
    "steps_per_print": 1_000_000,
    "zero_allow_untested_optimizer": True,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
}


def data(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a step's batch, of all workers."""
    of_step = torch.Generator().manual_seed(1000 + number)
    asked, noise = torch.randn(given.batch, 64, generator=of_step), torch.randn(given.batch, 8, generator=of_step)
    return asked, noise * 0.1 + asked[:, :8]


def resumed(engine: deepspeed.DeepSpeedEngine) -> int:
    """Return the step from which to go on."""
    _, state = engine.load_checkpoint(given.checkpoint) if given.checkpoint else (None, None)
    step = state["step"] if state else 0
    if step and rank == 0:
        print(f"resumed at step {step}", flush=True)
    return step


def stopped(engine: deepspeed.DeepSpeedEngine, step: int) -> bool:
    """Save every so many steps and where it is to end early, and tell whether it is."""
    stop = stop_file.asked(engine.device)
    if given.checkpoint and (stop or step % given.every == 0 or step == given.steps):
        # Two by turns: DeepSpeed's file "latest" names the one that is whole.
        tag = f"turn{step // given.every % 2}" if step % given.every == 0 else "stopped"
        engine.save_checkpoint(given.checkpoint, tag=tag, client_state={"step": step})
    if stop and rank == 0:
        print(f"stopped at step {step}", flush=True)
    return stop


def say(step: int, loss: float) -> None:
    """Tell the loss of all workers' data."""
    if rank == 0:
        print(f"step {step} loss {loss:.6f}", flush=True)


def by_zero() -> None:
    """Parameters, gradients and the optimizer's state are shared out among the workers."""
    settings["zero_optimization"] = {"stage": given.zero}
    settings["train_micro_batch_size_per_gpu"] = given.batch // world
    model = nn.Sequential(*layers)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
    print(f"shared out: ZeRO stage {engine.zero_optimization_stage()}", flush=True)
    own = slice(rank * given.batch // world, (rank + 1) * given.batch // world)
    for step in range(resumed(engine), given.steps):
        asked, answer = (part[own].to(engine.device) for part in data(step))
        loss = nn.functional.mse_loss(engine(asked), answer)
        engine.backward(loss)
        engine.step()
        mean = loss.detach().clone()
        torch.distributed.all_reduce(mean)
        say(step + 1, mean.item() / world)
        if stopped(engine, step + 1):
            break


def by_pipeline() -> None:
    """Layers are shared out; parts of a batch go through them one after the other."""
    from deepspeed.pipe import PipelineModule

    parts, copies = 2, world // given.pipeline
    settings["gradient_accumulation_steps"] = parts
    settings["train_micro_batch_size_per_gpu"] = size = given.batch // copies // parts
    net = PipelineModule(layers=layers, loss_fn=nn.functional.mse_loss, num_stages=given.pipeline)
    own = [one for one in net.parameters() if one.requires_grad]
    engine, *_ = deepspeed.initialize(model=net, model_parameters=own, config=settings)
    print(f"shared out: {engine.num_stages} pipeline stages", flush=True)
    first = engine.grid.get_data_parallel_rank() * size * parts
    for step in range(resumed(engine), given.steps):
        asked, answer = data(step)
        places = (slice(first + part * size, first + (part + 1) * size) for part in range(parts))
        say(step + 1, float(engine.train_batch(data_iter=iter([(asked[one], answer[one]) for one in places]))))
        if stopped(engine, step + 1):
            break


by_pipeline() if given.pipeline else by_zero()
torch.distributed.barrier()
torch.distributed.destroy_process_group()
