"""How far a machine's clock is from the control node's. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.model.checks import Check, Subject, Verdict
from provision.model.facts import MachineFacts


def clock(subject: Subject, facts: MachineFacts, wants: Mapping[str, Any]) -> Check:
    """Judge the clock by the bound that is nearest to zero, so that a slow machine is never taken for a wrong clock.

    ``facts``: ``clock_offset`` with ``low`` and ``high`` in seconds. ``wants``: ``clock_warn_seconds`` and
    ``clock_fail_seconds``.
    """
    offset = facts.get("clock_offset")
    if not offset:
        return subject.unknown("clock", "the machine's clock was not measured")
    low, high = float(offset["low"]), float(offset["high"])
    least = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    warn, fail = float(wants["clock_warn_seconds"]), float(wants["clock_fail_seconds"])
    return subject.check(
        "clock",
        Verdict.FAIL if least > fail else Verdict.WARN if least > warn else Verdict.PASS,
        f"{(low + high) / 2:+.1f} s (between {low:+.1f} and {high:+.1f})",
        f"within {warn:g} s of the control node",
        source=f"{subject.name}_clock_warn_seconds, {subject.name}_clock_fail_seconds",
        cause="the clocks differ; munge refuses credentials that seem old or from the future",
        fix="on the machine: timedatectl; chronyc makestep",
    )
