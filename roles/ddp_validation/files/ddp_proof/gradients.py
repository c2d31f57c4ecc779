# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""C, D, E: ranks start alike, average rightly, and the check that says so can fail."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_proof.job import Job, Outcome, alone, differing, fingerprint, outcome
from ddp_proof.model import Transformer, ddp, gradients_of, loss_of, own_batch
from ddp_proof.suspects import largest, outstanding


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
        job.settle()
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
    found = gradients_of(model)
    if job.sabotaged("nan_gradient"):
        found[list(found)[-1]].view(-1)[0] = math.nan
    return found


def not_finite(gradient: dict[str, torch.Tensor]) -> str:
    """Return the first tensor that holds a value which is no number; an empty text where none does."""
    return next((name for name, values in gradient.items() if not bool(torch.isfinite(values).all())), "")


def gradients(job: Job) -> Outcome:
    """D: DDP's gradient is bitwise one on all ranks, and is the mean that a second path computes in float64."""
    expected = "local gradients differ; DDP's is the same everywhere, and the float64 mean to 1e-5"
    if job.world == 1:
        return alone(expected)
    local = local_gradient(job)
    silly = job.gather("finite gradients", not_finite(local))
    if any(silly):
        names = [job.guilty(rank, "its own gradient is not a number", name) for rank, name in enumerate(silly) if name]
        return outcome("fail", f"a gradient is not finite, on {len(names)} ranks", expected, guilty=names)
    digests = job.gather("local gradients", fingerprint(torch.cat([g.flatten() for g in local.values()])))
    alike = [[rank for rank, digest in enumerate(digests) if digest == one] for one in dict.fromkeys(digests)]
    if same := [ranks for ranks in alike if len(ranks) > 1]:
        # None of them is to blame: each has the data that its sampler gave it.
        told = "; ".join(f"ranks {', '.join(map(str, ranks[:8]))} have the same local gradient" for ranks in same[:4])
        return outcome("fail", f"{told}: same data", expected, split=told)
    model = ddp(job)
    model.zero_grad(set_to_none=True)
    with job.record.talking("backward with DDP"):
        (loss_of(model, own_batch(job, 0)) * (0.5 if job.sabotaged("half_gradient") else 1.0)).backward()
        synced = gradients_of(model)
        job.settle()
    if job.sabotaged("local_gradient"):
        synced = local
    if different := differing(job, "gradients compared", synced):
        name, ranks = different[0]["parameter"], different[0]["ranks"]
        said = f"{len(different)} gradients differ between ranks, first {name}"
        if different[0]["tie"]:
            return outcome("fail", said, expected, split=job.split(ranks, f"the averaged gradient of {name}"))
        names = [job.guilty(rank, "its gradient differs from the others'", name) for rank in ranks]
        return outcome("fail", said, expected, guilty=names)
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
    worst = largest(errors)
    said = f"largest relative error {errors[worst]:.1e}, in {worst}"
    figures = {"relative_error": errors[worst], "parameter": worst}
    if not all(map(math.isfinite, errors.values())):
        told = f"the mean of {worst} is not a number, although every rank's own gradient is"
        return outcome("fail", said, expected, split=told, parameter=worst)
    # A tensor whose true gradient is all but zero has no meaningful relative error of its own: judged within the whole.
    if errors[worst] < 1e-5 or total < 1e-6:
        return outcome("pass", said, expected, **figures)
    return outcome(
        "fail", said, expected, **share_of(job, worst, abs(overlap) / max(1e-30, math.sqrt(wrong * own))), **figures
    )


def share_of(job: Job, parameter: str, alignment: float) -> dict[str, Any]:
    """Blame the rank whose gradient is missing in the mean, or weighs too much: the error points along it.

    ``alignment`` is that of this rank's gradient with the error, 1 where the error is nothing else.
    """
    shares = job.gather("whose gradient is wrong", alignment)
    suspect = outstanding(shares)
    if suspect is not None:
        told = f"its share of the mean is wrong (alignment {shares[suspect]:.2f})"
        return {"guilty": [job.guilty(suspect, told, parameter)]}
    return {"split": "no single rank's share explains the error"}


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
