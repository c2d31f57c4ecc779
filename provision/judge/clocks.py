"""Whose clock is off? Pure judgement of bounds, each measured between one machine and the control node."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Seconds that anybody's clock can be off and still be a number worth showing: a century.
_MOST = 3.2e9


@dataclass(frozen=True)
class Offset:
    """How far a machine's clock is ahead of the control node's: seconds, between ``low`` and ``high``."""

    low: float
    high: float

    @classmethod
    def of(cls, value: Any) -> Offset | None:
        """Read ``{"low": -0.1, "high": 0.4}``; None for anything else."""
        low, high = (value.get(key) if isinstance(value, dict) else None for key in ("low", "high"))
        if not isinstance(low, (int, float)) or not isinstance(high, (int, float)):
            return None
        # A comparison, because a number of a thousand digits is no float.
        if not (-_MOST <= low <= high <= _MOST):
            return None
        return cls(float(low), float(high))

    def ahead(self, of: float) -> float:
        """Return the least by which the machine can be ahead (behind: negative) of a time; 0 where it may agree."""
        return self.low - of if self.low > of else self.high - of if self.high < of else 0.0

    def apart(self, other: Offset) -> float:
        """Return the least by which this clock can be ahead of (negative: behind) the other; 0 where they may agree."""
        low, high = self.low - other.high, self.high - other.low
        return low if low > 0 else high if high < 0 else 0.0


def between(clock: Any, before: float, after: float) -> dict[str, float] | None:
    """Return the bounds of an offset, as :meth:`Offset.of` reads them; None where the machine told no time.

    ``clock`` is what the machine's clock showed when it was asked: ``begun`` and ``ended``, seconds since 1970, between
    the control node's ``before`` and ``after``. The first is not earlier than ``before``, the second not later than
    ``after``, so that the offset lies between the differences, whatever the connection costs.
    """
    told = [clock.get(key) if isinstance(clock, Mapping) else None for key in ("begun", "ended")]
    begun, ended = (time if isinstance(time, (int, float)) and abs(time) <= _MOST else None for time in told)
    if begun is None or ended is None:
        return None
    low, high = sorted((ended - after, begun - before))
    return {"low": round(low, 3), "high": round(high, 3)}


@dataclass(frozen=True)
class Consensus:
    """The time that most machines agree on, against the control node's, and how many they are."""

    offset: float
    agree: int
    measured: int

    @property
    def majority(self) -> bool:
        """True where more than half agree, so that the others are the wrong ones."""
        return 2 * self.agree > self.measured


def consensus(offsets: Mapping[str, Offset], within: float) -> Consensus | None:
    """Return the time that lies within ``within`` seconds of most machines' bounds; None where none was measured."""
    # One pass over the ends of all bounds (Marzullo): a bound that begins comes before one that ends at the same point.
    ends = sorted(
        [(one.low - within, -1) for one in offsets.values()] + [(one.high + within, 1) for one in offsets.values()]
    )
    best, count, found = 0, 0, None
    for place, (point, end) in enumerate(ends):
        count -= end
        if count > best:
            best, found = count, (point + ends[place + 1][0]) / 2
    return None if found is None or not math.isfinite(found) else Consensus(found, best, len(offsets))
