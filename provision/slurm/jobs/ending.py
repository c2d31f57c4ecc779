"""The end of a script that comes too early: within a quote, a substitution or a here-document."""

from __future__ import annotations

import re
from collections.abc import Iterator

from provision.slurm.jobs.finding import Told
from provision.slurm.jobs.reader import Reader
from provision.slurm.jobs.script import Script

#: What this reader may take for another thing than a shell does, in what a substitution has.
_DOUBTFUL = re.compile(r"[\\`]|\s#|<<|\bcase\b")


class _Ending(Reader):
    """A reader that notes where something begins that the end of the text leaves open, and whether that is sure."""

    def __init__(self, text: str) -> None:
        # So no closing quote is the last character.
        super().__init__(f"{text}\n", 1)
        self.left: list[tuple[int, str]] = []
        self.sure = True

    def _until(self, end: str) -> str:
        line, before = self._line, self._text[self._at - 2 : self._at]
        if self._text.find(end, self._at) < 0:
            self.left.append((line, end))
        taken = super()._until(end)
        if end == "`" or before == "$'":
            self.sure &= not re.search(r"[\\\"#]", taken)
        return taken

    def _double(self) -> str:
        line, taken = self._line, super()._double()
        if self._at >= len(self._text):
            self.left.append((line, '"'))
        return taken

    def _dollar(self) -> str:
        line, taken = self._line, super()._dollar()
        if taken[:2] == "$(" and self._at >= len(self._text):
            self.left.append((line, "$("))
        if taken[:2] in ("$(", "${"):
            self.sure &= not (_DOUBTFUL.search(taken) or taken.count("'") % 2 or taken.count('"') % 2)
        return taken

    def _read_documents(self) -> None:
        line, ends = self._line - 1, [end for end, *_ in self._documents]
        super()._read_documents()
        if len(ends) != 1 or self._at < len(self._text):
            return
        last = self._text.rstrip("\n").rpartition("\n")[2].lstrip("\t")
        if last != ends[0]:
            # A number is no name of one's: ((bits<<3)).
            self.sure &= re.fullmatch(r"[A-Za-z_]\w*", ends[0]) is not None
            self.left.append((line, ends[0]))


def unclosed(script: Script) -> Iterator[Told]:
    """A quote, a substitution or a here-document without an end; told only where no shell could read it otherwise."""
    reader = _Ending(script.text)
    for _ in reader.commands():
        pass
    if not reader.left or not reader.sure:
        return
    line, end = reader.left[0]
    before = script.text.split("\n")[:line]
    # Behind an exit there may be anything, and in (( )) << is no document.
    if any(re.match(r"(exit|exec)\b", one) for one in before) or "((" in before[-1]:
        return
    if end in "'\"`":
        effect = "the shell ends with 'unexpected EOF', after it has run what stands above"
        yield line, f"the quote {end} that begins here is never closed", effect, f"close it with {end}"
    elif end == "$(":
        effect = "the shell ends with 'unexpected EOF', after it has run what stands above"
        yield line, "the $( that begins here is never closed", effect, "close it with )"
    else:
        effect = "what stands below is its text, and is not run"
        yield line, f"the here-document {end} never ends", effect, f"a line that is {end} alone, without blanks"
