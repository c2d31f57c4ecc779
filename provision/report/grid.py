"""Machines by subjects, as far as their checks have come: what a terminal shows while verify runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from provision import hostlist
from provision.model.checks import WORST, Check, Verdict


class Cell(NamedTuple):
    """What one subject has said of machines: the worst verdict, and how many checks there were."""

    verdict: Verdict
    checks: int


@dataclass
class Grid:
    """A fold over checks."""

    _cells: dict[str, dict[str, Cell]] = field(default_factory=dict)
    _taken: int = 0

    def take(self, checks: list[Check]) -> None:
        """Fold in the checks that a growing list has gained."""
        for check in checks[self._taken :]:
            cells = self._cells.setdefault(check.host, {})
            subject = check.id.partition(".")[0]
            before = cells.get(subject, Cell(Verdict.SKIP, 0))
            verdict = min(before.verdict, check.verdict, key=WORST.index)
            cells[subject] = Cell(verdict, before.checks + 1)
        self._taken = len(checks)

    def groups(self, most: int) -> list[tuple[str, dict[str, Cell]]]:
        """Return machines with the same cells together, those with what is wrong first; ``most`` groups at the most."""
        alike: dict[tuple[tuple[str, Cell], ...], list[str]] = {}
        for host, cells in self._cells.items():
            alike.setdefault(tuple(sorted(cells.items())), []).append(host)
        found = sorted(alike.items(), key=lambda entry: _rank(cell.verdict for _, cell in entry[0]))
        return [(hostlist.fold(hosts), dict(cells)) for cells, hosts in found[:most]]


def _rank(verdicts: Iterable[Verdict]) -> int:
    return min((WORST.index(verdict) for verdict in verdicts), default=len(WORST))
