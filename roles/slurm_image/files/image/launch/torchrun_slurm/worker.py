# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""A worker's first moments: its own error stream, processors and GPUs; then it becomes the program.

Started by torch.distributed.run or DeepSpeed's launcher as ``[--local_rank=N] WORKER DIRECTORY COUNT WORD...``. What
launchers give each of their workers is in its environment. COUNT words are the program's own, before those of its user:
DeepSpeed's option of the local rank goes between them.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

#: Says that this is no user's command line.
WORKER = "--torchrun-slurm-worker"


def is_worker(words: list[str]) -> bool:
    """Tell whether a command line is a launcher's."""
    return words[:1] == [WORKER] or (words[1:2] == [WORKER] and words[0].startswith("--local_rank="))


def run(words: list[str]) -> int:
    """Become the program; return only where that cannot be."""
    options, rest = words[: words.index(WORKER)], words[words.index(WORKER) + 1 :]
    directory, count, program = Path(rest[0]), int(rest[1]), rest[2:]
    own = os.environ.get("LOCAL_RANK", "0")
    bind(directory / "cpus", own)
    see(directory / "visible")
    speak(directory / f"{own}.err")
    program = [*program[:count], *options, *program[count:]]
    try:
        os.execvp(program[0], program)  # noqa: S606 - no shell
    except OSError as problem:
        print(f"torchrun-slurm: {program[0]}: {problem.strerror}", file=sys.stderr)
        return 127


def speak(pipe: Path) -> None:
    """Have one's own error stream; the common one stays where nobody listens any more."""
    try:
        stream = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return
    os.set_blocking(stream, True)
    os.dup2(stream, 2)
    os.close(stream)


def see(granted: Path) -> None:
    """See the GPUs that the job was granted, where the launcher says others."""
    with contextlib.suppress(OSError):  # others leave them as they are
        os.environ["CUDA_VISIBLE_DEVICES"] = granted.read_text(encoding="utf-8")


def bind(chosen: Path, own: str) -> None:
    """Stay on the processors that were chosen for this worker, where some were."""
    try:
        listed = json.loads(chosen.read_text(encoding="ascii"))
        os.sched_setaffinity(0, listed[int(own)])
    except (OSError, ValueError, LookupError):
        pass  # nothing was chosen
