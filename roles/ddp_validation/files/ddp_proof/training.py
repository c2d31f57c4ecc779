# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""F: the ranks train together, and hold one model afterwards."""

from __future__ import annotations

import contextlib
import copy
import os
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from ddp_proof.job import Job, Outcome, alone, differing, fingerprint, outcome
from ddp_proof.model import ddp, loss_of, optimiser_for, own_batch


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


def tell(job: Job, step: int, loss: float, seconds: float) -> None:
    """Let monitoring know how far the training is, by the file that Slurm's Prolog has made for the job."""
    if job.rank == 0 and (path := os.environ.get("JOB_TRAINING")):
        speed = job.world * job.args.batch / seconds
        with contextlib.suppress(OSError):  # it is no part of the proof
            Path(path).write_text(f"step={step}\nsamples_per_second={speed}\nloss={loss}\n", encoding="ascii")


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
        # NCCL only queues what it is given, so that there a step's number would say nothing about where a rank is.
        here = "training" if job.device.type == "cuda" else f"training step {step + 1} of {args.steps}"
        with job.record.talking(here):
            loss = loss_of(model, tokens)
            clock.mark()
            loss.backward()
            raw.append(loss.detach())
        clock.mark()
        if step == 7 and job.sabotaged("gradient"):
            next(p for p in model.parameters() if p.grad is not None).grad.view(-1)[5] += 1e-3
        optimiser.step()
        clock.mark()
        clocks.append(clock)
        if job.device.type == "cpu":  # NCCL would have to end what was queued
            tell(job, step + 1, float(loss), sum(clock.seconds()))
        if step + 1 == args.reference_steps:
            job.snapshot = {name: p.detach().clone() for name, p in model.module.named_parameters()}
    with job.record.talking("training"):
        job.settle()
    job.losses = [float(loss) for loss in raw]
    for clock in clocks[min(args.warmup, args.steps // 2) :]:
        parts = clock.seconds()
        for name, seconds in zip(("data", "forward", "backward", "optimiser"), parts, strict=True):
            job.times.setdefault(name, []).append(seconds)
        job.times.setdefault("step", []).append(sum(parts))
    tell(job, args.steps, job.losses[-1], statistics.median(job.times["step"]))
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
        said = f"{len(found)} of {len(job.trained)} tensors differ, first {first['parameter']}"
        if first["tie"]:
            told = job.split(first["ranks"], f"parameter {first['parameter']}")
            return outcome("fail", said, expected, split=told, tie=first["parameter"], digest=whole)
        detail = "parameters differ from those of the others"
        names = [job.guilty(rank, detail, first["parameter"]) for rank in first["ranks"]]
        return outcome("fail", said, expected, guilty=names, digest=whole)
    if job.world == 1:
        return alone(expected, digest=whole)
    return outcome("pass", f"{len(job.trained)} tensors equal on {job.world} ranks", expected, digest=whole)
