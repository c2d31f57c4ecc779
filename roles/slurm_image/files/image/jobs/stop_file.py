# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""A training that is to end early: all its workers are told at the same step, whoever started them."""

import os
from pathlib import Path

import torch
import torch.distributed as dist


def asked(device: "torch.device | str" = "cpu") -> bool:
    """Tell whether the file that STOP_FILE names is there: the first worker looks, the others hear of it.

    A signal would reach the workers at different steps, and those that go on would wait for those that ended.
    """
    several = dist.is_available() and dist.is_initialized()
    there = (not several or dist.get_rank() == 0) and Path(os.environ.get("STOP_FILE", "/none")).exists()
    if not several:
        return there
    told = torch.tensor(int(there), device=device)
    dist.broadcast(told, 0)
    return bool(told.item())
