#!/usr/bin/python3
# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Print, as JSON, what the ranks of one run left behind on this machine. Reads only.

Arguments: the directory of all runs, and the document that ddp_submit.py printed. What is missing or unreadable is left
out: to judge that is the judge's business. Keys: ``records`` (list), ``result``, ``logs`` (last lines by rank),
``node_log``, ``job_log``, ``nccl`` (what NCCL said about its ways between machines, in all logs of the ranks).
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from pathlib import Path
from typing import Any

LINES = 20  # of each log: enough for a traceback's end
BYTES = 16_384
#: A connection of a channel over the network, why it is without GPUDirect, and by which mechanism it is with it.
NCCL = re.compile(r" via NET/|GPU Direct RDMA Disabled|DMA-BUF is available")
NCCL_LINES = 10_000  # 8 ranks have some 16 channels in two directions each


def tail(path: Path) -> list[str]:
    """Return the last lines of a log; none where it cannot be read."""
    with contextlib.suppress(OSError), path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - BYTES))
        return stream.read().decode("utf-8", "replace").splitlines()[-LINES:]
    return []


def ways(paths: list[Path]) -> list[str]:
    """Return the lines in which NCCL tells its ways between machines; it tells them once, when it connects."""
    found: list[str] = []
    for path in paths:
        with contextlib.suppress(OSError), path.open(encoding="utf-8", errors="replace") as stream:
            found += [line.rstrip() for line in stream if NCCL.search(line)]
    return found[:NCCL_LINES]


def load(path: Path) -> Any:
    """Return a JSON file's content; None where there is none that can be read."""
    with contextlib.suppress(OSError, ValueError):
        return json.loads(path.read_text(encoding="utf-8"))
    return None


def collect(runs: Path, job: dict[str, str]) -> dict[str, Any]:
    """Return everything that the run ``job["run_id"]`` left in its directory; nothing where there was no run."""
    run, number = job.get("run_id") or "", job.get("id") or ""
    if not run or "/" in run:
        return {}
    directory = runs / run
    records = [load(path) for path in sorted(directory.glob("rank-*.json"))]
    logs = sorted(directory.glob("rank-*.log"))
    return {
        "records": [record for record in records if record],
        "result": load(directory / "result.json"),
        "logs": {path.stem.removeprefix("rank-"): tail(path) for path in logs},
        "nccl": ways(logs),
        "node_log": tail(directory / "node.log"),
        "job_log": tail(runs / f"job-{number}.log"),
    }


if __name__ == "__main__":
    json.dump(collect(Path(sys.argv[1]), json.loads(sys.argv[2] or "{}")), sys.stdout)
