#!/usr/bin/python3
# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Print, as JSON, what the ranks of one run left behind on this machine. Reads only, and as the job's user.

What lies there was written by a job, so it is read as one reads a stranger's: without root, only regular files of that
user, no link, no pipe, and no more of anything than a run leaves. Arguments: the directory of this user's runs, the
run's id, its job's number, the user's number.

Keys: ``records`` (list), ``result`` (without what nobody judges), ``logs`` (last lines by rank), ``node_log``,
``job_log``, ``nccl`` (what NCCL said about its ways between machines), ``figures`` (what a report draws of the result),
``problems`` (what was not read, and why).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from typing import Any

LINES = 20  # of each log: enough for a traceback's end
LINE = 500  # characters of a line
TAIL = 16_384  # bytes of a log's end
ENTRIES = 1_000  # names in a run's directory; 8 ranks leave 18
DOCUMENT = 4 << 20  # bytes of a record or result; a thousand ranks make a result of one MiB
SEARCHED = 32 << 20  # bytes of all logs that are searched for NCCL's ways: it tells them when it starts
#: A connection of a channel over the network, why it is without GPUDirect, and by which mechanism it is with it.
NCCL = re.compile(
    r" via NET/|GPU Direct RDMA Disabled|DMA-BUF is available|NET/IB\S* : (Using \[0\]|Made virtual device)"
)
NCCL_LINES = 10_000  # 8 ranks have some 16 channels in two directions each
#: Of a step's outcome, what is judged; the rest stays in result.json.
JUDGED = ("verdict", "observed", "expected", "guilty", "split", "digest")
#: Of a step's outcome, what nobody judges and a report shows.
FIGURES = {
    "learning": ("losses",),
    "reference": ("curve", "largest"),
    "gradients": ("relative_error", "parameter"),
    "speed": ("per_rank", "samples_per_s", "tokens_per_s"),
}
RUN_ID = re.compile(r"[A-Za-z0-9-]{1,64}")


class Directory:
    """The run's directory: opened once, so that nobody can put another in its place."""

    def __init__(self, parent: int, name: str, owner: int) -> None:
        self.owner = owner
        self.problems: list[str] = []
        self.handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        if os.fstat(self.handle).st_uid != owner:
            raise PermissionError(f"{name} is not the job's user's")

    def names(self) -> list[str]:
        """Return the names in it, sorted, up to a number that no run reaches."""
        found: list[str] = []
        with os.scandir(self.handle) as entries:
            for entry in entries:
                if len(found) >= ENTRIES:
                    self.problems.append(f"more than {ENTRIES} files")
                    break
                found.append(entry.name)
        return sorted(found)

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[tuple[int, int]]:
        """Open a regular file of the job's user for reading; give its handle and size.

        Raises:
            OSError: it is none; a pipe does not make us wait.
        """
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=self.handle)
        try:
            seen = os.fstat(handle)
            if not stat.S_ISREG(seen.st_mode):
                raise OSError("is no regular file")
            if seen.st_uid != self.owner:
                raise OSError("belongs to somebody else")
            yield handle, seen.st_size
        finally:
            os.close(handle)

    def read(self, name: str, limit: int, *, end: bool = False) -> bytes:
        """Return the first bytes of a file, or the last; nothing, and a problem, where it is not to be read."""
        try:
            with self.opened(name) as (handle, size):
                return os.pread(handle, limit, max(0, size - limit) if end else 0)
        except FileNotFoundError:
            return b""
        except OSError as error:
            self.problems.append(f"{name}: {error.strerror or error}")
            return b""

    def tail(self, name: str) -> list[str]:
        """Return the last lines of a log; none where it cannot be read."""
        lines = self.read(name, TAIL, end=True).decode("utf-8", "replace").splitlines()[-LINES:]
        return [line[:LINE] for line in lines]

    def document(self, name: str) -> Any:
        """Return a JSON file's content; None where there is none. A broken one is a problem."""
        raw = self.read(name, DOCUMENT + 1)
        if not raw:
            return None
        with contextlib.suppress(ValueError, RecursionError):
            if len(raw) <= DOCUMENT:
                return json.loads(raw.decode("utf-8"))
        self.problems.append(f"{name}: is no JSON document of at most {DOCUMENT} bytes")
        return None


def ways(directory: Directory, names: list[str]) -> list[str]:
    """Return the lines in which NCCL tells its ways between machines; it tells them once, when it connects."""
    found: list[str] = []
    for name in names:
        text = directory.read(name, SEARCHED // max(1, len(names))).decode("utf-8", "replace")
        found += [line.rstrip()[:LINE] for line in text.splitlines() if NCCL.search(line[:LINE])]
    return found[:NCCL_LINES]


def judged(result: Any) -> Any:
    """Return a result without what is not judged, and with no more accusations than anybody reads."""
    if not isinstance(result, dict) or not isinstance(result.get("steps"), dict):
        return result
    steps = {}
    for name, step in list(result["steps"].items())[:32]:
        if isinstance(step, dict):
            step = {key: step[key] for key in JUDGED if key in step}
            if isinstance(step.get("guilty"), list):
                step["guilty"] = step["guilty"][:64]
        steps[name] = step
    return {**result, "steps": steps}


def figures(result: Any) -> dict[str, Any]:
    """Return of a result what a report shows and nobody judges; nothing where there is none."""
    steps = result.get("steps") if isinstance(result, dict) else None
    found = {}
    for name, keys in FIGURES.items():
        step = steps.get(name) if isinstance(steps, dict) else None
        found[name] = {key: step[key] for key in keys if key in step} if isinstance(step, dict) else {}
    return found


def collect(runs: str, run: str, number: str, owner: int) -> dict[str, Any]:
    """Return everything that the run left in its directory; nothing where there was no run."""
    if not RUN_ID.fullmatch(run) or not number.isascii() or not number.isdigit():
        return {}
    try:
        parent = os.open(runs, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        directory = Directory(parent, run, owner)
    except FileNotFoundError:
        return {}
    except OSError as error:
        return {"problems": [f"{run}: {error.strerror or error}"]}
    names, above = directory.names(), Directory(parent, ".", owner)
    logs = [name for name in names if re.fullmatch(r"rank-[0-9]{1,5}\.log", name)]
    records = [directory.document(name) for name in names if re.fullmatch(r"rank-[0-9]{1,5}\.json", name)]
    result = directory.document("result.json")
    return {
        "records": [record for record in records if record is not None],
        "result": judged(result),
        "figures": figures(result),
        "logs": {name[5:-4]: directory.tail(name) for name in logs},
        "nccl": ways(directory, logs),
        "node_log": directory.tail("node.log"),
        # The job's script moves its log to the others; one that did not come so far has left it where Slurm put it.
        "job_log": directory.tail("job.log") or above.tail(f"job-{number}.log"),
        "problems": [*directory.problems, *above.problems][:20],
    }


def main(runs: str, run: str, number: str, owner: str) -> int:
    """Give up root first of all, then collect and print."""
    if os.geteuid() == 0 and int(owner) != 0:
        os.setgroups([])
        os.setgid(int(owner))
        os.setuid(int(owner))
    try:
        print(json.dumps(collect(runs, run, number, int(owner))))
    except RecursionError:
        print(json.dumps({"problems": ["a document is nested too deeply"]}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
