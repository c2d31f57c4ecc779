# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Who is suspect by what all ranks have said: no torch, and nobody is named where nothing tells who is wrong."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

# How gloo says that it lacks an operation. NCCL lacks none, so its "not supported" always is a fault.
_LACKING = re.compile(r"(Backend gloo|ProcessGroupGloo) does not support \w+")


def lacking(error: str) -> bool:
    """Tell whether an error says that gloo lacks an operation, and nothing else."""
    return _LACKING.match(error) is not None


def odd_ones(values: Sequence[Hashable]) -> tuple[list[int], bool]:
    """Return the positions that differ from the most common value, and whether there is none such.

    In a tie all positions are returned: two values that are equally common do not tell which of them is right.
    """
    common = Counter(values).most_common(2)
    if len(common) < 2:
        return [], False
    if common[0][1] == common[1][1]:
        return list(range(len(values))), True
    return [position for position, value in enumerate(values) if value != common[0][0]], False


def explain(seen: Sequence[Sequence[int]]) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the ranks that explain wrong transfers, and the pairs that none of these explains.

    ``seen`` are, for each rank, the ranks whose numbers arrive wrong at it. A bad sender is wrong at most of the
    others, a bad receiver has most of the others wrong; where there are two ranks, one cannot be told from the other.
    """
    world = len(seen)
    pairs = [(source, target) for target, sources in enumerate(seen) for source in sources]
    sent, received = Counter(source for source, _ in pairs), Counter(target for _, target in pairs)
    most = (world - 1) / 2
    bad = [rank for rank in range(world) if world > 2 and (sent[rank] > most or received[rank] > most)]
    return bad, [(source, target) for source, target in pairs if source not in bad and target not in bad]


def largest(errors: Mapping[str, float]) -> str:
    """Return whose error is the largest: what is not a number is larger than all, and ``max`` alone overlooks it."""
    return max(errors, key=lambda name: math.inf if math.isnan(errors[name]) else errors[name])


def outstanding(shares: Sequence[float]) -> int | None:
    """Return the rank with whose gradient alone the error is aligned (1: it is nothing else); None where none is."""
    suspect = shares.index(max(shares))
    others = [share for rank, share in enumerate(shares) if rank != suspect]
    return suspect if shares[suspect] > 0.95 and all(share < shares[suspect] - 0.02 for share in others) else None
