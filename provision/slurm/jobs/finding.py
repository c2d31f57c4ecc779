"""What a rule says of a job script, and what the rules ask of one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import merge

from provision.slurm.jobs.calls import Call, Option
from provision.slurm.jobs.script import Script
from provision.slurm.jobs.words import Command, base

#: Programs that a step may run without being the job: to look, to prepare, to clean.
ASIDE = frozenset({
    "hostname", "true", "false", "echo", "printf", "date", "env", "ls", "cp", "mv", "rm", "mkdir", "chmod", "sleep",
    "test", "cat", "id", "uptime", "nvidia-smi", "ibstat", "stat", "df", "sync", "tar", "rsync", "find", "which",
    "pkill", "kill", "killall", "touch", "ln", "du", "ping", "curl", "wget", "pip", "mount", "umount", "rmdir", "cmp",
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
    match = re.match(r"([0-9]{1,9})(?![0-9])", option.value) if option else None
    return int(match[1]) if match else None


def figure(script: Script, option: Option | None) -> int | None:
    """Return the number that an option has once the shell has worked it out, None where the script does not say it."""
    return _figure(script, option, 3, {})


def _figure(script: Script, option: Option | None, depth: int, known: dict[tuple[str, int], int | None]) -> int | None:
    found = re.fullmatch(r"\$\(\((.*)\)\)", option.value, re.S) if option else None
    if option is None or found is None:
        name = re.fullmatch(r"\$\{?(SLURM_\w+)\}?", option.value) if option else None
        return number(script.directives.get(_SLURMS_OWN.get(name[1], ""))) if name else number(option)

    def put(name: re.Match[str]) -> str:
        at = name[1], depth
        if at not in known and (words := script.variables.get(name[1], ())):
            value = Option(script.value(words[0].text), 0)
            known[at] = _figure(script, value, depth - 1, known) if depth else None
        elif at not in known:
            known[at] = number(script.directives.get(_SLURMS_OWN.get(name[1], "")))
        return "?" if known[at] is None else str(known[at])

    if len(found[1]) > _LONGEST:
        return None
    text = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", put, found[1])
    if re.fullmatch(r"[\s(]*\d{1,6}(\s*\*\s*\d{1,6})*[\s)]*", text):
        return math.prod(int(one) for one in re.findall(r"\d+", text))
    return None


#: Nobody counts nodes or tasks in so many characters.
_LONGEST = 200
#: Variables that Slurm sets to what the job's options say.
_SLURMS_OWN = {
    "SLURM_NNODES": "nodes", "SLURM_JOB_NUM_NODES": "nodes", "SLURM_NTASKS": "ntasks", "SLURM_NPROCS": "ntasks",
    "SLURM_NTASKS_PER_NODE": "ntasks-per-node", "SLURM_GPUS_ON_NODE": "gpus-per-node",
    "SLURM_GPUS_PER_NODE": "gpus-per-node",
}  # fmt: skip


def asked(script: Script, call: Call | None, name: str) -> Option | None:
    """Return an option of a step, else of its job."""
    return (call.options.get(name) if call else None) or script.directives.get(name)


def nodes(script: Script, call: Call | None = None) -> int:
    """Return how many nodes a step has as far as the script says, 1 where it says nothing."""
    if call and "nodes" not in call.options and figure(script, call.options.get("ntasks")) == 1:
        return 1
    if (told := figure(script, asked(script, call, "nodes"))) is not None:
        return told
    tasks, each = figure(script, asked(script, call, "ntasks")), figure(script, asked(script, call, "ntasks-per-node"))
    return max(1, tasks // each) if tasks and each else 1


def tasks_each(script: Script, call: Call | None = None) -> int:
    """Return how many tasks a step has on a node as far as the script says, 1 where it says nothing."""
    own = figure(script, call.options.get("ntasks")) if call and "ntasks-per-node" not in call.options else None
    if own is not None:  # --ntasks of a step goes before --ntasks-per-node of its job
        return max(1, own // max(1, nodes(script, call)))
    if (told := figure(script, asked(script, call, "ntasks-per-node"))) is not None:
        return told
    if each := figure(script, asked(script, call, "ntasks-per-gpu")):
        return each * (_gpus(script, call) or 1)
    tasks = figure(script, asked(script, call, "ntasks"))
    return max(1, tasks // max(1, nodes(script, call))) if tasks else 1


def _gpus(script: Script, call: Call | None) -> int | None:
    """Return how many GPUs of a node a step has, as far as the script says."""
    for name in ("gpus-per-node", "gres"):
        option = asked(script, call, name)
        if option and (found := re.search(r"(?:^|:)([0-9]{1,4})$", option.value)):
            return int(found[1])
    return None


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
        return any(not _aside(one) for one in inner if one.texts) if inner else True
    return bool(first) and first not in ASIDE


def _aside(command: Command) -> bool:
    """Tell whether a command only looks, prepares or cleans up."""
    name = base(command.texts[0])
    engine = name in ("docker", "podman", "nerdctl") and not {"run", "start", "exec", "compose"} & {*command.texts[1:]}
    return name in ASIDE or engine


def steps(script: Script) -> Iterator[Call]:
    """Yield the steps that are the job itself."""
    return (call for call in script.called("srun") if works(script, call))


def launches(script: Script) -> list[Call]:
    """Return the work: the steps, and launchers that the batch script starts itself."""
    own = (call for call in script.called("torchrun", "deepspeed", "accelerate") if not call.by)
    return [*steps(script), *(call for call in own if call.command.outer is None)]


def distributed(script: Script, call: Call | None = None) -> bool:
    """Tell whether a step, or the job, has more than one task."""
    return nodes(script, call) * tasks_each(script, call) > 1


def assigned(script: Script, *names: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, name and value of each assignment to one of some variables, with the script's own variables in it."""
    for _, name, word in merge(*(script.assigning.get(name, ()) for name in names), key=lambda one: one[0]):
        yield word.line, name, script.value(word.text.partition("=")[2])
