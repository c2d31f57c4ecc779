# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""No Megatron-LM: a small GPT that takes the same arguments, so that a script for Megatron can be tried without it.

Workers are data parallel alone. Those of one tensor, pipeline or context group train the same copy, as theirs would
together. Arguments that it does not know are said, and have no effect.
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

# Loaded here, before there is a group: what optimizers load later would keep the group as a default of its functions.
import torch.distributed.nn
from torch import nn
from torch.nn.parallel import DistributedDataParallel

NUMBERS = {
    "num-layers": 4, "hidden-size": 64, "num-attention-heads": 4, "seq-length": 32, "micro-batch-size": 2,
    "global-batch-size": 16, "train-iters": 20, "log-interval": 10, "save-interval": 10, "vocab-size": 256,
    "tensor-model-parallel-size": 1, "pipeline-model-parallel-size": 1, "context-parallel-size": 1,
    "max-position-embeddings": 0, "exit-duration-in-mins": 0, "make-vocab-size-divisible-by": 1,
}  # fmt: skip
parser = argparse.ArgumentParser(allow_abbrev=False)
for name, value in NUMBERS.items():
    parser.add_argument(f"--{name}", type=int, default=value)
for name in ("save", "load"):
    parser.add_argument(f"--{name}", type=Path)
parser.add_argument("--lr", type=float, default=1e-3)
given, unknown = parser.parse_known_args()

begun = time.monotonic()
dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
group = given.tensor_model_parallel_size * given.pipeline_model_parallel_size * given.context_parallel_size
copies, mine = world // group, rank // group
if rank == 0:
    print(f"a small GPT in place of Megatron-LM: {copies} copies of {group} workers", flush=True)
    if unknown:
        print(f"without effect here: {' '.join(unknown)}", flush=True)
print(f"rank {rank} of {world} on {os.environ.get('SLURMD_NODENAME', os.uname().nodename)}, copy {mine}", flush=True)


class Gpt(nn.Module):
    """Embeddings, layers that look back only, and a guess of the next token."""

    def __init__(self) -> None:
        super().__init__()
        size = given.hidden_size
        self.token = nn.Embedding(given.vocab_size, size)
        self.place = nn.Embedding(given.seq_length, size)
        layer = nn.TransformerEncoderLayer(size, given.num_attention_heads, 4 * size, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, given.num_layers, enable_nested_tensor=False)
        self.guess = nn.Linear(size, given.vocab_size)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return for tokens (batch, length) what may come next (batch, length, vocabulary)."""
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        seen = self.token(tokens) + self.place(torch.arange(length, device=tokens.device))
        return self.guess(self.layers(seen, mask=mask, is_causal=True))


torch.manual_seed(0)
model = Gpt().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=given.lr)
iteration, newest = 0, given.load / "latest.pt" if given.load else None
if newest and newest.exists():
    saved = torch.load(newest, map_location=device)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    iteration = saved["iteration"]
    if rank == 0:
        print(f"resumed at iteration {iteration}", flush=True)
parallel = DistributedDataParallel(model)
parts = given.global_batch_size // (given.micro_batch_size * copies)


def save() -> None:
    """Write the checkpoint as a whole or not at all."""
    if rank == 0 and given.save:
        given.save.mkdir(parents=True, exist_ok=True)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iteration": iteration}
        torch.save(state, given.save / "latest.new")
        (given.save / "latest.new").replace(given.save / "latest.pt")


while iteration < given.train_iters:
    of_step = torch.Generator().manual_seed(1000 + iteration)
    first = torch.randint(given.vocab_size, (given.global_batch_size, 1), generator=of_step)
    text = ((first + torch.arange(given.seq_length + 1)) % given.vocab_size).to(device)
    text = text[mine * parts * given.micro_batch_size :][: parts * given.micro_batch_size]
    total = torch.zeros((), device=device)
    optimizer.zero_grad()
    for part in text.split(given.micro_batch_size):
        loss = nn.functional.cross_entropy(parallel(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten()) / parts
        loss.backward()
        total += loss.detach()
    optimizer.step()
    iteration += 1
    dist.all_reduce(total)
    if rank == 0 and iteration % given.log_interval == 0:
        print(f"iteration {iteration}/{given.train_iters} lm loss {total.item() / world:.6f}", flush=True)
    late = torch.tensor(int(0 < given.exit_duration_in_mins < (time.monotonic() - begun) / 60), device=device)
    dist.broadcast(late, 0)
    if late or iteration % given.save_interval == 0 or iteration == given.train_iters:
        save()
    if late:
        break
# What holds the group keeps its threads until Python is gone, and gloo's may then end a worker by SIGABRT.
del parallel
dist.destroy_process_group()
