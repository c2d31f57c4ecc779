"""The table of ports that machines need from one another, as lines. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from provision import hostlist

_HEAD = ("PORT", "FROM", "TO", "WHAT", "SET BY")
#: Names in one cell that are written out.
_LISTED = 4


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each row, below those of its head: columns as wide as their longest word, the last as it is."""
    cells = [
        (
            f"{row['port']}/{row['protocol']}",
            _named(row["sources"]),
            _named(row["targets"]),
            row["purpose"],
            row["variable"].removeprefix("slurm_conf_parameters: "),
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in (_HEAD, *cells)) for column in range(len(_HEAD))]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in (_HEAD, *cells)]


def _named(names: Sequence[str]) -> str:
    """Return groups by their short names, machines (many as a hostlist) and others in one cell."""
    short = [name.removeprefix("slurm_") for name in names]
    return hostlist.fold(short) if len(short) > _LISTED else ", ".join(short)
