"""A job script as its mistakes are looked for in it: Slurm's options, the programs that it starts, its variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from provision.slurm.jobs.assigning import ASSIGNMENT, assignments
from provision.slurm.jobs.calls import PROGRAMS, SHORT, SLURM_BARE, Call, Option, options
from provision.slurm.jobs.shell import DEEPEST, commands
from provision.slurm.jobs.words import BETWEEN, EARLY, LATE, Command, Word, base

#: What names a file and does not run it.
_NOT_RUN = (("chmod",), ("cat",), ("rm",), ("tee",))

#: Variables within variables, as far as they are followed.
_DEPTH = 5
#: How many characters variables may put into a text or a command, and as how many each of them, or an array's word,
#: counts at least. A value that is longer is unknown: twenty times B in A, twenty times C in B would fill the memory.
_LONGEST, _EACH = 16384, 32

#: Programs whose command runs in many places.
_MANY = frozenset({
    "srun", "mpirun", "mpiexec", "pdsh", "clush", "ssh", "docker", "podman", "nvidia-docker", "apptainer",
    "singularity",
})  # fmt: skip

_REFERENCE = re.compile(
    rf"[${EARLY}{BETWEEN}](?:(\w+)|\{{(\w+)(?:\[[@*]\])?(?::?[-=]((?:[^{{}}]|\{{[^{{}}]*\}})*))?\}})"
)
_EXPANDED = re.compile(rf"([${EARLY}{BETWEEN}{LATE}])(?:\{{?(\w+))?")


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
        found: dict[str, list[Word]] = {}
        for word, command in self._assigned:
            if match := ASSIGNMENT.fullmatch(word.text):
                name, more, value = match.groups()
                if name in found and not more:
                    continue
                read = list(commands(value))
                # The words of a substitution are another shell's.
                parts = list(read[0].texts) if len(read) == 1 and not re.search(r"\$\((?!\()", value) else [value]
                items = word.items or tuple(Word(one, word.line) for one in parts)
                varying = (replace(one, varies=self.varies(one.text, command)) for one in items)
                found.setdefault(name, []).extend(varying)
        return {name: tuple(items) for name, items in found.items()}

    @cached_property
    def _joined(self) -> Mapping[str, str]:
        """The same as texts."""
        return {name: " ".join(word.text for word in items) for name, items in self.variables.items()}

    @cached_property
    def assignments(self) -> tuple[Word, ...]:
        """All words that assign to a variable: before a command, with export and env, with --env and --export."""
        return tuple(word for word, _ in self._assigned)

    @cached_property
    def assigning(self) -> Mapping[str, list[tuple[int, str, Word]]]:
        """The same by the variable's name: the place among all, the name, and the word."""
        found: dict[str, list[tuple[int, str, Word]]] = {}
        for at, word in enumerate(self.assignments):
            # Apptainer hands these to the container, without what stands before.
            name = re.sub("^(APPTAINER|SINGULARITY)ENV_", "", word.text.partition("=")[0])
            found.setdefault(name, []).append((at, name, word))
        return found

    @cached_property
    def _assigned(self) -> tuple[tuple[Word, Command | None], ...]:
        """The assignments, each with its command; none is the job's own option --export."""
        return tuple(assignments(self.commands, self.directives))

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
        # What runs each script that is written to a file.
        running: dict[int, tuple[Call, ...]] = {}
        # Of each file those that run it, which are few: a script of many files is read in one pass.
        users: dict[str, list[Command]] = {}
        for command in self.commands:
            for file in {base(word) for word in command.texts} if command.texts[:1] not in _NOT_RUN else ():
                users.setdefault(file, []).append(command)
        written = [command for command in self.commands if self._file(command)]
        for command in (*(one for one in self.commands if not self._file(one)), *written):
            by = found.get(id(command.outer), ()) if command.outer else ()
            if name := self._file(command):
                if id(command.outer) not in running:
                    others = (one for one in users.get(name, ()) if one.outer is not command.outer)
                    running[id(command.outer)] = next((found[id(one)] for one in others if found.get(id(one))), by)
                by = running[id(command.outer)]
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
        return self._inner_on_each[id(command.outer)]

    @cached_property
    def _inner_on_each(self) -> Mapping[int, bool]:
        """The same of all that a command hands to another shell, by its id; the script itself is None's."""
        found = {id(None): not self.batch}
        for outer in (command.outer for command in self.commands):
            if outer is not None and id(outer) not in found:
                starts = any(base(word) in _MANY for word in outer.texts) or outer.written is not None
                found[id(outer)] = (starts and outer.texts[:1] != ("eval",)) or found[id(outer.outer)]
        return found

    def _file(self, command: Command) -> str | None:
        """Return the file to which the script is written that a command belongs to."""
        return command.outer.written if command.outer else None

    def called(self, *programs: str) -> Iterator[Call]:
        """Yield the calls of some programs."""
        return (call for call in self.calls if call.program in programs)

    def resolved(self, words: Iterable[Word], command: Command) -> Iterator[Word]:
        """Yield a command's words with the script's own variables in them, an array as its words.

        What would be longer than is reasonable stays as it stands, as in `value`.
        """
        room = _Room()
        for word in words:
            varies = self.varies(word.text, command)
            yield from self._words(replace(word, items=(), varies=varies), word.line, _DEPTH, room)

    def _words(self, word: Word, line: int, depth: int, room: _Room) -> Iterator[Word]:
        whole = _REFERENCE.fullmatch(word.text)
        name = whole and (whole[1] or whole[2])
        if name and depth and name in self.variables:
            items = self.variables[name]
            if room.holds(len(self._joined[name]) + _EACH * len(items)):
                for one in items:
                    if one.text:  # what is empty is no word
                        yield from self._words(one, line, depth - 1, room)
            else:
                yield Word(f"${word.text[1:]}", line, varies=word.varies)
        else:
            yield Word(self._value(word.text, frozenset(), room), line, varies=word.varies)

    def value(self, text: str) -> str:
        """Return a text with the script's own variables in it; others stay as they stand, and so does a default.

        So does what would be longer than is reasonable.
        """
        return self._value(text, frozenset(), _Room())

    def _value(self, text: str, within: frozenset[str], room: _Room) -> str:
        def put(found: re.Match[str]) -> str:
            name = found[1] or found[2]
            if name in self.variables and name not in within and len(within) < _DEPTH:
                if room.holds(len(self._joined[name])):
                    return self._value(self._joined[name], within | {name}, room)
                return f"${found[0][1:]}"
            # NAME=${NAME:-default} is the default, but where a batch script sets it for the script of a step.
            if found[3] is None or (name in within and not self.batch):
                return f"${found[0][1:]}"
            return self._value(found[3], within | {name}, room)

        return _REFERENCE.sub(put, text)

    def _started(self, command: Command, by: tuple[Call, ...]) -> Iterator[Call]:
        words = tuple(self.resolved(command.words, command))
        first, at = "", 0
        while at < len(words) and len(by) < DEEPEST:
            name = base(words[at].text)
            known = name in PROGRAMS and (by or _runs(first))
            first = first or ("" if ASSIGNMENT.fullmatch(words[at].text) else words[at].text)
            if call := PROGRAMS[name](name, command, list(words[at + 1 :]), by) if known else None:
                yield call
                by, words, at = (*by, call), call.rest, 0
            else:
                at += 1


class _Room:
    """What variables may still put into a text."""

    def __init__(self) -> None:
        self._left = _LONGEST

    def holds(self, length: int) -> bool:
        """Take the room for a variable's text, if there is as much."""
        if length + _EACH > self._left:
            return False
        self._left -= length + _EACH
        return True


def _runs(first: str) -> bool:
    """Tell whether the first word before a program's name that assigns nothing, if there is one, can start it."""
    return not first or base(first) in {*PROGRAMS, *_RUNNERS}


#: Programs that run the program behind their own words.
_RUNNERS = (
    "env", "sudo", "timeout", "numactl", "nsys", "ncu", "exec", "time", "nice", "ionice", "stdbuf", "unbuffer",
    "taskset", "setsid", "chrt", "xargs",
)  # fmt: skip


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
