"""Mistakes of how a job runs: failures that nobody sees, work that is lost, what Slurm gives where nothing is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator

from provision.slurm.jobs.finding import Told, assigned, distributed, launches, steps
from provision.slurm.jobs.script import Script

_LONG = 3600


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
        elif distributed(script, call) and {"no-kill", "k"} & call.options.keys():
            problem = "srun with --no-kill: the step goes on without a node that fails"
            yield call.line, problem, effect, "leave --no-kill out"


def lost_work(script: Script) -> Iterator[Told]:
    """A long training that is not told that its time ends."""
    works = launches(script)
    seconds = _seconds(script)
    if not works or not script.batch or (seconds is not None and seconds <= _LONG):
        return
    signal = script.directives.get("signal")
    traps = [command for command in script.commands if command.outer is None and command.texts[:1] == ("trap",)]
    traps = [command for command in traps if len(command.texts) > 1 and command.texts[1] not in ("", "-")]
    shape = "#SBATCH --requeue --open-mode=append --signal=B:USR1@300; trap 'touch stop' USR1; srun ... & wait $!"
    behind = {one.texts[0] for one in script.commands if one.background and one.texts}
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
        name = _SIGNALS.get(name, name)
        trapped = {_SIGNALS.get(word, word.removeprefix("SIG")) for one in traps for word in one.texts[2:]}
        if name not in trapped:
            problem = f"--signal={signal.value} reaches only the batch shell, and no trap waits for {name}"
            yield (
                signal.line,
                problem,
                f"{name} ends the batch script, and with it the job",
                f"trap 'touch stop' {name}",
            )
        elif not any(call.command.background or call.command.function in behind for call in works):
            effect = "bash runs a trap when the command that it waits for has ended: too late"
            yield works[-1].line, f"srun in the foreground, and a trap for {name}", effect, "srun ... & wait $!"


#: Signals by their numbers, on x86 and Arm.
_SIGNALS = {"1": "HUP", "2": "INT", "3": "QUIT", "10": "USR1", "12": "USR2", "15": "TERM", "18": "CONT"}


def _seconds(script: Script) -> int | None:
    """Return the job's time limit: sbatch(1), --time."""
    told = script.directives.get("time")
    match = re.fullmatch(r"(?:(\d{1,9})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?", told.value) if told else None
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
    given = any("propagate" in call.options for call in works) or "propagate" in script.directives
    for command in script.commands if works and script.batch and not given else ():
        words = command.texts[1:] if command.texts[:1] == ("sudo",) else command.texts
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
    works = launches(script)
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
