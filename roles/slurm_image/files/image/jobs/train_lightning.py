# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""A small training with Lightning, to be replaced by yours: train_lightning.py [EPOCHS [CHECKPOINT]]."""

import os
import sys
from pathlib import Path

import lightning
import stop_file
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

world, workers = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


class Small(lightning.LightningModule):
    """Your model."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 8))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """Return the loss; the mean over all workers is told."""
        loss = nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        mean = self.all_gather(loss.detach()).mean().item()
        if self.global_rank == 0 and (self.global_step + 1) % 10 == 0:
            print(f"step {self.global_step + 1} loss {mean:.6f}", flush=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class Stop(lightning.Callback):
    """Saves after each epoch, and ends all workers at the same step: Lightning goes on between epochs."""

    def on_train_epoch_end(self, trainer: lightning.Trainer, *_: object) -> None:
        """Save, and look for the file."""
        if checkpoint:
            trainer.save_checkpoint(f"{checkpoint}.new")
            if trainer.global_rank == 0:
                Path(f"{checkpoint}.new").replace(checkpoint)
        if stop_file.asked(trainer.strategy.root_device):
            trainer.should_stop = True
            if trainer.global_rank == 0:
                print(f"stopped at step {trainer.global_step}", flush=True)


print(f"rank {os.environ.get('RANK', '0')} of {world} on {os.environ.get('SLURMD_NODENAME')}", flush=True)
torch.manual_seed(0)
epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 2
asked = torch.randn(32 * 10, 64)
dataset = TensorDataset(asked, asked[:, :8])
# Lightning's own would mix them: leave that out for training that counts.
sampler = DistributedSampler(dataset, world, int(os.environ.get("RANK", "0")), shuffle=False)
loader = DataLoader(dataset, batch_size=32 // world, sampler=sampler)
trainer = lightning.Trainer(
    max_epochs=epochs, devices=workers, num_nodes=world // workers, strategy="ddp" if world > 1 else "auto",
    accelerator="gpu" if torch.cuda.is_available() else "cpu", use_distributed_sampler=False, callbacks=[Stop()],
    enable_progress_bar=False, logger=False, enable_checkpointing=False, enable_model_summary=False,
)  # fmt: skip
checkpoint = sys.argv[2] if len(sys.argv) > 2 else ""
if checkpoint and Path(checkpoint).exists() and trainer.global_rank == 0:
    print("resumed", flush=True)
trainer.fit(Small(), loader, ckpt_path=checkpoint if checkpoint and Path(checkpoint).exists() else None)
