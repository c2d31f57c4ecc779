"""Have an inventory read by a process of inventory_forks that several others ask, one after another."""

from __future__ import annotations

import fcntl
import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path


def asking(place: Path) -> Callable[[Sequence[str]], subprocess.CompletedProcess[str]]:
    """Return what asks the process whose standard input and output are the pipes ``asks`` and ``answers`` there."""

    def dumped(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        out, err = place / "out", place / "err"
        with (place / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with (place / "answers").open(encoding="utf-8") as answers, (place / "asks").open("w") as asks:
                asks.write(json.dumps({"words": list(words), "out": str(out), "err": str(err)}) + "\n")
                asks.flush()
                code = int(answers.readline())
            return subprocess.CompletedProcess(list(words), code, out.read_text("utf-8"), err.read_text("utf-8"))

    return dumped
