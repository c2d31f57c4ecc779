# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""A small training with Hugging Face's accelerate, to be replaced: train_accelerate.py [STEPS [CHECKPOINT]].

It saves every 20 steps, so that what a node's failure costs is no more than those, and where it is told to end.
"""

import os
import shutil
import sys
from pathlib import Path

import stop_file
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=not torch.cuda.is_available())
rank, world = accelerator.process_index, accelerator.num_processes
print(f"rank {rank} of {world} on {os.environ.get('SLURMD_NODENAME')}", flush=True)
torch.manual_seed(0)
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20
asked = torch.randn(32 * steps, 64)
loader = DataLoader(TensorDataset(asked, asked[:, :8]), batch_size=32 // world)
model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 8))
model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2), loader)
checkpoint, first, every = Path(sys.argv[2]) if len(sys.argv) > 2 else None, 0, 20
if checkpoint and (checkpoint / "latest").exists():
    first = int((checkpoint / "latest").read_text())
    accelerator.load_state(str(checkpoint / str(first)))
    accelerator.print(f"resumed at step {first}", flush=True)


def save(step: int) -> None:
    """Write a checkpoint of many files; it counts once it is whole, and only then the one before goes."""
    if not checkpoint:
        return
    accelerator.save_state(str(checkpoint / str(step)))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        (checkpoint / "latest.new").write_text(str(step))
        (checkpoint / "latest.new").replace(checkpoint / "latest")
        for older in checkpoint.iterdir():
            if older.is_dir() and older.name != str(step):
                shutil.rmtree(older)


for step, (batch, answer) in enumerate(accelerator.skip_first_batches(loader, first), first + 1):
    loss = nn.functional.mse_loss(model(batch), answer)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
    mean = accelerator.reduce(loss.detach(), "mean").item()
    if step % 10 == 0:
        accelerator.print(f"step {step} loss {mean:.6f}", flush=True)
    stop = stop_file.asked(accelerator.device)
    if stop or step % every == 0:
        save(step)
    if stop:
        accelerator.print(f"stopped at step {step}", flush=True)
        break
accelerator.end_training()
