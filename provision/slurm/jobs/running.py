"""Mistakes of how a job runs: failures that nobody sees, work that is lost, what Slurm gives where nothing is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator

from provision.slurm.jobs.finding import Told, assigned, distributed, steps
from provision.slurm.jobs.script import Script
from provision.slurm.jobs.shell import Command, base

_LAUNCHERS = frozenset({
    "srun", "torchrun", "deepspeed", "accelerate", "docker", "podman", "python", "python3", "mpirun", "apptainer",
    "singularity",
})  # fmt: skip
_PIPEFAIL = re.compile(r"^\s*set\s+(-[a-z]*o\s+|-o\s+\w+\s+-o\s+)*.*pipefail|^#!.*pipefail|PIPESTATUS", re.M)
_LONG = 3600


def hidden_failure(script: Script) -> Iterator[Told]:
    """A pipe behind the work, whose exit code is the one that counts."""
    for command in script.commands:
        names = {base(word) for word in command.texts}
        shell = command.texts[:1] and base(command.texts[0]) in ("bash", "sh") and len(command.texts) > 1
        if command.piped and (names & _LAUNCHERS or shell) and not _aside(command) and not _pipefail(script, command):
            yield (
                command.line,
                "the exit code is that of the last command behind the pipe",
                "a training that fails is a job that is COMPLETED",
                "set -o pipefail, before it; or srun --output=FILE instead of a pipe",
            )


def _pipefail(script: Script, command: Command) -> bool:
    """Tell whether the shell that runs a command was told pipefail before."""
    before = [one for one in script.commands if one.outer is command.outer and one.texts[:1] == ("set",)]
    text = script.text if command.outer is None else ""
    return bool(_PIPEFAIL.search(text)) or any("pipefail" in " ".join(one.texts) for one in before)


def _aside(command: Command) -> bool:
    """Tell whether a command only asks: its answer, not its exit code, is wanted."""
    words = {base(word) for word in command.texts}
    return bool(words & {"nvidia-smi", "hostname", "ps", "images", "inspect", "--version"})


def hanging_step(script: Script) -> Iterator[Told]:
    """A step of several tasks that goes on without one of them."""
    effect = "when a worker fails, the others wait for it in a collective until the job's time is over"
    better = "srun --kill-on-bad-exit=1 --wait=60"
    for line, _, value in assigned(script, "SLURM_KILL_BAD_EXIT"):
        if value == "0":
            yield line, "SLURM_KILL_BAD_EXIT=0", effect, better
    if any(assigned(script, "SLURM_KILL_BAD_EXIT")):
        return
    for call in steps(script):
        kill = call.options.get("kill-on-bad-exit")
        if distributed(script, call) and (kill is None or kill.value == "0"):
            problem = "srun with --kill-on-bad-exit=0" if kill else "srun without --kill-on-bad-exit"
            yield call.line, problem, effect, better


def lost_work(script: Script) -> Iterator[Told]:
    """A long training that is not told that its time ends."""
    works = list(steps(script))
    seconds = _seconds(script)
    if not works or not script.batch or (seconds is not None and seconds <= _LONG):
        return
    signal = script.directives.get("signal")
    traps = [command for command in script.commands if command.outer is None and command.texts[:1] == ("trap",)]
    shape = "#SBATCH --requeue --open-mode=append --signal=B:USR1@300; trap 'touch stop' USR1; srun ... & wait"
    if signal is None:
        line = (script.directives.get("time") or works[0]).line
        yield (
            line,
            "no --signal: nobody tells the training that its time ends",
            "it loses what it did since it last saved",
            shape,
        )
    elif signal.value.startswith("B:"):
        name = re.sub(r"^B:(?:SIG)?|@.*", "", signal.value)
        mine = [one for one in traps if any(word.removeprefix("SIG") == name for word in one.texts)]
        if not mine:
            problem = f"--signal={signal.value} reaches only the batch shell, and no trap waits for {name}"
            yield (
                signal.line,
                problem,
                f"{name} ends the batch script, and with it the job",
                f"trap 'touch stop' {name}",
            )
        elif not any(call.command.background for call in works):
            effect = "bash runs a trap when the command that it waits for has ended: too late"
            yield works[-1].line, f"srun in the foreground, and a trap for {name}", effect, "srun ... & wait $!"


def _seconds(script: Script) -> int | None:
    """Return the job's time limit: sbatch(1), --time."""
    told = script.directives.get("time")
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", told.value) if told else None
    if match is None:
        return None
    days, first, second, third = (int(part) if part else None for part in match.groups())
    if days is not None:
        return days * 86400 + (first or 0) * 3600 + (second or 0) * 60 + (third or 0)
    if third is not None:
        return (first or 0) * 3600 + (second or 0) * 60 + third
    return (first or 0) * 60 + (second or 0)


def ulimit_here(script: Script) -> Iterator[Told]:
    """A limit that is set where no task inherits it."""
    works = list(steps(script))
    effect = "tasks have the limits that slurmd gives them (PropagateResourceLimits=NONE), not these"
    for command in script.commands if works and script.batch else ():
        words = command.texts
        if words[:1] in (("ulimit",), ("prlimit",)) and len(words) > 2 and not script.each_node(command):
            text = " ".join(words)
            yield command.line, f"{text} in the batch script", effect, f"in the step: srun bash -c '{text}; exec ...'"
    for call in works:
        for name in ("prolog", "task-prolog"):
            option = call.options.get(name)
            if option and "ulimit" in option.value:
                yield (
                    option.line,
                    f"ulimit in srun --{name}",
                    "a prolog is another process: its limits end with it",
                    "in the step",
                )


def default_memory(script: Script) -> Iterator[Told]:
    """No word about memory."""
    told = {"mem", "mem-per-cpu", "mem-per-gpu"} & script.directives.keys()
    works = list(steps(script))
    if told or not works or any({"mem", "mem-per-cpu", "mem-per-gpu"} & call.options.keys() for call in works):
        return
    alone = script.directives.get("exclusive")
    first = alone or min(script.directives.values(), key=lambda option: option.line, default=None)
    if first is not None:
        better = (
            "#SBATCH --mem=0 (all of the node's)" if alone else "#SBATCH --mem-per-gpu=64G, or --mem=0 with --exclusive"
        )
        what = "--exclusive without --mem" if alone else "no --mem, --mem-per-gpu or --mem-per-cpu"
        yield first.line, what, "the site's default, by the core or the GPU; who needs more is killed", better


def shared_file(script: Script) -> Iterator[Told]:
    """A file that each job writes under the same name, where all of them see it."""
    for command in script.commands:
        tee = command.texts[1:] if command.texts[:1] == ("tee",) else ()
        for file in (*command.files, *(word for word in tee if not word.startswith("-"))):
            name = script.value(file)
            if _generated(command, name) and not re.search(r"[$%]|^/tmp/|^/dev/|^/var/tmp/", name):
                yield (
                    command.line,
                    f"{name} has the same name in every job",
                    "two jobs in one directory write over each other's, and run with it",
                    f"{_with_id(name)}, or below a directory of the job's own",
                )


def _with_id(name: str) -> str:
    directory, slash, file = name.rpartition("/")
    stem, dot, ending = file.partition(".")
    return f"{directory}{slash}{stem}-$SLURM_JOB_ID{dot}{ending}"


def _generated(command: Command, name: str) -> bool:
    """Tell whether a job makes a file for itself to run with: a list of hosts, a script, a configuration."""
    if command.document is not None:
        return True
    hosts = re.search(r"host|node|machine", name, re.I) is not None and not name.endswith((".log", ".out", ".err"))
    asks = any("SLURM_JOB_NODELIST" in word or "SLURM_NODELIST" in word for word in command.texts)
    return hosts or (asks and "scontrol" in command.texts)
