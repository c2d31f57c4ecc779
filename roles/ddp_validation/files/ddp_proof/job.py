# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""The job as seen from one rank, and how ranks compare what each of them has."""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_proof.record import Record
from ddp_proof.suspects import odd_ones

Outcome = dict[str, Any]


@dataclass
class Job:
    """Everything the steps share. ``control`` is gloo; ``data`` is what training uses, NCCL on GPUs."""

    args: argparse.Namespace
    record: Record
    rank: int
    local_rank: int
    world: int
    device: torch.device
    simulated: list[str]
    sabotage: str
    data: dist.ProcessGroup | None = None
    hosts: list[str] = field(default_factory=list)
    model: DistributedDataParallel | None = None
    reference: nn.Module | None = None
    snapshot: dict[str, torch.Tensor] = field(default_factory=dict)
    trained: dict[str, torch.Tensor] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    times: dict[str, list[float]] = field(default_factory=dict)
    steps: dict[str, Outcome] = field(default_factory=dict)

    def sabotaged(self, name: str) -> bool:
        """True where a test asked this rank to misbehave so."""
        return self.sabotage == name and self.rank == int(os.environ.get("DDP_PROOF_SABOTAGE_RANK", "1"))

    def gather(self, what: str, value: object) -> list[Any]:
        """Return every rank's value, in rank order, over the control path."""
        everyone: list[Any] = [None] * self.world
        with self.record.talking(what):
            dist.all_gather_object(everyone, value)
        return everyone

    def guilty(self, rank: int, detail: str, parameter: str = "") -> dict[str, Any]:
        """Return one accusation: rank, its machine, and what speaks against it."""
        return {"rank": rank, "node": self.hosts[rank], "parameter": parameter, "detail": detail}

    def split(self, ranks: Sequence[int], what: str) -> str:
        """Return who differs where nobody can tell who is wrong: machines, or ranks of one machine."""
        nodes = sorted({self.hosts[rank] for rank in ranks})
        if len(nodes) > 1:
            who = f"{', '.join(nodes[:-1][:7])} and {nodes[-1]}"
            return f"{who} differ in {what}; {'two' if len(nodes) == 2 else 'these'} machines cannot tell who is wrong"
        who = f"ranks {', '.join(map(str, ranks[:-1][:7]))} and {ranks[-1]} on {nodes[0]}"
        return f"{who} differ in {what}; they cannot tell who is wrong"

    def settle(self) -> None:
        """Wait until the device has done what it was given: NCCL only queues, so that until then nothing is known."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def outcome(verdict: str, observed: str, expected: str, **more: object) -> Outcome:
    """Return one step's outcome; ``guilty`` is a list of accusations, empty where nobody can be named."""
    return {"verdict": verdict, "observed": observed, "expected": expected, "guilty": [], **more}


def alone(expected: str, **more: object) -> Outcome:
    """Return the outcome of a step that compares ranks, in a job of one rank."""
    return outcome("skip", "one rank alone: there is nothing to compare", expected, **more)


def fingerprint(tensor: torch.Tensor) -> str:
    """Return a position-sensitive 64-bit hash of the tensor's raw bytes."""
    plain = tensor.detach().to("cpu").contiguous()
    size = plain.numel() * plain.element_size()
    raw = (ctypes.c_char * size).from_address(plain.data_ptr()) if size else b""
    return hashlib.blake2b(raw, digest_size=8).hexdigest()


def differing(job: Job, what: str, tensors: dict[str, torch.Tensor]) -> list[dict[str, Any]]:
    """Compare the bytes of each named tensor over all ranks; return those that differ, and on which ranks.

    Compared by gathering hashes and never by reducing the tensors: a reduction that is wrong alike everywhere would
    hide what it did. ``tie`` says that no majority exists; then all ranks are returned, and nobody is guilty.
    """
    mine = {name: fingerprint(tensor) for name, tensor in tensors.items()}
    if job.sabotage == "blind_check":
        mine = dict.fromkeys(mine, "0" * 16)
    everyone = job.gather(what, mine)
    found = []
    for name in tensors:
        hashes = [theirs[name] for theirs in everyone]
        ranks, tie = odd_ones(hashes)
        if ranks:
            found.append({"parameter": name, "ranks": ranks, "tie": tie, "hashes": hashes})
    return found
