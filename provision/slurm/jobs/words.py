"""A shell script's words and commands, as the reader finds them and the rules ask of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

#: A ``$`` that this shell leaves to whoever reads the text next; one that the script's own shell has expanded before;
#: one that a shell in between has.
LATE, EARLY, BETWEEN = "\ue000", "\ue001", "\ue002"


def base(path: str) -> str:
    """Return a path's last part."""
    return path.rpartition("/")[2]


@dataclass(frozen=True)
class Word:
    """One word without its quotes; ``line`` is where it begins, ``items`` the words of an array that it assigns.

    ``varies``: it may be another one on each node; without it, it is expanded once, in the batch script.
    """

    text: str
    line: int
    items: tuple[Word, ...] = ()
    varies: bool = True


@dataclass(frozen=True, eq=False)
class Command:
    """A command: its words (assignments before it too), and what surrounds it.

    ``outer``: the command that hands it to a shell or writes it to a file, None for one of the script itself.
    ``piped``: another command reads its output. ``background``: the shell does not wait for it. ``forgiven``: its
    failure is none, because of what follows a ``||``. All three also where a group that it is in is so.
    ``files``: where its output goes. ``document``: the here-document that it reads. ``function``: whose body it is in.
    """

    words: tuple[Word, ...]
    line: int
    outer: Command | None = None
    piped: bool = False
    background: bool = False
    forgiven: bool = False
    files: tuple[str, ...] = ()
    document: Word | None = field(default=None, compare=False)
    function: str = ""

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The words' texts."""
        return tuple(word.text for word in self.words)

    @cached_property
    def written(self) -> str | None:
        """The file to which it writes the here-document that it reads."""
        tee = self.texts[1:] if self.document is not None and self.texts[:1] == ("tee",) else ()
        names = (*self.files, *(word for word in tee if word[:1] != "-")) if self.document is not None else ()
        return base(names[0]) if names else None
