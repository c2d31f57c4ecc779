"""Stands in for LLaMA-Factory's src/train_bash.py: takes the arguments that the guide prints, and trains a few layers.

As transformers does, it fills in what ds_config.json leaves to "auto". There is no model and no data set: data follow
from the step's number alone.
"""

import argparse
import json
import os
from pathlib import Path

import deepspeed
import torch
from torch import nn

parser = argparse.ArgumentParser()
for name in ("--stage", "--model_name_or_path", "--dataset", "--template", "--finetuning_type", "--lora_target"):
    parser.add_argument(name, required=True)
for name in ("--deepspeed", "--output_dir", "--lr_scheduler_type"):
    parser.add_argument(name, required=True)
for name in ("--per_device_train_batch_size", "--gradient_accumulation_steps", "--logging_steps", "--save_steps"):
    parser.add_argument(name, type=int, required=True)
for name in ("--learning_rate", "--num_train_epochs"):
    parser.add_argument(name, type=float, required=True)
for name in ("--do_train", "--overwrite_cache", "--overwrite_output_dir", "--plot_loss", "--fp16"):
    parser.add_argument(name, action="store_true")
parser.add_argument("--local_rank", type=int, default=0)
given = parser.parse_args()

#: Samples of the whole data set; with the printed sizes on two GPUs, ten steps are a quarter of it.
SAMPLES = 1280
#: The last layer's parameters are so much smaller than they act, so that the printed learning rate is felt.
SCALE = 1000.0

# Compiled at the start otherwise, which small images cannot do; it is for speed between processors alone.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
deepspeed.init_distributed(dist_backend="gloo")
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
print(f"rank {rank} of {world} on {os.environ.get('SLURMD_NODENAME', '')}", flush=True)

size, parts = given.per_device_train_batch_size, given.gradient_accumulation_steps
batch = size * parts * world
auto = {
    "train_batch_size": batch,
    "train_micro_batch_size_per_gpu": size,
    "gradient_accumulation_steps": parts,
    "gradient_clipping": 1.0,
}
settings = json.loads(Path(given.deepspeed).read_text(encoding="utf-8"))
settings.update({name: value for name, value in auto.items() if settings[name] == "auto"})
settings["fp16"]["enabled"] = given.fp16 and torch.cuda.is_available()
if given.fp16 and not settings["fp16"]["enabled"] and rank == 0:
    print("there is no half precision on processors: --fp16 has no effect", flush=True)
steps = int(SAMPLES * given.num_train_epochs / batch)

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 8, bias=False))
with torch.no_grad():
    net[-1].weight /= SCALE
optimizer = torch.optim.AdamW(net.parameters(), lr=given.learning_rate)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
engine, *_ = deepspeed.initialize(model=net, optimizer=optimizer, lr_scheduler=schedule, config=settings)
for step in range(1, steps + 1):
    of_step = torch.Generator().manual_seed(1000 + step)
    asked = torch.randn(batch, 64, generator=of_step)
    mean = torch.zeros(1)
    for part in range(parts):
        own = asked[(part * world + rank) * size :][:size]
        loss = nn.functional.mse_loss(engine(own) * SCALE, own[:, :8])
        engine.backward(loss)
        engine.step()
        mean += loss.detach() / parts
    torch.distributed.all_reduce(mean)
    if rank == 0 and (step == 1 or step % given.logging_steps == 0):
        print(f"step {step} loss {mean.item() / world:.6f}", flush=True)
Path(given.output_dir).mkdir(exist_ok=True)
torch.distributed.barrier()
torch.distributed.destroy_process_group()
