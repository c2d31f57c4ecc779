"""Groups of commands: what stands in which, and what becomes of the output and the exit code of a whole group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from provision.slurm.jobs.words import Command, Word

#: Words after which a command stands: of control structures, and programs that only run another one.
_BEFORE = frozenset({
    "if", "then", "else", "elif", "do", "while", "until", "!", "{", "time", "exec", "command", "builtin", "nohup",
})  # fmt: skip
_OPENED_BY = {"}": ("{",), ")": ("(",), "fi": ("if",), "esac": ("case",), "done": ("for", "while", "until", "select")}
_OPENS = frozenset(word for opened in _OPENED_BY.values() for word in opened)
#: Commands that succeed whatever was before them.
_FORGIVES = frozenset({("true",), (":",), ("exit", "0"), ("return", "0")})
_TELLS = frozenset({("echo",), ("printf",), ("logger",)})


@dataclass
class _Group:
    """A group: what opens it, the one that it is in, what follows it, and which command is the next behind it."""

    kind: str
    parent: int
    function: str
    end: str = ""
    after: int = 0


class Groups:
    """What has been read of a script, in order."""

    def __init__(self) -> None:
        # The first is the script itself.
        self._groups = [_Group("", 0, "")]
        self._open = [0]
        self._commands: list[tuple[Command, int, str]] = []
        self._pending = ""
        self._last, self._closed = 0, False

    def function(self, name: str) -> None:
        """Take the group that is opened next as a function's body."""
        self._pending = name

    def enter(self, kind: str) -> None:
        """Open a group."""
        name, self._pending = self._pending or self._groups[self._open[-1]].function, ""
        self._groups.append(_Group(kind, self._open[-1], name))
        self._open.append(len(self._groups) - 1)

    def leave(self, word: str) -> None:
        """Close a group, if it is the one that the word closes: of an unknown nesting nothing is said."""
        if self._groups[self._open[-1]].kind in _OPENED_BY[word]:
            self._last, self._closed = self._open.pop(), True

    def add(self, words: list[Word], files: list[str], document: Word | None, end: str) -> None:
        """Add what stands up to an operator."""
        closed, self._closed, at = self._closed and not words, False, 0
        while at < len(words):
            first = words[at].text
            if first == "function" and len(words) > at + 1:
                self.function(words[at + 1].text)
                at += 2
                continue
            if first in _OPENED_BY:
                self.leave(first)
            elif first in _OPENS:
                self.enter(first)
            if first not in _BEFORE:
                break
            at += 1
        if (words := words[at:]) or files:
            line = words[0].line if words else 0
            command = Command(tuple(words), line, files=tuple(files), document=document)
            self._commands.append((command, self._open[-1], end))
        if closed or self._closed:
            self._groups[self._last].end, self._groups[self._last].after = end, len(self._commands)
        self._closed = False

    def commands(self) -> Iterator[Command]:
        """Yield the commands with what surrounds them."""
        ends: list[tuple[bool, bool, bool]] = []
        for group in self._groups:
            own = self._what(group.end, group.after, group.parent)
            ends.append(_either(own, ends[group.parent]) if ends else own)
        for at, (command, number, end) in enumerate(self._commands):
            piped, background, forgiven = _either(self._what(end, at + 1, number), ends[number])
            name = self._groups[number].function
            yield replace(command, piped=piped, background=background, forgiven=forgiven, function=name)

    def _what(self, end: str, after: int, group: int) -> tuple[bool, bool, bool]:
        """Tell whether what ends so is piped, in the background, and forgiven by the command after it."""
        if end != "||" or after >= len(self._commands):
            return end in ("|", "|&"), end == "&", False
        following, beside, then = self._commands[after]
        # What is written to a file is there for who looks at it later.
        notes = any(not file.startswith("/dev/") for file in following.files)
        forgives = not notes and (following.texts in _FORGIVES or following.texts[:1] in _TELLS)
        return False, False, bool(forgives and beside == group and then not in ("&&", "||", "|"))


def _either(one: tuple[bool, bool, bool], other: tuple[bool, bool, bool]) -> tuple[bool, bool, bool]:
    return one[0] or other[0], one[1] or other[1], one[2] or other[2]
