"""Waiting in tests: for an event, with one limit for all, which says nothing but that it never comes."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds after which what has not happened hangs, also on a computer that is busy with much else.
PATIENCE = 300.0


def until(true: Callable[[], object], what: str = "what was waited for") -> None:
    """Wait until ``true()`` is."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"{what} did not happen in {PATIENCE:.0f} s"
        time.sleep(0.02)
