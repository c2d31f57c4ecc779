"""What a row of the mutation table is: one thing that is broken by hand, and all that must follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One thing that somebody breaks.

    ``how`` is a shell script that root runs on the machine ``on``. ``red`` are the checks that turn red, each with what
    it says of this row: for files, packages, services and containers these words begin with the thing's own name. A
    check is that of the row's machine, or of another one as ``id@machine``. ``follows`` are checks that turn red only
    because of those, and are gone with them. ``restarts`` are the services and containers that provision starts anew,
    also as ``name@machine``. ``undo`` is a script that mends what provision refuses to work on.
    """

    what: str
    on: str
    how: str
    red: Mapping[str, str | tuple[str, ...]]
    follows: tuple[str, ...] = ()
    restarts: tuple[str, ...] = ()
    undo: str = ""

    @property
    def says(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """By check id and machine: the words that the check must say, none for what only follows."""
        told = {place(name, self.on): (words,) if isinstance(words, str) else words for name, words in self.red.items()}
        return {place(name, self.on): () for name in self.follows} | told

    @property
    def consequences(self) -> set[tuple[str, str]]:
        """Id and machine of each check that only follows."""
        return {place(name, self.on) for name in self.follows}

    @property
    def started_anew(self) -> set[tuple[str, str]]:
        """Name and machine of each service and container that provision starts anew."""
        return {place(name, self.on) for name in self.restarts}

    def is_about(self, check: str, thing: str) -> bool:
        """Tell whether one of the row's checks of this id speaks of the thing; of a check alone, where it is empty."""
        told = [words for (name, _), words in self.says.items() if name == check]
        return any(not thing or words == thing or words.startswith(f"{thing} ") for said in told for words in said)


def place(name: str, machine: str) -> tuple[str, str]:
    """Split ``name@machine``; the machine is the second word where the first names none."""
    found, _, other = name.partition("@")
    return found, other or machine


def expected(rows: Iterable[Row]) -> dict[tuple[str, str], list[str]]:
    """Return by check id and machine all that rows which are broken at once say of it."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for key, words in row.says.items():
            found.setdefault(key, []).extend(words)
    return found


#: Ways to spoil what is at a path, each with what the check says of it then. No file is declared with such a mode.
_SPOILT = {
    "text": ("echo '# by hand' >>{path}", "has another text"),
    "mode": ("chmod 0601 {path}", "has mode 0601, not"),
    "owner": ("chown nobody {path}", "has owner nobody, not"),
    "gone": ("rm -r {path}", "is absent"),
    "there": ("mkdir -p $(dirname {path}); echo by hand >{path}", "is there"),
}


def spoilt(kind: str, role: str, path: str, *machines: str, restarts: tuple[str, ...] = (), **more: str) -> list[Row]:
    """Return a row a machine: what is at a path has another text, mode or owner, is gone, or is there.

    ``more`` are further checks of the role that turn red, by their last word.
    """
    how, says = _SPOILT[kind]
    red = {f"{role}.files": f"{path} {says}"} | {f"{role}.{name}": words for name, words in more.items()}
    return [Row(f"{kind} of {path}", machine, how.format(path=path), red, (), restarts) for machine in machines]


@dataclass(frozen=True)
class Batch:
    """Rows that do not touch each other: they are broken, told of and repaired together.

    ``verified`` are broken first, and judged by verify, too: none of them is in the way of a job. ``rare``: further
    variants of what the other batches break, for the nightly run; each batch has all roles work on all machines.
    """

    name: str
    rows: tuple[Row, ...]
    verified: tuple[Row, ...] = ()
    rare: bool = False
