"""The command ``seff JOB`` of users: what a job had and used, in the words of seff in Slurm's contribs.

Machines where users log in have it without this package, as they have ``lint-job``: standard library
only. It shows users their own jobs.
"""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from provision.errors import ClusterctlError, ExitCode
from provision.slurm.job_use import (
    JOB,
    UNKNOWN,
    Use,
    duration,
    held,
    mean,
    named,
    size,
    wastes,
)

#: Seconds that Slurm may take for an answer.
_SECONDS = 60
#: Who of Slurm's users may look at the jobs of others: AdminLevel in sacctmgr(1).
_OPERATORS = {"Operator", "Administrator"}


def main(words: Sequence[str]) -> int:
    """Be the command ``seff JOB``."""
    if len(words) != 1 or words[0].startswith("-"):
        print("seff JOB: what a job of yours had and used: 42, or 42_3 of an array.")
        return int(ExitCode.DONE if {"-h", "--help"} & set(words) else ExitCode.BAD_REQUEST)
    try:
        use = shown_to(_name(), the_job(words[0]))
    except ClusterctlError as error:
        print(f"seff: {error.problem}. Fix: {error.fix}", file=sys.stderr)
        return int(error.exit_code)
    print("\n".join(lines(use)))
    return int(ExitCode.DONE)


def command() -> None:
    """End as :func:`main` does, or quietly where nobody reads on (``seff 42 | head``)."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    raise SystemExit(main(sys.argv[1:]))


def the_job(job: str) -> Use:
    """Return a job as Slurm's database knows it, or slurmctld where there is none."""
    if not JOB.fullmatch(job):
        raise ClusterctlError(f"{job!r} is no job's number", fix="name one, as squeue and sacct do: seff 42")
    told, why = _asked("sacct", "--json", "--jobs", job)
    return named(job, told, lambda: _asked("scontrol", "show", "job", job, "--json")[0], int(time.time()), why)


def shown_to(user: str, use: Use) -> Use:
    """Return a job that a user may look at."""
    level = ("sacctmgr", "--noheader", "--parsable2", "show", "user", user, "format=AdminLevel")
    if os.getuid() != 0 and use.user != user and _asked(*level)[0].strip() not in _OPERATORS:
        raise ClusterctlError(
            f"job {use.job} is another user's, and you may look at your own", fix="sacct lists your jobs of today"
        )
    return use


def _name() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def _asked(*words: str) -> tuple[str, str]:
    """Return what one of Slurm's commands prints, and why it prints nothing."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    told = done.stdout if done.returncode == 0 else done.stderr
    text = told.decode("utf-8", "replace").strip()
    return (text, "") if done.returncode == 0 else ("", text.splitlines()[-1] if text else f"{words[0]} failed")


def lines(use: Use) -> Iterator[str]:
    """Yield what a user reads of a job."""
    alone = str(use.number) == use.job
    yield f"Job ID: {use.number}"
    yield from () if alone else (f"{'Array' if '_' in use.job else 'Heterogeneous'} Job ID: {use.job}",)
    yield f"Cluster: {use.cluster}"
    yield f"User/Group: {use.user}/{use.group}"
    yield f"State: {use.state} (exit code {use.exit_code})" if use.ended else f"State: {use.state}"
    if use.cpus == 1:
        yield "Cores: 1"
    else:
        yield f"Nodes: {use.nodes_count}"
        yield f"Cores per node: {use.cpus // use.nodes_count}"
    if not use.nodes:
        yield "It never began: there is nothing to measure." if use.ended else "It has not begun."
        return
    yield from _of_processors(use)
    yield f"Job Wall-clock time: {duration(use.elapsed)}"
    yield from _of_memory(use)
    yield from _of_gpus(use) if use.gpus_held else ()
    if not use.ended:
        yield f"It has not ended: what is {UNKNOWN} comes then."
    for waste in wastes(use):
        yield f"Wasted: {waste.seen}"
        yield f"    Fix: {waste.fix}"


def _of_processors(use: Use) -> Iterator[str]:
    had = use.elapsed * use.cpus
    if use.cpu_seconds is None or not had:
        yield f"CPU Utilized: {UNKNOWN}"
        yield f"CPU Efficiency: {UNKNOWN}"
        return
    yield f"CPU Utilized: {duration(use.cpu_seconds)}"
    yield f"CPU Efficiency: {100 * use.cpu_seconds / had:.2f}% of {duration(had)} core-walltime"


def _of_memory(use: Use) -> Iterator[str]:
    each, what = (use.cpus, "core") if use.memory_by_cpu else (use.nodes_count, "node")
    had = f"{size(use.memory_asked)} ({size(use.memory_asked / each)}/{what})"
    if use.memory_used is None:
        yield f"Memory Utilized: {UNKNOWN}"
        yield f"Memory Efficiency: {UNKNOWN}, of {had}"
        return
    yield f"Memory Utilized: {size(use.memory_used)}"
    share = f"{100 * use.memory_used / use.memory_asked:.2f}%" if use.memory_asked else UNKNOWN
    yield f"Memory Efficiency: {share} of {had}"


def _of_gpus(use: Use) -> Iterator[str]:
    yield f"GPUs: {held(use)}"
    if not use.gpus:
        yield f"GPU Efficiency: {UNKNOWN}; if the cluster keeps it, it comes within three minutes of the job's end"
        return
    yield f"GPU Efficiency: {mean(gpu.use for gpu in use.gpus):.2f}% of {len(use.gpus)} GPUs"
    sizes = [(gpu.memory, gpu.size) for gpu in use.gpus if gpu.memory is not None and gpu.size]
    if sizes:
        memory, whole = max(sizes)
        yield f"GPU Memory Utilized: {size(memory)} of {size(whole or 0)} on the GPU that had most"
