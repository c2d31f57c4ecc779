"""Read a shell script as the commands that it would run, also those that it hands to other shells and writes to files.

Not a shell: expansions stay as they stand, control structures are only taken off. What is expanded where matters, so a
``$`` is kept as one that this shell expands, or as `LATE`, one that is left to whoever reads the text next (quoted by '
or by a backslash); inside such a text, ``$`` that was expanded before is `EARLY`, or `BETWEEN` if not by the script's
own shell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from provision.slurm.jobs.reader import Reader
from provision.slurm.jobs.words import BETWEEN, EARLY, LATE, Command, Word, base

_SHELLS = frozenset(("bash", "sh", "dash", "zsh", "ksh"))


def _inner(command: Command) -> Iterator[Word]:
    """Yield the texts that a command hands to another shell, or writes to a script."""
    words = command.words
    if command.texts[:1] == ("eval",) and len(words) > 1:
        yield Word(" ".join(command.texts[1:]), words[1].line)
        return
    for at, word in enumerate(words[:-1]):
        if base(word.text) in _SHELLS:
            while at + 2 < len(words) and words[at + 1].text.startswith("-"):
                at += 1
                if re.fullmatch(r"-[a-z]*c[a-z]*", words[at].text):
                    yield words[at + 1]
                    break
    if command.document is not None and is_script(command.document.text, command.files, command.texts):
        yield command.document


def for_a_shell(first: str) -> bool:
    """Tell whether a script's first line, which begins with #!, names a shell that this reads."""
    return re.search(r"\b(ba|da|z|k)?sh\b", first) is not None


def is_script(text: str, files: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """Tell whether a here-document is a shell script: by its first line, by its file's name, by who reads it."""
    first = text.lstrip().split("\n", 1)[0]
    if first.startswith("#!"):
        return for_a_shell(first)
    names = (*files, *(word for word in words[1:] if words[0] == "tee"))
    if any(name.endswith((".sh", ".bash", ".slurm", ".sbatch")) for name in names):
        return True
    return any(base(word) in (*_SHELLS, "ssh", "sbatch") for word in words)


#: Shells within shells, and programs that start programs, as far as they are followed: nobody writes half as many.
DEEPEST = 20


def commands(text: str, line: int = 1, outer: Command | None = None, depth: int = 0) -> Iterator[Command]:
    """Yield a script's commands, each followed by those that it hands on; ``line`` is that of the text's first."""
    for command in Reader(text, line).commands():
        command = replace(command, outer=outer)
        yield command
        for script in _inner(command) if depth < DEEPEST else ():
            handed = script.text.replace("$", BETWEEN if depth else EARLY).replace(LATE, "$")
            yield from commands(handed, script.line, command, depth + 1)
