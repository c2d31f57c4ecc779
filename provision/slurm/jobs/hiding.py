"""Failures that nobody sees: a pipe behind the work, and what makes its exit code a good one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

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
    hidden = not _seen(script)
    for command in script.commands:
        name = command.texts[0] if command.texts else ""
        if command.piped and (launches(command) or name in launching) and id(command.outer) not in told:
            problem = "the exit code is that of the last command behind the pipe"
            better = "set -o pipefail, before it; or srun --output=FILE instead of a pipe"
            yield command.line, problem, effect, better
        if hidden and command.forgiven and (trains(command) or name in training):
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
    return _from(found, callers)


def _seen(script: Script) -> bool:
    """Tell whether the failure of one of the steps ends the job: what is beside it may fail, a plot or a look."""
    steps = [call for call in script.calls if _trains(script, call)]
    starting = {id(by) for call in steps for by in call.by}
    reached = _reached(script)
    return any(
        # Who asks a module for its version is no step.
        not (call.program == "srun" and [base(word.text)[:6] for word in call.rest[:2]] == ["python", "-c"])
        and all(_counts(command, reached) for command in (call.command, *(by.command for by in call.by)))
        for call in steps
        if id(call) not in starting
    )


def _counts(command: Command, reached: frozenset[str]) -> bool:
    """Tell whether the failure of a command is one of whoever started the script."""
    return not _forgiven(command) and (not (name := _body(command)) or name in reached)


def _around(command: Command) -> Iterator[Command]:
    """Yield a command, and those that hand it on."""
    inner: Command | None = command
    while inner is not None:
        yield inner
        inner = inner.outer


def _forgiven(command: Command) -> bool:
    return any(one.forgiven for one in _around(command))


def _body(command: Command) -> str:
    """Return the function that a command is in, also by a shell that is started there."""
    return next((one.function for one in _around(command) if one.function), "")


def _reached(script: Script) -> frozenset[str]:
    """Return the functions whose failure counts somewhere; of one that nobody calls by its name, nobody knows."""
    names = {command.function for command in script.commands if command.function}
    called = {command.texts[0] for command in script.commands if command.texts}
    calls: dict[str, set[str]] = {}
    for command in script.commands:
        if command.texts and command.texts[0] in names and not _forgiven(command):
            calls.setdefault(_body(command), set()).add(command.texts[0])
    return _from([*(names - called), ""], calls)


def _from(begun: Iterable[str], after: Mapping[str, set[str]]) -> frozenset[str]:
    """Return the names that are begun with, and all that come after them."""
    found = [*begun]
    known = set(found)
    while found:
        new = after.get(found.pop(), set()) - known
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
