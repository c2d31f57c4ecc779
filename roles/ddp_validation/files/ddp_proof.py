# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Prove that the ranks of a job train one model together, and name the guilty one where they do not.

Needs torch (2.1 or newer) and the standard library; started by ``python -m torch.distributed.run``, one process per
GPU. Where GPUs are real, the work goes over NCCL; without GPUs, or where they are only simulated (environment
``CLUSTER_SIMULATED=gpu``), over gloo on the CPU, and every record says so. Gloo always is the second, independent path.

Each rank keeps ``rank-<n>.json`` up to date from its first second, together with ``rank-<n>.log``, in a directory of
its own machine: nothing shared is assumed, and a rank that dies has still said where it was. Rank 0 writes
``result.json`` after the last barrier. Exit code 0: every step passed or did not apply; 3: a step failed; 1: the job
broke.

For tests only: ``DDP_PROOF_SABOTAGE`` makes rank 1 (or the rank in ``DDP_PROOF_SABOTAGE_RANK``) misbehave, as
``same_data``, ``wrong_value``, ``wrong_collective``, ``local_gradient``, ``half_gradient``, ``gradient``, ``exit``,
``sleep``, ``cpu_fallback``, ``no_result`` or ``blind_check``. A result made with it says so and is never accepted as a
proof.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import ctypes
import fcntl
import hashlib
import json
import math
import os
import platform
import re
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # SIGTERM is answered by a thread of ours (Record.listen), because the main thread may sit inside a collective. The
    # mask is inherited, so it must stand before torch starts its first thread.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 (the name everyone knows)
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VOCABULARY = 64
Outcome = dict[str, Any]
COMMUNICATION = re.compile(r"gloo|nccl|tim(ed|e) ?out|connection|peer|socket|store|broken pipe", re.IGNORECASE)
# Settings that are left over from debugging more often than wanted: they switch the fast paths off.
LEFTOVERS = ("NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_NET_GDR_DISABLE")


# ---- What a rank says about itself ----------------------------------------------------------------------------------


def write_json(path: Path, document: object) -> None:
    """Write atomically: a reader sees the old file or the new one, never half of it."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    with fresh.open("w", encoding="utf-8") as stream:
        json.dump(document, stream, indent=1)
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(path)


class Record:
    """The rank's own witness: where it is, whether it waits for others, how it ended.

    ``calls`` counts conversations with other ranks; ``waiting`` names the one in progress. Of ranks that stopped, those
    that were not waiting, or are fewer calls ahead than the rest, are the ones the others waited for.
    """

    def __init__(self, path: Path, **facts: object) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._data: dict[str, Any] = {"schema": "ddp_proof.rank/1", "state": "running", "step": "start", **facts}
        self._data |= {"calls": 0, "waiting": "", "error": None, "started": time.time()}
        self.update()

    def update(self, **facts: object) -> None:
        """Change facts and write the file; a rank that has ended says nothing more."""
        with self._lock:
            if self._data["state"] != "running":
                return
            self._data |= {**facts, "updated": time.time()}
            write_json(self._path, self._data)

    @contextlib.contextmanager
    def talking(self, what: str) -> Iterator[None]:
        """Mark a conversation with other ranks. After an exception the mark stays: it says where the rank was."""
        self._data["calls"] += 1
        self._data["waiting"] = what
        yield
        self._data["waiting"] = ""

    def fail(self, error: BaseException) -> None:
        """Record why this rank gives up: by its own fault, or because it could not talk to the others."""
        text = f"{type(error).__name__}: {error}"
        broken = type(error).__name__.startswith("Dist") or COMMUNICATION.search(text)
        kind = "communication" if self._data["waiting"] and broken else "own"
        self.update(state="failed", error={"kind": kind, "text": text[:2000]})

    def listen(self) -> None:
        """Keep the file fresh, and say goodbye on SIGTERM even while the main thread is stuck in a collective."""

        def watch() -> None:
            told = -1
            while True:
                if signal.sigtimedwait({signal.SIGTERM}, 1.0):
                    self.update(state="terminated")
                    os._exit(143)
                if told != self._data["calls"]:
                    told = self._data["calls"]
                    self.update()

        threading.Thread(target=watch, name="record", daemon=True).start()


# ---- The job as seen from one rank ----------------------------------------------------------------------------------


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


def outcome(verdict: str, observed: str, expected: str, **more: object) -> Outcome:
    """Return one step's outcome; ``guilty`` is a list of accusations, empty where there is nobody to name."""
    return {"verdict": verdict, "observed": observed, "expected": expected, "guilty": [], **more}


def alone(expected: str, **more: object) -> Outcome:
    """Return the outcome of a step that compares ranks, in a job of one rank."""
    return outcome("skip", "one rank alone: there is nothing to compare", expected, **more)


def odd_ones(values: Sequence[Hashable]) -> list[int]:
    """Return the positions that differ from the most common value; in a tie the value seen first counts as common."""
    if not values:
        return []
    usual = Counter(values).most_common(1)[0][0]
    return [position for position, value in enumerate(values) if value != usual]


def fingerprint(tensor: torch.Tensor) -> str:
    """Return a position-sensitive 64-bit hash of the tensor's raw bytes."""
    plain = tensor.detach().to("cpu").contiguous()
    size = plain.numel() * plain.element_size()
    raw = (ctypes.c_char * size).from_address(plain.data_ptr()) if size else b""
    return hashlib.blake2b(raw, digest_size=8).hexdigest()


def differing(job: Job, what: str, tensors: dict[str, torch.Tensor]) -> list[dict[str, Any]]:
    """Compare the bytes of each named tensor over all ranks; return those that differ, and on which ranks.

    Compared by gathering hashes and never by reducing the tensors: a reduction that is wrong alike everywhere would
    hide what it did. ``tie`` says that no majority exists, so that the bytes alone do not tell who is right.
    """
    mine = {name: fingerprint(tensor) for name, tensor in tensors.items()}
    if job.sabotage == "blind_check":
        mine = dict.fromkeys(mine, "0" * 16)
    everyone = job.gather(what, mine)
    found = []
    for name in tensors:
        hashes = [theirs[name] for theirs in everyone]
        if ranks := odd_ones(hashes):
            top = [count for _, count in Counter(hashes).most_common(2)]
            found.append({"parameter": name, "ranks": ranks, "tie": top[0] == top[1], "hashes": hashes})
    return found


# ---- A: identity ----------------------------------------------------------------------------------------------------


def gpu_identity(job: Job) -> dict[str, str]:
    """Return the UUID of this rank's GPU; for simulated ones, machine and number."""
    if job.device.type == "cuda":
        properties = torch.cuda.get_device_properties(job.device)
        uuid = str(getattr(properties, "uuid", ""))
        if not uuid:  # torch before 2.4 does not tell; nvidia-smi lists in PCI order, as CUDA_DEVICE_ORDER is set to
            listed = subprocess.run(
                ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True, check=True
            ).stdout.split()
            uuid = listed[torch.cuda.current_device()]
        return {"gpu": uuid if uuid.startswith("GPU-") else f"GPU-{uuid}", "gpu_name": properties.name}
    if "gpu" in job.simulated:
        granted = [number for number in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if number]
        own = f"simulated:{job.args.node}:{granted[job.local_rank]}" if job.local_rank < len(granted) else ""
        return {"gpu": own, "gpu_name": "simulated"}
    return {"gpu": "", "gpu_name": ""}


def identity(job: Job) -> Outcome:
    """A: who takes part. One rank per granted GPU, all GPUs distinct, the same software and settings everywhere."""
    settings = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(("NCCL_", "TORCH_", "GLOO_")) and not name.endswith(("SOCKET_IFNAME", "DEBUG_FILE"))
    }
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if job.device.type == "cuda" else "none"
    versions = {"python": platform.python_version(), "torch": torch.__version__, "nccl": nccl, "image": job.args.image}
    me = {
        "rank": job.rank,
        "local_rank": job.local_rank,
        "node": job.args.node,
        "device": job.device.type,
        "granted": job.args.granted,
        "versions": versions,
        "settings": settings,
        **gpu_identity(job),
    }
    job.record.update(identity=me)
    everyone = job.gather("identity", me)
    job.hosts = [who["node"] for who in everyone]
    wanted = dict(pair.split("=") for pair in job.args.expect.split(","))
    found = Counter(job.hosts)
    guilty = [
        {"rank": None, "node": node, "parameter": "", "detail": f"{found[node]} ranks, expected {wanted.get(node, 0)}"}
        for node in sorted(set(wanted) | set(found))
        if found[node] != int(wanted.get(node, 0))
    ]
    device = "cpu" if "gpu" in job.simulated else job.args.device
    guilty += [
        job.guilty(who["rank"], f"works on {who['device']}, not on {device}: torch sees no usable GPU in the container")
        for who in everyone
        if who["device"] != device
    ]
    guilty += [
        job.guilty(who["rank"], "no GPU was granted for it")
        for who in everyone
        if not who["gpu"] and (device == "cuda" or "gpu" in job.simulated)
    ]
    holders = Counter(who["gpu"] for who in everyone if who["gpu"])
    guilty += [job.guilty(who["rank"], f"shares {who['gpu']}") for who in everyone if holders[who["gpu"]] > 1]
    guilty += [
        job.guilty(who["rank"], f"uses {who['gpu']}, which Slurm did not grant to this job")
        for who in everyone
        if who["granted"] and who["gpu"] not in who["granted"].split(",")
    ]
    for subject in ("versions", "settings"):
        for rank in odd_ones([json.dumps(who[subject]) for who in everyone]):
            guilty.append(job.guilty(rank, f"{subject} differ: {json.dumps(everyone[rank][subject])}"))
    nodes = ", ".join(f"{node} {count}" for node, count in sorted(found.items()))
    leftovers = sorted({name for who in everyone for name in who["settings"] if name in LEFTOVERS})
    verdict = "fail" if guilty else "warn" if leftovers else "pass"
    simulated = "simulated " if "gpu" in job.simulated else ""
    said = (
        f"{job.world} ranks ({nodes}), {len(holders)} distinct {simulated}GPUs, torch {torch.__version__} on {device}"
    )
    return outcome(
        verdict,
        said + (f"; left from debugging: {', '.join(leftovers)}" if leftovers else ""),
        f"{sum(map(int, wanted.values()))} ranks on {len(wanted)} nodes, one {device} device each, alike",
        guilty=guilty,
        ranks=everyone,
    )


# ---- B: collectives -------------------------------------------------------------------------------------------------


def pattern(rank: int, count: int, dtype: torch.dtype, job: Job) -> torch.Tensor:
    """Return ``count`` integers that tell whose they are, small enough that every sum over all ranks is exact."""
    # bfloat16 holds integers up to 256 exactly, float32 up to 2**24; int64 goes where no float could follow.
    spread = {torch.bfloat16: max(2, 256 // job.world), torch.float32: 1000, torch.int64: 1 << 40}[dtype]
    step = 17 if dtype != torch.int64 else (1 << 33) + 1
    numbers = torch.arange(count, device=job.device, dtype=torch.int64)
    # One element in front, cut off again: the view is contiguous, and not aligned as a fresh tensor is.
    whole = torch.empty(count + 1, device=job.device, dtype=dtype)
    whole[1:] = ((numbers + step * rank) % spread).to(dtype)
    return whole[1:]


def contribution(rank: int, count: int, dtype: torch.dtype, job: Job) -> torch.Tensor:
    """Return what this rank sends; it is the pattern, unless a test made this rank's memory bad."""
    sent = pattern(rank, count, dtype, job)
    if job.sabotaged("wrong_value"):
        sent[count // 2] += 1
    return sent


def _all_reduce(job: Job, count: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    got = contribution(job.rank, count, dtype, job)
    if job.sabotaged("wrong_collective"):
        with job.record.talking(f"broadcast {dtype} {count}"):
            dist.broadcast(got, job.rank, group=job.data)
    dist.all_reduce(got, group=job.data)
    expected = torch.zeros_like(got)
    for rank in range(job.world):
        expected += pattern(rank, count, dtype, job)
    return got, expected


def _all_gather(job: Job, count: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    got = [torch.empty(count, device=job.device, dtype=dtype) for _ in range(job.world)]
    dist.all_gather(got, contribution(job.rank, count, dtype, job), group=job.data)
    return torch.cat(got), torch.cat([pattern(rank, count, dtype, job) for rank in range(job.world)])


def _reduce_scatter(job: Job, count: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    got = torch.empty(count, device=job.device, dtype=dtype)
    # torch 2.13 renames the operation, and warns of the old name.
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    scatter(got, contribution(job.rank, count * job.world, dtype, job), group=job.data)
    expected = torch.zeros_like(got)
    for rank in range(job.world):
        expected += pattern(rank, count * job.world, dtype, job)[job.rank * count : (job.rank + 1) * count]
    return got, expected


def _broadcast(job: Job, count: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    got = contribution(job.rank, count, dtype, job)
    dist.broadcast(got, job.world - 1, group=job.data)
    return got, pattern(job.world - 1, count, dtype, job)


def _all_to_all(job: Job, count: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    got = torch.empty(count * job.world, device=job.device, dtype=dtype)
    dist.all_to_all_single(got, contribution(job.rank, count * job.world, dtype, job), group=job.data)
    own = slice(job.rank * count, (job.rank + 1) * count)
    return got, torch.cat([pattern(rank, count * job.world, dtype, job)[own] for rank in range(job.world)])


def _send_receive(job: Job, count: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    behind, ahead = (job.rank - 1) % job.world, (job.rank + 1) % job.world
    got = torch.empty(count, device=job.device, dtype=dtype)
    sent = contribution(job.rank, count, dtype, job)
    pair = [dist.P2POp(dist.isend, sent, ahead, job.data), dist.P2POp(dist.irecv, got, behind, job.data)]
    for work in dist.batch_isend_irecv(pair):
        work.wait()
    return got, pattern(behind, count, dtype, job)


COLLECTIVES: dict[str, Callable[[Job, int, torch.dtype], tuple[torch.Tensor, torch.Tensor]]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "broadcast": _broadcast,
    "all_to_all": _all_to_all,
    "send_receive": _send_receive,
}


def who_sends_wrong(job: Job, count: int, dtype: torch.dtype) -> list[int]:
    """Let each rank broadcast its contribution alone; return the ranks whose numbers arrive wrong at others."""
    wrong = []
    for source in range(job.world):
        got = contribution(job.rank, count, dtype, job)
        with job.record.talking(f"search, from rank {source}"):
            dist.broadcast(got, source, group=job.data)
        if source != job.rank and not torch.equal(got, pattern(source, count, dtype, job)):
            wrong.append(source)
    return sorted({source for seen in job.gather("search", wrong) for source in seen})


def collectives(job: Job) -> Outcome:
    """B: every collective gives exactly the closed form, for odd and large sizes, in three number formats."""
    if job.world == 1:
        return alone("exactly the numbers that arithmetic gives")
    # On a GPU, one case holds up to 16 times its bytes; every rank must take the same size.
    room = torch.cuda.get_device_properties(job.device).total_memory // 32 if job.device.type == "cuda" else 1 << 40
    cases, missing, largest = 0, [], min(job.gather("largest case", min(room, job.args.largest_bytes)))
    dtypes = [torch.float32, torch.int64] + ([torch.bfloat16] if job.world <= 256 else [])
    for name, collective in COLLECTIVES.items():
        for dtype in dtypes:
            # What is gathered or scattered is world times as large: the bound holds for the whole.
            share = 1 if name in ("all_reduce", "broadcast", "send_receive") else job.world
            for count in (1, 7, 1023, max(1024, largest // dtype.itemsize // share)):
                with job.record.talking(f"{name} {dtype} {count}"):
                    try:
                        got, expected = collective(job, count, dtype)
                    except (NotImplementedError, RuntimeError) as error:
                        # A backend may lack an operation, on all ranks alike; it says so before it sends anything.
                        if "support" not in str(error):
                            raise
                        missing.append(f"{name} {dtype}")
                        break
                    bad = int((got != expected).sum())
                seen = job.gather(f"{name} compared", bad)
                cases += 1
                if any(seen):
                    what = f"{name} of {count} {str(dtype).removeprefix('torch.')}"
                    suspects = who_sends_wrong(job, count, dtype) or [rank for rank, n in enumerate(seen) if n]
                    return outcome(
                        "fail",
                        f"{what}: {sum(seen)} wrong numbers, on ranks {[rank for rank, n in enumerate(seen) if n]}",
                        "exactly the numbers that arithmetic gives",
                        guilty=[job.guilty(rank, f"wrong numbers in {what}") for rank in suspects],
                    )
    said = f"{cases} cases exact, up to {largest} bytes"
    return outcome(
        "pass",
        said + (f"; the backend lacks {', '.join(missing)}" if missing else ""),
        "exactly the numbers that arithmetic gives",
        cases=cases,
        not_supported=missing,
    )


# ---- The model and its task -----------------------------------------------------------------------------------------


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


# ---- C, D, E: start alike, average rightly, and a check that can fail -----------------------------------------------


def broadcast(job: Job) -> Outcome:
    """C: ranks that start with different weights have those of rank 0 once the model is wrapped in DDP."""
    torch.manual_seed(1000 + job.args.seed + job.rank)
    model = Transformer(job.args.width, job.args.layers, job.args.length).to(job.device)
    before = dict(model.named_parameters())
    different = differing(job, "weights before", before)
    of_rank_0 = job.gather("weights of rank 0", {name: fingerprint(p) for name, p in before.items()})[0]
    ids = [job.device.index] if job.device.type == "cuda" else None
    with job.record.talking("broadcast by DDP"):
        job.model = DistributedDataParallel(model, device_ids=ids, process_group=job.data)
    changed = {name for name, p in model.named_parameters() if fingerprint(p) != of_rank_0[name]}
    wrong = [(rank, names) for rank, names in enumerate(job.gather("weights after", sorted(changed))) if names]
    size = sum(p.numel() for p in model.parameters())
    expected = "different before, those of rank 0 after"
    if job.world == 1:
        return alone(expected, parameters=size)
    if not different:
        return outcome("unknown", "the weights were equal before DDP touched them", expected, parameters=size)
    if wrong:
        names = [job.guilty(rank, "weights are not those of rank 0", names[0]) for rank, names in wrong]
        return outcome("fail", f"{len(wrong)} ranks kept other weights", expected, guilty=names, parameters=size)
    said = f"{len(different)} of {len(before)} tensors differed, none does now"
    return outcome("pass", said, expected, parameters=size)


def local_gradient(job: Job) -> dict[str, torch.Tensor]:
    """Return the gradient of this rank's own data, without any synchronisation."""
    model = ddp(job)
    model.zero_grad(set_to_none=True)
    with model.no_sync():
        loss_of(model, own_batch(job, 0)).backward()
    return gradients_of(model)


def gradients(job: Job) -> Outcome:
    """D: DDP's gradient is bitwise one on all ranks, and is the mean that a second path computes in float64."""
    expected = "local gradients differ; DDP's is the same everywhere, and the float64 mean to 1e-5"
    if job.world == 1:
        return alone(expected)
    local = local_gradient(job)
    digests = job.gather("local gradients", fingerprint(torch.cat([g.flatten() for g in local.values()])))
    alike = [[rank for rank, digest in enumerate(digests) if digest == one] for one in dict.fromkeys(digests)]
    if same := [ranks for ranks in alike if len(ranks) > 1]:
        names = [job.guilty(rank, f"same local gradient as rank {ranks[0]}") for ranks in same for rank in ranks[1:]]
        return outcome("fail", f"ranks {same} have the same local gradient: same data", expected, guilty=names)
    model = ddp(job)
    model.zero_grad(set_to_none=True)
    with job.record.talking("backward with DDP"):
        (loss_of(model, own_batch(job, 0)) * (0.5 if job.sabotaged("half_gradient") else 1.0)).backward()
        synced = gradients_of(model)
    if job.sabotaged("local_gradient"):
        synced = local
    if different := differing(job, "gradients compared", synced):
        name, ranks = different[0]["parameter"], different[0]["ranks"]
        names = [job.guilty(rank, "its gradient differs from the others'", name) for rank in ranks]
        return outcome("fail", f"{len(different)} gradients differ between ranks", expected, guilty=names)
    errors: dict[str, float] = {}
    overlap, wrong, right, own = 0.0, 0.0, 0.0, 0.0
    for name, gradient in local.items():
        mean = gradient.double().to("cpu")
        with job.record.talking(f"reference of {name}"):
            dist.all_reduce(mean)
        mean /= job.world
        error = synced[name].double().to("cpu") - mean
        errors[name] = float(error.norm() / mean.norm().clamp_min(1e-30))
        mine = gradient.double().to("cpu")
        overlap, own = overlap + float((error * mine).sum()), own + float(mine.square().sum())
        wrong, right = wrong + float(error.square().sum()), right + float(mean.square().sum())
    total = math.sqrt(wrong / max(1e-60, right))
    worst = max(errors, key=errors.__getitem__)
    said = f"largest relative error {errors[worst]:.1e}, in {worst}"
    # A tensor whose true gradient is all but zero has no meaningful relative error of its own: judged within the whole.
    if errors[worst] < 1e-5 or total < 1e-6:
        return outcome("pass", said, expected, relative_error=errors[worst], parameter=worst)
    # Whose gradient is missing in the mean, or weighs too much: the one that the error points along.
    share = abs(overlap) / max(1e-30, math.sqrt(wrong * own))
    shares = job.gather("whose gradient is wrong", share)
    suspect = shares.index(max(shares))
    names = [job.guilty(suspect, f"its share of the mean is wrong (alignment {shares[suspect]:.2f})", worst)]
    return outcome("fail", said, expected, guilty=names, relative_error=errors[worst], parameter=worst)


def negative_control(job: Job) -> Outcome:
    """E: one step without synchronisation must be seen by the very check that later says "all equal"."""
    expected = "after one step without synchronisation the check reports divergence and names a parameter"
    if job.world == 1:
        return alone(expected)
    apart = copy.deepcopy(ddp(job).module)
    gradient = local_gradient(job)
    ddp(job).zero_grad(set_to_none=True)
    with torch.no_grad():
        for name, parameter in apart.named_parameters():
            parameter -= 0.1 * gradient[name]
    found = differing(job, "negative control", dict(apart.named_parameters()))
    if not found:
        return outcome("unknown", "the check saw no divergence: it cannot be trusted", expected)
    said = f"saw {found[0]['parameter']} and {len(found) - 1} others diverge"
    return outcome("pass", said, expected, seen=len(found))


# ---- Training, and F, G, H, J ---------------------------------------------------------------------------------------


class Clock:
    """Seconds between marks; on a GPU by events, because the CPU runs ahead."""

    def __init__(self, job: Job) -> None:
        self._cuda = job.device.type == "cuda"
        self._marks: list[Any] = []
        self.mark()

    def mark(self) -> None:
        """Note this moment."""
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """Return the time between each mark and the next."""
        pairs = list(zip(self._marks, self._marks[1:], strict=False))
        if self._cuda:
            torch.cuda.synchronize()
            return [start.elapsed_time(end) / 1000 for start, end in pairs]
        return [end - start for start, end in pairs]


def train(job: Job) -> None:
    """Train all ranks together, and keep what the next steps judge."""
    model, args = ddp(job), job.args
    job.reference = copy.deepcopy(model.module)
    optimiser = optimiser_for(job, model)
    clocks = []
    raw: list[torch.Tensor] = []
    for step in range(args.steps):
        if step == args.steps // 2 and job.sabotaged("exit"):
            os._exit(9)
        if step == args.steps // 2 and job.sabotaged("sleep"):
            time.sleep(10_000)
        clock = Clock(job)
        tokens = own_batch(job, step)
        clock.mark()
        model.zero_grad(set_to_none=True)
        with job.record.talking(f"training step {step}"):
            loss = loss_of(model, tokens)
            clock.mark()
            loss.backward()
            raw.append(loss.detach())
        clock.mark()
        if step == 7 and job.sabotaged("gradient"):
            next(p for p in model.parameters() if p.grad is not None).grad.view(-1)[5] += 1e-3  # type: ignore[union-attr]
        optimiser.step()
        clock.mark()
        clocks.append(clock)
        if step + 1 == args.reference_steps:
            job.snapshot = {name: p.detach().clone() for name, p in model.module.named_parameters()}
    job.losses = [float(loss) for loss in raw]
    for clock in clocks[min(args.warmup, args.steps // 2) :]:
        parts = clock.seconds()
        for name, seconds in zip(("data", "forward", "backward", "optimiser"), parts, strict=True):
            job.times.setdefault(name, []).append(seconds)
        job.times.setdefault("step", []).append(sum(parts))
    job.trained = dict(model.module.named_parameters())


def parameters(job: Job) -> Outcome:
    """F: after training, every parameter has the same bytes on every rank."""
    train(job)
    found = differing(job, "parameters compared", job.trained)
    whole = fingerprint(torch.cat([p.detach().flatten() for p in job.trained.values()]))
    job.record.update(parameters=whole)
    expected = f"every parameter the same on all ranks after {job.args.steps} steps"
    if found:
        first = found[0]
        detail = "parameters differ from those of the others"
        names = [job.guilty(rank, detail, first["parameter"]) for rank in first["ranks"]]
        said = f"{len(found)} of {len(job.trained)} tensors differ, first {first['parameter']}"
        return outcome("fail", said, expected, guilty=names, tie=first["tie"], digest=whole)
    return outcome("pass", f"{len(job.trained)} tensors equal on {job.world} ranks", expected, digest=whole)


def run_reference(job: Job) -> list[list[float]]:
    """Train the whole of each step's data in this one process; return each step's loss per rank."""
    model = job.reference
    if model is None:
        raise RuntimeError("the reference model is kept by the training")
    optimiser = optimiser_for(job, model)
    curve = []
    for step in range(job.args.reference_steps):
        optimiser.zero_grad(set_to_none=True)
        row = []
        for rank in range(job.world):
            loss = loss_of(model, batch(job, step, rank))
            (loss / job.world).backward()
            row.append(loss.detach())
        optimiser.step()
        curve.append([float(loss) for loss in row])
        if step % 5 == 4:  # the others wait no longer than this for a sign of life
            job.gather(f"reference step {step}", None)
    return curve


def reference(job: Job) -> Outcome:
    """G: many ranks did the work of one: the same global batches in one process give the same losses."""
    steps, expected = job.args.reference_steps, "losses of one process alone, to 1e-3"
    theirs = job.gather("losses", job.losses[:steps])
    if job.rank == 0:
        curve = run_reference(job)
    else:
        curve = []
        for step in range(4, steps, 5):
            job.gather(f"reference step {step}", None)
    curve = job.gather("reference losses", curve)[0]
    worst, where, first = 0.0, (0, 0), {}
    for step, row in enumerate(curve):
        for rank, alone in enumerate(row):
            error = abs(theirs[rank][step] - alone) / max(abs(alone), 1e-6)
            if not error <= worst:
                worst, where = error, (step, rank)
            if not error <= 1e-3:
                first.setdefault(rank, step)
    if job.steps["parameters"].get("tie") and (farther := settle_tie(job)):
        job.steps["parameters"]["guilty"] = farther
    said = f"largest difference {worst:.1e} in {steps} steps"
    mean = [statistics.fmean(row) for row in curve]
    if not first:
        return outcome("pass", said, expected, curve=mean, largest=worst)
    earliest = min(first.values())
    names = [
        job.guilty(rank, f"its loss leaves the reference at step {step}")
        for rank, step in sorted(first.items())
        if step == earliest
    ]
    said += f", on rank {where[1]} at step {where[0]}"
    return outcome("fail", said, expected, guilty=names, curve=mean, largest=worst)


def settle_tie(job: Job) -> list[dict[str, Any]]:
    """Where equally many ranks hold either version of a parameter, accuse the one farther from the reference."""
    first = job.steps["parameters"]["guilty"][0]["parameter"]
    true = dict(job.reference.named_parameters())[first].detach().to("cpu", copy=True) if job.reference else None
    if true is None or first not in job.snapshot:
        return []
    with job.record.talking(f"reference {first}"):
        dist.broadcast(true, 0)
    distances = job.gather("distance", float((job.snapshot[first].to("cpu") - true).norm()))
    far = [rank for rank, distance in enumerate(distances) if distance > 0.5 * max(distances)]
    return [job.guilty(rank, "parameters are farther from the one-process reference", first) for rank in far]


def learning(job: Job) -> Outcome:
    """H: the loss is finite, falls to less than half, and never leaps."""
    curves = job.gather("loss curves", job.losses)
    mean = [statistics.fmean(step) for step in zip(*curves, strict=True)]
    expected = "finite, last below half of first, no leap above 3 times the median before it"
    silly = [rank for rank, curve in enumerate(curves) if not all(map(math.isfinite, curve))]
    if silly:
        names = [job.guilty(rank, "its loss is not a number") for rank in silly]
        return outcome("fail", "a loss is not finite", expected, guilty=names, losses=mean)
    first, last = statistics.fmean(mean[:3]), statistics.fmean(mean[-5:])
    leaps = [n for n in range(5, len(mean)) if mean[n] > 3 * statistics.median(mean[max(0, n - 20) : n]) + 0.5]
    verdict = "pass" if last < 0.5 * first and not leaps else "fail"
    said = f"loss {first:.3f} to {last:.3f} in {len(mean)} steps" + (f", leaps at {leaps}" if leaps else "")
    return outcome(verdict, said, expected, losses=mean)


def speed(job: Job) -> Outcome:
    """J: how fast it went. Measured and reported; what is fast enough is the site's to say."""

    def quantiles(values: list[float]) -> dict[str, float]:
        ordered = sorted(values)
        return {"p50": statistics.median(ordered), "p95": ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]}

    mine = {name: quantiles(values) for name, values in job.times.items()}
    everyone = job.gather("speed", mine)
    slowest = max(rank["step"]["p50"] for rank in everyone)
    samples = job.world * job.args.batch / slowest
    tokens = samples * job.args.length
    size = sum(p.numel() for p in job.trained.values())
    flops, timed = 6 * size * tokens, len(job.times["step"])  # 6: two per weight forwards, four backwards
    said = f"{samples:.0f} samples/s, {tokens:.0f} tokens/s, {flops / 1e9:.1f} GFLOP/s, step {slowest:.4f} s"
    if job.simulated:
        said += f" (simulated: {', '.join(job.simulated)}; says nothing about the hardware)"
    figures = {"samples_per_s": samples, "tokens_per_s": tokens, "flops": flops, "timed_steps": timed}
    return outcome("pass", said, "measured", per_rank=everyone, **figures)


STEPS: dict[str, Callable[[Job], Outcome]] = {
    "identity": identity,
    "collectives": collectives,
    "broadcast": broadcast,
    "gradients": gradients,
    "negative_control": negative_control,
    "parameters": parameters,
    "reference": reference,
    "learning": learning,
    "speed": speed,
}


# ---- The program ----------------------------------------------------------------------------------------------------


def bind_gloo(master: str) -> None:
    """Bind gloo to the network card that leads to the other nodes.

    Left alone, gloo takes whatever address the machine's own name resolves to, and tells its peers to connect there;
    where that is 127.0.1.1 (Debian's habit) every connection between nodes fails.

    Raises:
        RuntimeError: the rendezvous host's name resolves to the loopback address although the job has several nodes.
    """
    if "GLOO_SOCKET_IFNAME" in os.environ or os.environ["WORLD_SIZE"] == os.environ["LOCAL_WORLD_SIZE"]:
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((master, 9))  # asks the routing table; nothing is sent
        own = probe.getsockname()[0]
        if own.startswith("127."):
            raise RuntimeError(f"{master} resolves to {own} here: other nodes cannot connect to it; mend /etc/hosts")
        for _, card in socket.if_nameindex():
            with contextlib.suppress(OSError):  # a card without an IPv4 address
                answer = fcntl.ioctl(probe.fileno(), 0x8915, struct.pack("256s", card.encode()[:15]))  # SIOCGIFADDR
                if socket.inet_ntoa(answer[20:24]) == own:
                    os.environ["GLOO_SOCKET_IFNAME"] = card
                    os.environ.setdefault("NCCL_SOCKET_IFNAME", card)
                    return


def choose_device(args: argparse.Namespace, local_rank: int, sabotage: str) -> torch.device:
    """Return this rank's device; a missing GPU becomes the CPU here, and a failure of the identity step."""
    if args.device == "cuda" and torch.cuda.is_available() and sabotage != "cpu_fallback":
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        return device
    torch.set_num_threads(1)
    return torch.device("cpu")


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line; what depends on the device has its default filled in."""
    parser = argparse.ArgumentParser(description="Prove that the ranks of this job train one model together.")
    parser.add_argument("--out", type=Path, required=True, help="directory of this machine for records and logs")
    parser.add_argument("--run-id", required=True, help="identifies the run; the result repeats it")
    parser.add_argument("--expect", required=True, help="ranks per node, as node1=2,node2=2")
    parser.add_argument("--device", choices=("cuda", "cpu"), required=True, help="what each rank must work on")
    parser.add_argument("--steps", type=int, help="training steps (cuda: 120, cpu: 30)")
    parser.add_argument("--reference-steps", type=int, default=50, help="steps repeated in one process")
    parser.add_argument("--warmup", type=int, help="steps that are not timed (cuda: 20, cpu: 10)")
    parser.add_argument("--batch", type=int, default=4, help="sequences per rank and step")
    parser.add_argument("--length", type=int, default=32, help="tokens per sequence")
    parser.add_argument("--width", type=int, help="width of the model (cuda: 768, cpu: 32)")
    parser.add_argument(
        "--layers", type=int, help="layers of the model (cuda: 14, about 100 M parameters; cpu: 1, about 18,000)"
    )
    parser.add_argument("--rate", type=float, help="learning rate")
    parser.add_argument("--largest-bytes", type=int, help="largest collective (cuda: 1 GiB, cpu: 1 MiB)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds a rank waits for the others")
    args = parser.parse_args(argv)
    cuda = args.device == "cuda"
    for name, (on_gpu, on_cpu) in {
        # Without a GPU speed proves nothing, and an emulated processor does some 10 MFLOP/s.
        "steps": (120, 30),
        "warmup": (20, 10),
        "width": (768, 32),
        "layers": (14, 1),
        "rate": (3e-4, 1e-2),
        "largest_bytes": (1 << 30, 1 << 20),
    }.items():
        if getattr(args, name) is None:
            setattr(args, name, on_gpu if cuda else on_cpu)
    args.reference_steps = min(args.reference_steps, args.steps)
    args.node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    args.image = os.environ.get("DDP_PROOF_IMAGE", "")
    args.granted = os.environ.get("DDP_PROOF_GRANTED", "")
    return args


def prove(job: Job) -> int:
    """Take all steps; return the exit code."""
    args, started = job.args, time.time()
    bind_gloo(os.environ["MASTER_ADDR"])
    patience = timedelta(seconds=args.timeout)
    with job.record.talking("rendezvous"):
        dist.init_process_group("gloo", timeout=patience)
    reached = True
    for name, step in STEPS.items():
        job.record.update(step=name)
        begun = time.perf_counter()
        done = step(job) if reached else outcome("unknown", "not reached: the ranks are not those expected", "")
        job.steps[name] = {**done, "seconds": round(time.perf_counter() - begun, 3)}
        job.record.update(outcomes={name: done["verdict"] for name, done in job.steps.items()})
        if name == "identity":
            reached = done["verdict"] != "fail"
            if reached:
                with job.record.talking("data path"):
                    job.data = dist.new_group(backend="nccl" if job.device.type == "cuda" else "gloo", timeout=patience)
    verdicts = {done["verdict"] for done in job.steps.values()}
    verdict = next((word for word in ("fail", "unknown") if word in verdicts), "pass")
    result = {
        "schema": "ddp_proof.result/1",
        "run_id": args.run_id,
        "job_id": os.environ.get("SLURM_JOB_ID", ""),
        "world": job.world,
        "backend": dist.get_backend(job.data) if job.data else "none",
        "device": job.device.type,
        "simulated": job.simulated,
        "sabotage": job.sabotage,
        "verdict": verdict,
        "steps": job.steps,
        "started": started,
        "seconds": round(time.time() - started, 3),
    }
    job.record.update(step="end")
    with job.record.talking("last barrier"):
        dist.barrier()
    job.record.update(state="done")
    if job.rank == 0 and job.sabotage != "no_result":
        write_json(args.out / "result.json", result)
        lines = [f"{name:17} {done['verdict']:8} {done['observed']}" for name, done in job.steps.items()]
        os.write(args.console, ("\n".join(lines) + "\n").encode())
    dist.barrier()  # nobody ends, and has the others stopped by torchrun, before the result is written
    dist.destroy_process_group()
    return 3 if verdict == "fail" else 0


def main() -> int:
    """Run this rank; its output goes to its own log, and what it knows of itself to its record."""
    args = arguments()
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    args.out.mkdir(parents=True, exist_ok=True)
    args.console = os.dup(1)  # kept for rank 0's summary
    log = os.open(args.out / f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    simulated = [word for word in os.environ.get("CLUSTER_SIMULATED", "").split(",") if word]
    if "gpu" in simulated:
        args.device = "cpu"
    sabotage = os.environ.get("DDP_PROOF_SABOTAGE", "")
    facts = {"run_id": args.run_id, "rank": rank, "local_rank": local_rank, "node": args.node, "pid": os.getpid()}
    record = Record(args.out / f"rank-{rank}.json", **facts, simulated=simulated, sabotage=sabotage)
    record.listen()
    try:
        device = choose_device(args, local_rank, sabotage)
        job = Job(args, record, rank, local_rank, int(os.environ["WORLD_SIZE"]), device, simulated, sabotage)
        code = prove(job)
    except Exception as error:  # whatever it was, the record must name it
        record.fail(error)
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # an orderly end could wait for ever for threads that talk to ranks which are gone
    return code


if __name__ == "__main__":
    sys.exit(main())
