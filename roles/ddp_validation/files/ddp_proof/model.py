# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""The model and its task: small, and learnable within seconds."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the name everyone knows)
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_proof.job import Job

VOCABULARY = 64


class Block(nn.Module):
    """One pre-norm transformer block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        query, key, value = self.mix(self.before(x)).view(shape).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.think(self.after(x))


class Transformer(nn.Module):
    """A small decoder: tokens (batch, length) to logits (batch, length, VOCABULARY)."""

    def __init__(self, width: int, layers: int, length: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, max(1, width // 64)) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def batch(job: Job, step: int, rank: int) -> torch.Tensor:
    """Return the tokens (batch, length + 1) that this rank sees at this step; each follows from the one before."""
    generator = torch.Generator().manual_seed(job.args.seed * 1_000_003 + step * 10_007 + rank)
    tokens = torch.randint(0, VOCABULARY, (job.args.batch, job.args.length + 1), generator=generator)
    for place in range(1, job.args.length + 1):
        tokens[:, place] = (tokens[:, place - 1] * 5 + 3) % VOCABULARY
    return tokens.to(job.device)


def own_batch(job: Job, step: int) -> torch.Tensor:
    """Return this rank's tokens; with ``same_data`` the sampler is forgotten and all see those of rank 0."""
    return batch(job, step, 0 if job.sabotage == "same_data" else job.rank)


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy of each next token, in nats."""
    logits = model(tokens[:, :-1])
    return F.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))


def optimiser_for(job: Job, model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimiser; a large epsilon keeps rounding noise in near-zero gradients from being blown up."""
    return torch.optim.AdamW(model.parameters(), lr=job.args.rate, eps=1e-5)


def gradients_of(model: DistributedDataParallel) -> dict[str, torch.Tensor]:
    """Return a copy of every gradient by its parameter's name."""
    return {name: p.grad.detach().clone() for name, p in model.module.named_parameters() if p.grad is not None}


def ddp(job: Job) -> DistributedDataParallel:
    """Return the wrapped model, which the broadcast step made."""
    if job.model is None:
        raise RuntimeError("the model does not exist before the broadcast step")
    return job.model
