"""What can go wrong, said so that the operator can fix it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command; users' scripts rely on them."""

    DONE = 0
    BUG = 1
    BAD_REQUEST = 2
    PREFLIGHT_REFUSED = 3
    MACHINE_FAILED = 4
    MACHINE_UNREACHABLE = 5
    LOCKED = 6
    ROLLED_BACK = 7
    VERIFICATION_FAILED = 8
    CHANGES_PENDING = 10
    INTERRUPTED = 130
    TERMINATED = 143


class ClusterctlError(Exception):
    """Something the operator can fix, said together with how to fix it.

    ``said`` are name and value of what is wrong as they stand in the inventory, for whoever can tell in which line, and
    below which variable, where that is another. ``entry`` is what is wrong of a list or a mapping: the variable, the
    entry's number (from 0; None: a mapping), its key; ``row`` which line of the text that it holds (from 1; 0: all).
    ``member`` are a group and one of its hosts where that is wrong.
    Whoever cannot name a fix has met a bug: raise anything else, and it becomes a traceback with exit code 1.
    """

    def __init__(
        self,
        problem: str,
        *,
        fix: str,
        exit_code: ExitCode = ExitCode.BAD_REQUEST,
        said: tuple[str, str] | tuple[str, str, str] = ("", ""),
        entry: tuple[str, int | None, str] = ("", None, ""),
        row: int = 0,
        member: tuple[str, str] = ("", ""),
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.fix = fix
        self.exit_code = exit_code
        self.said = said
        self.entry = entry
        self.row = row
        self.member = member


def did_you_mean(word: str, known: Iterable[str], otherwise: str) -> str:
    """Return the fix for a word that is none of those ``known``: the nearest of them, else ``otherwise``."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]}?" if near else otherwise
