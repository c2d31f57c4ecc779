"""Read a shell script as the commands that it would run, also those that it hands to other shells and writes to files.

Not a shell: expansions stay as they stand, control structures are only taken off. What is expanded where matters, so a
``$`` is kept as one that this shell expands, or as `LATE`, one that is left to whoever reads the text next (quoted by '
or by a backslash); inside such a text, ``$`` that was expanded before is `EARLY`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

LATE, EARLY = "\ue000", "\ue001"

#: Words after which a command stands: of control structures, and programs that only run another one.
_BEFORE = frozenset({
    "if", "then", "else", "elif", "do", "while", "until", "!", "{", "time", "exec", "command", "builtin", "nohup",
})  # fmt: skip
_SHELLS = frozenset(("bash", "sh", "dash", "zsh", "ksh"))
_ENDS = ("\n", ";", "&", "|", "(", ")")
_REDIRECTIONS = ("<<<", "<<-", "<<", ">>", ">|", "<&", ">&", "<", ">")
_NAME = re.compile(r"[A-Za-z_]\w*\+?=")


def base(path: str) -> str:
    """Return a path's last part."""
    return path.rpartition("/")[2]


@dataclass(frozen=True)
class Word:
    """One word without its quotes; ``line`` is where it begins, ``items`` the words of an array that it assigns."""

    text: str
    line: int
    items: tuple[Word, ...] = ()


@dataclass(frozen=True, eq=False)
class Command:
    """A command: its words (assignments before it too), and what surrounds it.

    ``outer``: the command that hands it to a shell or writes it to a file, None for one of the script itself.
    ``piped``: another command reads its output. ``background``: the shell does not wait for it.
    ``files``: where its output goes. ``document``: the here-document that it reads.
    """

    words: tuple[Word, ...]
    line: int
    outer: Command | None = None
    piped: bool = False
    background: bool = False
    files: tuple[str, ...] = ()
    document: Word | None = field(default=None, compare=False)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The words' texts."""
        return tuple(word.text for word in self.words)


class Reader:
    """One pass over a text, by character."""

    def __init__(self, text: str, line: int) -> None:
        self._text, self._at, self._line = text, 0, line
        self._documents: list[tuple[str, bool, bool, list[Word]]] = []

    def commands(self) -> Iterator[Command]:
        """Yield the commands in their order."""
        words: list[Word] = []
        files: list[str] = []
        documents: list[list[Word]] = []
        while True:
            self._skip_blanks()
            if not (char := self._peek()):
                break
            if char in "<>" or (char.isdigit() and self._peek(1) in "<>" and self._peek(1)):
                self._redirection(files, documents)
            elif char in _ENDS:
                end = self._operator()
                yield from _command(words, files, documents, piped=end in ("|", "|&"), background=end == "&")
                words, files, documents = [], [], []
            else:
                words.append(self._word())
        yield from _command(words, files, documents)

    def _peek(self, ahead: int = 0) -> str:
        return self._text[self._at + ahead : self._at + ahead + 1]

    def _take(self, count: int = 1) -> str:
        taken = self._text[self._at : self._at + count]
        self._at += count
        self._line += taken.count("\n")
        return taken

    def _skip_blanks(self) -> None:
        while True:
            if self._peek() in (" ", "\t", "\r"):
                self._take()
            elif self._text.startswith("\\\n", self._at):
                self._take(2)
            elif self._peek() == "#":
                while self._peek() not in ("", "\n"):
                    self._take()
            else:
                return

    def _operator(self) -> str:
        for known in ("&&", "||", "|&", ";;"):
            if self._text.startswith(known, self._at):
                return self._take(2)
        taken = self._take()
        if taken == "\n":
            self._read_documents()
        return taken

    def _redirection(self, files: list[str], documents: list[list[Word]]) -> None:
        while self._peek().isdigit():
            self._take()
        kind = next(kind for kind in _REDIRECTIONS if self._text.startswith(kind, self._at))
        self._take(len(kind))
        self._skip_blanks()
        if self._peek() in ("", "\n"):
            return
        if kind in ("<", ">") and self._peek() == "(":
            return
        quoted = self._peek() in "'\"\\"
        word = self._word()
        if kind in ("<<", "<<-"):
            documents.append([])
            self._documents.append((word.text, quoted, kind == "<<-", documents[-1]))
        elif kind.startswith(">") and kind != ">&":
            files.append(word.text)

    def _read_documents(self) -> None:
        for end, quoted, tabs, found in self._documents:
            first, lines = self._line, []
            while self._at < len(self._text):
                line = self._take((self._text.find("\n", self._at) + 1 or len(self._text) + 1) - self._at).rstrip("\n")
                if (line.lstrip("\t") if tabs else line) == end:
                    break
                lines.append(line)
            found.append(Word(_handed_on("\n".join(lines), quoted=quoted), first))
        self._documents = []

    def _word(self, *, in_array: bool = False) -> Word:
        line, parts = self._line, list[str]()
        while (char := self._peek()) and char not in " \t\n;&|<>)":
            if char == "(":
                if in_array or not _NAME.fullmatch("".join(parts)):
                    break
                return Word("".join(parts), line, tuple(self._array()))
            parts.append(self._part(char))
        if not parts:  # a character that begins no word here
            parts.append(self._take())
        return Word("".join(parts), line)

    def _array(self) -> Iterator[Word]:
        self._take()
        while True:
            self._skip_blanks()
            if self._peek() in ("", ")"):
                self._take()
                return
            if self._peek() == "\n":
                self._take()
            else:
                yield self._word(in_array=True)

    def _part(self, char: str) -> str:
        if char == "\\":
            taken = self._take(2)[1:]
            return {"\n": "", "$": LATE}.get(taken, taken)
        if char == "'":
            self._take()
            return self._until("'").replace("$", LATE)
        if char == '"':
            self._take()
            return self._double()
        if char == "`":
            self._take()
            return f"$({self._until('`')})"
        if char == "$":
            return self._dollar()
        return self._take()

    def _until(self, end: str) -> str:
        found = self._text.find(end, self._at)
        taken = self._take((found if found >= 0 else len(self._text)) - self._at)
        self._take()
        return taken

    def _double(self) -> str:
        parts = []
        while (char := self._peek()) and char != '"':
            if char == "\\":
                taken = self._take(2)
                parts.append({"\\$": LATE, '\\"': '"', "\\\\": "\\", "\\`": "`"}.get(taken, taken))
            elif char in "$`":
                parts.append(self._part(char))
            else:
                parts.append(self._take())
        self._take()
        return "".join(parts)

    def _dollar(self) -> str:
        opened = self._peek(1)
        if opened == "'":
            self._take(2)
            return self._until("'").replace("$", LATE)
        if opened not in ("(", "{"):
            return self._take()
        closed, depth, begun = {"(": ")", "{": "}"}[opened], 0, self._at
        self._take()
        while char := self._peek():
            if char == "\\":
                self._take(2)
                continue
            if char in "'\"" and opened == "(":
                self._take()
                self._until(char)
                continue
            depth += {opened: 1, closed: -1}.get(char, 0)
            self._take()
            if not depth:
                break
        return self._text[begun : self._at]


def _handed_on(document: str, *, quoted: bool) -> str:
    """Return a here-document as a word has it that this shell has read."""
    if quoted:
        return document.replace("$", LATE)
    return re.sub(r"\\([$\\`])", lambda found: LATE if found[1] == "$" else found[1], document)


def _command(
    words: list[Word], files: list[str], documents: list[list[Word]], *, piped: bool = False, background: bool = False
) -> Iterator[Command]:
    while words and words[0].text in _BEFORE:
        words = words[1:]
    if words or files:
        line = words[0].line if words else 0
        document = next((found[0] for found in reversed(documents) if found), None)
        yield Command(tuple(words), line, None, piped, background, tuple(files), document)


def _inner(command: Command) -> Iterator[Word]:
    """Yield the texts that a command hands to another shell, or writes to a script."""
    words = command.words
    for at, word in enumerate(words[:-1]):
        if base(word.text) in _SHELLS:
            for given, script in zip(words[at + 1 :], words[at + 2 :], strict=False):
                if re.fullmatch(r"-[a-z]*c[a-z]*", given.text):
                    yield script
                    break
                if not given.text.startswith("-"):
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
            handed = script.text.replace("$", EARLY).replace(LATE, "$")
            yield from commands(handed, script.line, command, depth + 1)
