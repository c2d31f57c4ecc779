"""Failures that nobody sees: a pipe behind the work, and what makes its exit code a good one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from provision.slurm.jobs.calls import Call
from provision.slurm.jobs.finding import ASIDE, Told
from provision.slurm.jobs.script import Script
from provision.slurm.jobs.words import Command, base

_LAUNCHERS = frozenset({
    "srun", "torchrun", "deepspeed", "accelerate", "docker", "podman", "nvidia-docker", "python", "python3", "mpirun",
    "apptainer", "singularity",
})  # fmt: skip
_ENGINES = ("docker", "podman", "nerdctl", "nvidia-docker")
_PIPEFAIL = re.compile(r"^[ \t]*set[ \t].*pipefail|^#!.*pipefail|PIPESTATUS", re.M)


def hidden_failure(script: Script) -> Iterator[Told]:
    """A pipe behind the work, or a command after ``||``, whose exit code is the one that counts."""
    effect = "a training that fails is a job that is COMPLETED"
    starts: dict[int, list[Call]] = {}
    for call in script.calls:
        starts.setdefault(id(call.command), []).append(call)

    def launches(command: Command) -> bool:
        names = {base(word) for word in command.texts} | {call.program for call in starts.get(id(command), ())}
        shell = command.texts[:1] and base(command.texts[0]) in ("bash", "sh") and len(command.texts) > 1
        own = command.texts[:1] and command.texts[0].endswith(".sh")
        return bool(names & _LAUNCHERS or shell or own) and not _aside(command)

    def trains(command: Command) -> bool:
        return any(_trains(script, call) for call in starts.get(id(command), ()))

    told = _told(script)
    launching, training = _functions(script, launches), _functions(script, trains)
    for command in script.commands:
        name = command.texts[0] if command.texts else ""
        if command.piped and (launches(command) or name in launching) and id(command.outer) not in told:
            problem = "the exit code is that of the last command behind the pipe"
            better = "set -o pipefail, before it; or srun --output=FILE instead of a pipe"
            yield command.line, problem, effect, better
        if command.forgiven and (trains(command) or name in training):
            problem = "what stands behind || succeeds, whatever the work did"
            yield command.line, problem, effect, "rc=0; srun ... || rc=$?; ...; exit $rc"


def _functions(script: Script, does: Callable[[Command], bool]) -> frozenset[str]:
    """Return the script's functions that do something, or call one that does."""
    callers: dict[str, set[str]] = {}
    found = []
    for command in script.commands:
        if command.function:
            callers.setdefault(command.texts[0] if command.texts else "", set()).add(command.function)
            if does(command):
                found.append(command.function)
    known = set(found)
    while found:
        new = callers.get(found.pop(), set()) - known
        known |= new
        found += new
    return frozenset(known)


def _trains(script: Script, call: Call) -> bool:
    """Tell whether a program is the work itself, and not one that looks, prepares or cleans up."""
    first = base(call.rest[0].text) if call.rest else ""
    if call.program == "srun":
        known = first in ("bash", "sh", *_ENGINES) and first != (call.rest[-1].text if call.rest else "")
        inner = len(call.rest) > 1 and call.rest[1].text.startswith("-")
        if known and (inner or first in _ENGINES):
            return id(call) in script.starting
        return bool(first) and first not in ASIDE
    if call.program in ("python", "python3"):
        return call.within("srun") is not None and first not in ("-c", "-m")
    return call.program in ("torchrun", "deepspeed", "accelerate", "mpirun") or call.program in _ENGINES


def _told(script: Script) -> frozenset[int]:
    """Return the ids of what hands on to the shells that are told pipefail; the script's own shell is None's."""
    outer = {id(one.outer) for one in script.commands if one.texts[:1] == ("set",) and "pipefail" in one.texts}
    return frozenset(outer | ({id(None)} if _PIPEFAIL.search(script.text) else set()))


def _aside(command: Command) -> bool:
    """Tell whether a command only asks: its answer, not its exit code, is wanted."""
    words = {base(word) for word in command.texts}
    return bool(words & {"nvidia-smi", "hostname", "ps", "images", "inspect", "--version"})
