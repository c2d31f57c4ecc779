"""What a rule says of a job script, and what the rules ask of one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from provision.slurm.jobs.calls import Call, Option
from provision.slurm.jobs.script import Script
from provision.slurm.jobs.shell import base

#: Programs that a step may run without being the job: to look, to prepare, to clean.
_ASIDE = frozenset({
    "hostname", "true", "false", "echo", "printf", "date", "env", "ls", "cp", "mv", "rm", "mkdir", "chmod", "sleep",
    "test", "cat", "id", "uptime", "nvidia-smi", "ibstat", "stat", "df", "sync", "tar", "rsync", "find", "which",
})  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One mistake: in which line (from 1), its name, what stands there, what comes of it, and what to write instead."""

    line: int
    name: str
    problem: str
    effect: str
    better: str


#: A rule: the mistake's name, and what finds it as (line, problem, effect, better).
Told = tuple[int, str, str, str]
Rule = Callable[[Script], Iterator[Told]]


def number(option: Option | None) -> int | None:
    """Return the number that an option has (the least of a range), None where it has none that stands in the script."""
    match = re.match(r"(\d+)", option.value) if option else None
    return int(match[1]) if match else None


def asked(script: Script, call: Call | None, name: str) -> Option | None:
    """Return an option of a step, else of its job."""
    return (call.options.get(name) if call else None) or script.directives.get(name)


def nodes(script: Script, call: Call | None = None) -> int:
    """Return how many nodes a step has as far as the script says, 1 where it says nothing."""
    if (told := number(asked(script, call, "nodes"))) is not None:
        return told
    tasks, each = number(asked(script, call, "ntasks")), number(asked(script, call, "ntasks-per-node"))
    return max(1, tasks // each) if tasks and each else 1


def tasks_each(script: Script, call: Call | None = None) -> int:
    """Return how many tasks a step has on a node as far as the script says, 1 where it says nothing."""
    if (told := number(asked(script, call, "ntasks-per-node"))) is not None:
        return told
    tasks = number(asked(script, call, "ntasks"))
    return max(1, tasks // nodes(script, call)) if tasks else 1


def step(call: Call) -> Call | None:
    """Return the srun in which a program runs."""
    return call.within("srun")


def works(script: Script, call: Call) -> bool:
    """Tell whether a step is the job itself, and not one that looks or prepares."""
    if "container-image" in call.options or id(call) in script.starting:
        return True
    first = next((base(word.text) for word in call.rest), "")
    if first in ("bash", "sh"):
        inner = script.handed.get(id(call.command), ())
        names = {base(one.texts[0]) for one in inner if one.texts}
        return not names <= _ASIDE if inner else True
    return bool(first) and first not in _ASIDE


def steps(script: Script) -> Iterator[Call]:
    """Yield the steps that are the job itself."""
    return (call for call in script.called("srun") if works(script, call))


def distributed(script: Script, call: Call | None = None) -> bool:
    """Tell whether a step, or the job, has more than one task."""
    return nodes(script, call) * tasks_each(script, call) > 1


def assigned(script: Script, *names: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, name and value of each assignment to one of some variables, with the script's own variables in it."""
    for word in script.assignments:
        name, _, value = word.text.partition("=")
        if name in names:
            yield word.line, name, script.value(value)
