"""Stands in for Megatron-LM's pretrain_gpt.py: a small GPT that takes the same arguments, on CPUs with gloo.

It trains data-parallel on tokens that follow from their number, so that its losses must be those of one process, which
rank 0 works out at the end; it keeps checkpoints where --save says, and a log where --tensorboard-dir says.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


def arguments() -> argparse.Namespace:
    """Return the arguments of the template's script; what a small model has no use for is read, too."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in (
        "vocab-size", "make-vocab-size-divisible-by", "num-layers", "hidden-size", "num-attention-heads", "seq-length",
        "max-position-embeddings", "micro-batch-size", "global-batch-size", "train-iters", "log-interval",
        "save-interval", "eval-interval", "eval-iters",
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("lr", "weight-decay", "clip-grad"):
        parser.add_argument(f"--{name}", type=float, required=True)
    parser.add_argument("--lr-decay-style", choices=("cosine",), required=True)
    parser.add_argument("--untie-embeddings-and-output-weights", action="store_true")
    for name in ("save", "load", "tensorboard-dir", "tokenizer-model"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--data-path", nargs=2, required=True)
    return parser.parse_args()


class Gpt(nn.Module):
    """Tokens in, the next token's logits out."""

    def __init__(self, given: argparse.Namespace) -> None:
        super().__init__()
        self.tokens = nn.Embedding(given.vocab_size, given.hidden_size)
        self.places = nn.Embedding(given.max_position_embeddings, given.hidden_size)
        layer = nn.TransformerEncoderLayer(
            given.hidden_size, given.num_attention_heads, 4 * given.hidden_size, dropout=0.0, batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, given.num_layers, enable_nested_tensor=False)
        self.out = nn.Linear(given.hidden_size, given.vocab_size)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        return self.out(self.layers(self.tokens(tokens) + self.places(torch.arange(length)), mask=mask))


def batch(given: argparse.Namespace, step: int, first: int, count: int) -> torch.Tensor:
    """Return some sequences of a step's global batch: a slope of its own each."""
    numbers = torch.arange(first, first + count)[:, None] + step * given.global_batch_size
    return (numbers + torch.arange(given.seq_length + 1) * (1 + numbers % 3)) % given.vocab_size


def train(given: argparse.Namespace, rank: int, world: int) -> list[float]:
    """Train, and return the loss of each step over its whole batch."""
    torch.manual_seed(0)
    model = Gpt(given)
    wrapped = nn.parallel.DistributedDataParallel(model) if world > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.lr, weight_decay=given.weight_decay)
    share, losses = given.global_batch_size // world, []
    for step in range(given.train_iters):
        tokens = batch(given, step, rank * share, share)
        logits = wrapped(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), given.clip_grad)
        optimizer.step()
        mean = loss.detach().clone()
        if world > 1:
            dist.all_reduce(mean)
        losses.append(mean.item() / world)
        if rank == 0 and world > 1 and (step + 1) % given.save_interval == 0:
            given.save.mkdir(parents=True, exist_ok=True)
            torch.save(model.state_dict(), given.save / f"iter_{step + 1:07}.pt")
    return losses


def main() -> None:
    """Train as one of the workers that torchrun starts."""
    given = arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank}/{world} on {os.environ['SLURMD_NODENAME']}, local rank {os.environ['LOCAL_RANK']}", flush=True)
    losses = train(given, rank, world)
    if rank == 0:
        given.tensorboard_dir.mkdir(parents=True, exist_ok=True)
        (given.tensorboard_dir / "losses").write_text("\n".join(map(str, losses)))
        worst = max(abs(one - other) for one, other in zip(losses, train(given, 0, 1), strict=True))
        print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}, from one process {worst:.0e}", flush=True)
        assert worst < 1e-4, "the workers have not trained one model"
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
