"""A job script as its mistakes are looked for in it: Slurm's options, the programs that it starts, its variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from provision.slurm.jobs.calls import PROGRAMS, SHORT, SLURM_BARE, Call, Option, options
from provision.slurm.jobs.shell import DEEPEST, commands
from provision.slurm.jobs.words import BETWEEN, EARLY, LATE, Command, Word, base

#: What names a file and does not run it.
_NOT_RUN = (("chmod",), ("cat",), ("rm",), ("tee",))

#: Variables within variables, as far as they are followed.
_DEPTH = 5

#: Programs whose command runs in many places.
_MANY = frozenset({
    "srun", "mpirun", "mpiexec", "pdsh", "clush", "ssh", "docker", "podman", "nvidia-docker", "apptainer",
    "singularity",
})  # fmt: skip

_REFERENCE = re.compile(
    rf"[${EARLY}{BETWEEN}](?:(\w+)|\{{(\w+)(?:\[[@*]\])?(?::?[-=]((?:[^{{}}]|\{{[^{{}}]*\}})*))?\}})"
)
_EXPANDED = re.compile(rf"([${EARLY}{BETWEEN}{LATE}])(?:\{{?(\w+))?")
_ASSIGNMENT = re.compile(r"(\w+)(\+?)=(.*)", re.S)


@dataclass(frozen=True)
class Script:
    """A job script. ``directives`` are what stands behind #SBATCH, by long names."""

    text: str
    directives: Mapping[str, Option]
    commands: tuple[Command, ...]

    @property
    def batch(self) -> bool:
        """Whether it is one for sbatch; another is what each task runs."""
        return bool(self.directives)

    @cached_property
    def variables(self) -> Mapping[str, tuple[Word, ...]]:
        """What is assigned to each variable, the first time, or as an array with all that is appended to it."""
        found: dict[str, tuple[Word, ...]] = {}
        for word, command in self._assigned:
            if match := _ASSIGNMENT.fullmatch(word.text):
                name, more, value = match.groups()
                read = list(commands(value))
                # The words of a substitution are another shell's.
                parts = list(read[0].texts) if len(read) == 1 and not re.search(r"\$\((?!\()", value) else [value]
                items = word.items or tuple(Word(one, word.line) for one in parts)
                items = tuple(replace(one, varies=self.varies(one.text, command)) for one in items)
                if more or name not in found:
                    found[name] = found.get(name, ()) + items
        return found

    @cached_property
    def assignments(self) -> tuple[Word, ...]:
        """All words that assign to a variable: before a command, with export and env, with --env and --export."""
        return tuple(word for word, _ in self._assigned)

    @cached_property
    def _assigned(self) -> tuple[tuple[Word, Command | None], ...]:
        """The assignments, each with its command; none is the job's own option --export."""
        return tuple(_assignments(self.commands, self.directives))

    @cached_property
    def _once(self) -> frozenset[str]:
        """The variables that are the same on each node: the batch script alone assigns them, without a $ left."""
        names: dict[str, bool] = {}
        for word, command in self._assigned:
            name = word.text.partition("=")[0].rstrip("+")
            late = LATE in word.text or any(LATE in one.text for one in word.items)
            each = command is not None and self.each_node(command)
            names[name] = names.get(name, True) and not (late or each)
        return frozenset(name for name, once in names.items() if once)

    def once(self) -> Iterator[tuple[int, str, str]]:
        """Yield line, name and value of each assignment that only the batch script makes, before any step."""
        for word, command in self._assigned:
            name, _, value = word.text.partition("=")
            if name in self._once and not self.varies(value, command):
                yield word.line, name, self.value(value)

    def varies(self, text: str, command: Command | None) -> bool:
        """Tell whether a word of a command may be another one on each node, because a shell there expands it."""
        each = command is not None and self.each_node(command)
        for mark, name in _EXPANDED.findall(text):
            if mark in (LATE, BETWEEN) or not self.batch or (mark == "$" and each and name not in self._once):
                return True
            # The batch script's value, which may leave a $ to the shell of the step.
            if name in self.variable_names and name not in self._once:
                return True
        return False

    @cached_property
    def variable_names(self) -> frozenset[str]:
        """The names of all variables that the script assigns to."""
        return frozenset(word.text.partition("=")[0].rstrip("+") for word in self.assignments)

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """All programs that are started, in their order."""
        return tuple(call for command in self.commands for call in self._starts[id(command)] if call.command is command)

    def starters(self, command: Command) -> tuple[Call, ...]:
        """Return the programs by which the shell is started that runs a command, the outermost first."""
        return tuple(call for call in self._starts[id(command)] if call.command is not command)

    @cached_property
    def _starts(self) -> Mapping[int, tuple[Call, ...]]:
        """What starts each command, and then what it starts; a script in a file is started by who names the file."""
        found: dict[int, tuple[Call, ...]] = {}
        # Of each file those that run it, which are few: a script of many files is read in one pass.
        users: dict[str, list[Command]] = {}
        for command in self.commands:
            for file in {base(word) for word in command.texts} if command.texts[:1] not in _NOT_RUN else ():
                users.setdefault(file, []).append(command)
        written = [command for command in self.commands if self._file(command)]
        for command in (*(one for one in self.commands if not self._file(one)), *written):
            by = found.get(id(command.outer), ()) if command.outer else ()
            if name := self._file(command):
                others = (one for one in users.get(name, ()) if one.outer is not command.outer)
                by = next((found[id(one)] for one in others if found.get(id(one))), by)
            found[id(command)] = (*by, *self._started(command, by))
        return found

    @cached_property
    def starting(self) -> frozenset[int]:
        """The ids of the calls that start another one, but for scontrol, which only asks."""
        return frozenset(id(by) for call in self.calls if call.program != "scontrol" for by in call.by)

    @cached_property
    def handed(self) -> Mapping[int, tuple[Command, ...]]:
        """What each command hands to another shell, by its id."""
        found: dict[int, list[Command]] = {}
        for command in self.commands:
            if command.outer is not None:
                found.setdefault(id(command.outer), []).append(command)
        return {outer: tuple(inner) for outer, inner in found.items()}

    def each_node(self, command: Command) -> bool:
        """Whether a command runs in every task or on every node, not once in the batch script."""
        if command.outer is None:
            return not self.batch
        outer = command.outer
        if outer.texts[:1] == ("eval",):
            return self.each_node(outer)
        starts = any(base(word) in _MANY for word in outer.texts) or self._file(command) is not None
        return starts or self.each_node(outer)

    def _file(self, command: Command) -> str | None:
        """Return the file to which the script is written that a command belongs to."""
        outer = command.outer
        if outer is None or outer.document is None:
            return None
        names = (*outer.files, *(word for word in outer.texts[1:] if outer.texts[0] == "tee" and word[:1] != "-"))
        return base(names[0]) if names else None

    def called(self, *programs: str) -> Iterator[Call]:
        """Yield the calls of some programs."""
        return (call for call in self.calls if call.program in programs)

    def resolved(self, words: Iterable[Word], command: Command | None = None, depth: int = 5) -> Iterator[Word]:
        """Yield a command's words with the script's own variables in them, an array as its words."""
        for word in words:
            whole = _REFERENCE.fullmatch(word.text)
            name = whole and (whole[1] or whole[2])
            if name and name in self.variables and depth:
                # What is empty is no word.
                items = (replace(one, line=word.line) for one in self.variables[name] if one.text)
                yield from self.resolved(items, depth=depth - 1)
            else:
                varies = self.varies(word.text, command) if command else word.varies
                yield Word(self.value(word.text), word.line, varies=varies)

    def value(self, text: str, within: frozenset[str] = frozenset()) -> str:
        """Return a text with the script's own variables in it; others stay as they stand, and so does a default."""

        def put(found: re.Match[str]) -> str:
            name = found[1] or found[2]
            if name in self.variables and name not in within and len(within) < _DEPTH:
                return self.value(" ".join(word.text for word in self.variables[name]), within | {name})
            # NAME=${NAME:-default} is the default, but where a batch script sets it for the script of a step.
            if found[3] is None or (name in within and not self.batch):
                return f"${found[0][1:]}"
            return self.value(found[3], within | {name})

        return _REFERENCE.sub(put, text)

    def _started(self, command: Command, by: tuple[Call, ...]) -> Iterator[Call]:
        words = tuple(self.resolved(command.words, command))
        at = 0
        while at < len(words) and len(by) < DEEPEST:
            name = base(words[at].text)
            known = name in PROGRAMS and (by or _runs(words[:at]))
            if call := PROGRAMS[name](name, command, list(words[at + 1 :]), by) if known else None:
                yield call
                by, words, at = (*by, call), call.rest, 0
            else:
                at += 1


def _runs(before: tuple[Word, ...]) -> bool:
    """Tell whether what stands before a program's name can start it: assignments, and programs that run others."""
    first = next((word.text for word in before if not _ASSIGNMENT.fullmatch(word.text)), "")
    return not first or base(first) in {*PROGRAMS, *_RUNNERS}


#: Programs that run the program behind their own words.
_RUNNERS = (
    "env", "sudo", "timeout", "numactl", "nsys", "ncu", "exec", "time", "nice", "ionice", "stdbuf", "unbuffer",
    "taskset", "setsid", "chrt", "xargs",
)  # fmt: skip


def _assignments(found: Iterable[Command], directives: Mapping[str, Option]) -> Iterator[tuple[Word, Command | None]]:
    if "export" in directives:
        export = directives["export"]
        yield from ((Word(one, export.line), None) for one in export.value.split(",") if "=" in one)
    for command in found:
        takes = True
        for word in command.words:
            if takes and _ASSIGNMENT.fullmatch(word.text):
                yield word, command
                continue
            if match := re.fullmatch(r"(?:--env|-e)=?(\w+=.*)", word.text):
                yield Word(match[1], word.line), command
            elif word.text.startswith("--export="):
                given = word.text.removeprefix("--export=").split(",")
                yield from ((Word(one, word.line), command) for one in given if "=" in one)
            takes = word.text in _ASSIGNING or (takes and word.text.startswith("-"))


#: Words behind which variables are assigned.
_ASSIGNING = frozenset({"export", "declare", "local", "readonly", "typeset", "env", "-e", "--env", "-x"})


def _directives(text: str) -> Iterator[tuple[str, Option]]:
    """Yield what sbatch reads: lines that begin with #SBATCH, until the first command."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.startswith("#"):
            return
        if match := re.match(r"#SBATCH\s+(.*)", line):
            words = [Word(word, number) for word in re.sub(r"\s#.*", "", match[1]).replace('"', "").split()]
            found, _ = options(words, SLURM_BARE)
            yield from ((SHORT.get(key, key), option) for key, option in found.items())


def script(text: str) -> Script:
    """Read a job script; whatever is in the text, it is read as far as it can be."""
    return Script(text, dict(_directives(text)), tuple(commands(text)))
