# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""B: communication delivers the numbers that were sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ddp_proof.job import Job, Outcome, alone, outcome
from ddp_proof.suspects import explain, lacking


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


def received(got: torch.Tensor, job: Job) -> torch.Tensor:
    """Return what arrived here, unless a test made this rank's memory bad."""
    if job.sabotaged("wrong_receive"):
        got[0] += 1
    return got


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


def search(job: Job, count: int, dtype: torch.dtype) -> tuple[list[int], list[tuple[int, int]]]:
    """Let each rank broadcast its contribution alone; return as :func:`explain` does."""
    wrong = []
    for source in range(job.world):
        got = contribution(job.rank, count, dtype, job)
        with job.record.talking(f"search, from rank {source}"):
            dist.broadcast(got, source, group=job.data)
            if source != job.rank and not torch.equal(received(got, job), pattern(source, count, dtype, job)):
                wrong.append(source)
    return explain(job.gather("search", wrong))


def blame(job: Job, what: str, wrong_at: list[int], count: int, dtype: torch.dtype) -> dict[str, Any]:
    """Return ``guilty`` and ``split`` for wrong numbers that were seen on these ranks."""
    bad, pairs = search(job, count, dtype)
    if not bad and not pairs and len(wrong_at) == 1 and job.world > 2:
        bad = wrong_at  # nothing is wrong any more, and only one rank has seen it
    if bad:
        return {"guilty": [job.guilty(rank, f"wrong numbers in {what}") for rank in bad]}
    if pairs:
        ranks = sorted({rank for pair in pairs for rank in pair})
        shown = ", ".join(f"from rank {source} to rank {target}" for source, target in pairs[:5])
        return {"split": f"{job.split(ranks, 'what one sends and the other receives')} (wrong {shown})"}
    return {"split": "a second look found nothing wrong: the fault comes and goes"}


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
                        # Gloo may lack an operation, on all ranks alike; it says so before it sends anything.
                        if job.device.type == "cuda" or not lacking(str(error)):
                            raise
                        missing.append(f"{name} {dtype}")
                        break
                    bad = int((received(got, job) != expected).sum())
                seen = job.gather(f"{name} compared", bad)
                cases += 1
                if any(seen):
                    what = f"{name} of {count} {str(dtype).removeprefix('torch.')}"
                    wrong_at = [rank for rank, n in enumerate(seen) if n]
                    return outcome(
                        "fail",
                        f"{what}: {sum(seen)} wrong numbers, on ranks {wrong_at[:16]}",
                        "exactly the numbers that arithmetic gives",
                        **blame(job, what, wrong_at, count, dtype),
                    )
    said = f"{cases} cases exact, up to {largest} bytes"
    return outcome(
        "pass",
        said + (f"; the backend lacks {', '.join(missing)}" if missing else ""),
        "exactly the numbers that arithmetic gives",
        cases=cases,
        not_supported=missing,
    )
