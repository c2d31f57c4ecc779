"""Read a shell's text by character, as words and commands; expansions stay as they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator

from provision.slurm.jobs.groups import Groups
from provision.slurm.jobs.words import LATE, Command, Word

_ENDS = ("\n", ";", "&", "|", "(", ")")
_REDIRECTIONS = ("<<<", "<<-", "<<", ">>", ">|", "<&", ">&", "<", ">")
_NAME = re.compile(r"[A-Za-z_]\w*\+?=")

#: What stands up to an operator, and the operator: words, files, here-documents.
_Part = tuple[list[Word], list[str], list[list[Word]], str]


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
        read: list[_Part] = []
        while True:
            self._skip_blanks()
            if not (char := self._peek()):
                break
            if char in "<>" or (char.isdigit() and self._peek(1) in "<>" and self._peek(1)):
                self._redirection(files, documents)
            elif char in _ENDS:
                read.append((words, files, documents, self._operator()))
                words, files, documents = [], [], []
            else:
                words.append(self._word())
        read.append((words, files, documents, ""))
        yield from _grouped(read)

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


def _grouped(read: list[_Part]) -> Iterator[Command]:
    """Yield the commands of what was read; a here-document is known only when its line has ended."""
    groups = Groups()
    for at, (words, files, documents, end) in enumerate(read):
        if end == "(" and _header(words) and at + 1 < len(read) and read[at + 1] == ([], [], [], ")"):
            groups.function(words[-1].text)
        elif end == ")" and at and read[at - 1][3] == "(" and _header(read[at - 1][0]) and not words and not files:
            pass
        else:
            groups.add(words, files, next((found[0] for found in reversed(documents) if found), None), end)
            if end == "(":
                groups.enter("(")
            elif end == ")":
                groups.leave(")")
    yield from groups.commands()


def _header(words: list[Word]) -> bool:
    """Tell whether what stands before a parenthesis can be a function's name."""
    texts = [word.text for word in words if word.text != "function"]
    return len(texts) == 1 and re.fullmatch(r"[A-Za-z_][\w:.-]*", texts[0]) is not None
