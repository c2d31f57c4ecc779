"""The table that fills while verify runs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from provision.model.checks import Check, Verdict
from provision.report.bar import table
from provision.report.grid import Grid


def drawn(grid: Grid, width: int = 100, height: int = 30) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(table(grid, width, height))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def check(host: str, name: str, verdict: Verdict = Verdict.PASS) -> Check:
    return Check(id=name, host=host, verdict=verdict, observed="x")


def test_machines_of_the_same_verdicts_are_one_column_and_the_worst_is_first() -> None:
    grid, checks = Grid(), [check(f"node{number}", "munge.key") for number in range(1, 5)]
    grid.take(checks)
    checks += [check("node3", "munge.clock", Verdict.FAIL), check("node3", "slurm.state")]
    grid.take(checks)

    head, munge, slurm = drawn(grid)

    assert head.split() == ["node3", "node[1-2,4]"]
    assert munge.split() == ["munge", "fail", "pass", "1"]
    assert slurm.split() == ["slurm", "pass", "1"]


@pytest.mark.parametrize("width", [70, 100])
def test_a_table_of_many_machines_and_subjects_fits_the_terminal(width: int) -> None:
    grid = Grid()
    grid.take([check(f"n{host:03}", f"s{number}.x", list(Verdict)[(host * number) % 5])
               for host in range(400) for number in range(40)])  # fmt: skip

    lines = drawn(grid, width, 20)

    assert len(lines) == 21
    assert max(map(len, lines)) <= width
