# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""G: many ranks did the work of one."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
import torch.distributed as dist

from ddp_proof.job import Job, Outcome, outcome
from ddp_proof.model import batch, loss_of, optimiser_for


def alive(job: Job, done: bool) -> bool:
    """Let rank 0 say that it still works, or that it has done; return what it said.

    The reference costs one process as much as all ranks together have done, and the others wait for it: without a sign
    of life, longer than they wait for anything.
    """
    flag = torch.tensor([int(done)])
    with job.record.talking("reference of one process"):
        dist.broadcast(flag, 0)
    return bool(flag.item())


def run_reference(job: Job) -> list[list[float]]:
    """Train the whole of each step's data in this one process; return each step's loss per rank."""
    model = job.reference
    if model is None:
        raise RuntimeError("the reference model is kept by the training")
    optimiser = optimiser_for(job, model)
    curve, told = [], time.monotonic()
    for step in range(job.args.reference_steps):
        optimiser.zero_grad(set_to_none=True)
        row = []
        for rank in range(job.world):
            loss = loss_of(model, batch(job, step, rank))
            (loss / job.world).backward()
            row.append(loss.detach())
            if time.monotonic() - told > job.args.timeout / 10:
                job.settle()
                alive(job, False)
                told = time.monotonic()
        optimiser.step()
        curve.append([float(loss) for loss in row])
    alive(job, True)
    return curve


def reference(job: Job) -> Outcome:
    """G: many ranks did the work of one: the same global batches in one process give the same losses."""
    steps, expected = job.args.reference_steps, "losses of one process alone, to 1e-3"
    theirs = job.gather("losses", job.losses[:steps])
    curve: list[list[float]] = []
    if job.rank == 0:
        curve = run_reference(job)
    else:
        while not alive(job, False):
            pass
    curve = job.gather("reference losses", curve)[0]
    worst, where = 0.0, (0, 0)
    first: dict[int, int] = {}
    for step, row in enumerate(curve):
        for rank, alone in enumerate(row):
            error = abs(theirs[rank][step] - alone) / max(abs(alone), 1e-6)
            if not error <= worst:
                worst, where = error, (step, rank)
            if not error <= 1e-3:
                first.setdefault(rank, step)
    if (tied := job.steps["parameters"].get("tie")) and (farther := settle_tie(job, tied)):
        job.steps["parameters"] |= {"guilty": farther, "split": ""}
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


def settle_tie(job: Job, name: str) -> list[dict[str, Any]]:
    """Where no majority holds one version of a parameter, accuse those who are farther from the reference."""
    model = job.reference
    true = dict(model.named_parameters())[name].detach().to("cpu", copy=True) if model else None
    if true is None or name not in job.snapshot:
        return []
    with job.record.talking(f"reference {name}"):
        dist.broadcast(true, 0)
    distances = job.gather("distance", float((job.snapshot[name].to("cpu") - true).norm()))
    far = [rank for rank, distance in enumerate(distances) if distance > 0.5 * max(distances)]
    if len(far) == job.world:  # all are: the reference does not tell either
        return []
    return [job.guilty(rank, "parameters are farther from the one-process reference", name) for rank in far]
