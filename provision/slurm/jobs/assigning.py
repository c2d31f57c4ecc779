"""Where variables are assigned: before a command, with export and env, with --env and --export."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from provision.slurm.jobs.calls import Option
from provision.slurm.jobs.words import Command, Word

ASSIGNMENT = re.compile(r"(\w+)(\+?)=(.*)", re.S)
#: Words behind which variables are assigned.
_ASSIGNING = frozenset({"export", "declare", "local", "readonly", "typeset", "env", "-e", "--env", "-x"})


def assignments(found: Iterable[Command], directives: Mapping[str, Option]) -> Iterator[tuple[Word, Command | None]]:
    """Yield the words that assign, each with its command; none is the job's own option --export."""
    if "export" in directives:
        export = directives["export"]
        yield from ((Word(one, export.line), None) for one in export.value.split(",") if "=" in one)
    for command in found:
        takes = True
        for word in command.words:
            if takes and ASSIGNMENT.fullmatch(word.text):
                yield word, command
                continue
            if match := re.fullmatch(r"(?:--env|-e)=?(\w+=.*)", word.text):
                yield Word(match[1], word.line), command
            elif word.text.startswith("--export="):
                given = word.text.removeprefix("--export=").split(",")
                yield from ((Word(one, word.line), command) for one in given if "=" in one)
            takes = word.text in _ASSIGNING or (takes and word.text.startswith("-"))
