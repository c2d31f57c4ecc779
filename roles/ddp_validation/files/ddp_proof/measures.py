# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""H, J: the model learns, and how fast it went."""

from __future__ import annotations

import math
import statistics

from ddp_proof.job import Job, Outcome, outcome


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
