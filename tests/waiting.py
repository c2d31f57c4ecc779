"""Waiting in tests: for an event, with one patience for all, which says nothing but that the event never comes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

#: Seconds after which what has not happened hangs, also on a computer that is busy with much else.
PATIENCE = 60 * float(os.environ.get("CLUSTERCTL_TEST_PATIENCE", "5"))


def until(
    condition: Callable[[], object], what: str | Callable[[], str] = "what was waited for", *, pause: float = 0.02
) -> None:
    """Wait for something that becomes true by itself; ``what`` says, or finds out, what is wrong when it does not.

    It is asked less and less often, every three seconds at last: each look takes some of the processor from what is
    waited for. ``pause``: seconds before it is asked for the second time.
    """
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"not in {PATIENCE:g} s: {what if isinstance(what, str) else what()}"
        time.sleep(pause)
        pause = min(1.5 * pause, 3)
