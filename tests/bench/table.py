"""Figures as people compare them. Pure: costs in, text out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from bench.processor import Cost

#: What one road cost, by the number of machines.
Costs = Mapping[int, Cost]

#: What a figure's name says is to be reached: "(aim: 1.2 or less)", of a cost "(aim for three machines: 8 s wall)".
_AIM = re.compile(r"\(aim[^:)]*: ([^)]*)\)")


def per_machine(costs: Costs) -> float | None:
    """Return the processor seconds of each further machine, between the fewest and the most; None with one figure."""
    few, many = min(costs), max(costs)
    return (costs[many].processor - costs[few].processor) / (many - few) if many > few else None


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as columns: the first is text, the rest are figures."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    )


def beyond(ours: Costs, theirs: Costs) -> list[str]:
    """Return by the number of machines how many processor seconds more one road takes, and each further machine."""
    more = {count: ours[count].processor - theirs[count].processor for count in sorted(ours.keys() & theirs.keys())}
    cells = [f"{seconds:.2f}" for seconds in more.values()]
    if len(more) < 2:
        return [*cells, ""]
    few, many = min(more), max(more)
    return [*cells, f"{(more[many] - more[few]) / (many - few):.3f}"]


def roads(measured: Mapping[str, Costs], base: str, ours: str = "") -> str:
    """Return a line for each road: processor and wall seconds by machines, the price of each further machine, and how
    many times ``base``'s price that is; and by how much the road ``ours`` is dearer than ``base``, which it contains.
    """
    counts = sorted({count for costs in measured.values() for count in costs})
    unit = per_machine(measured[base]) if base in measured else None
    rows = [["processor / wall seconds for", *(f"{count} machines" for count in counts), "each further", "times"]]
    for name, costs in measured.items():
        each = per_machine(costs)
        cells = [f"{costs[n].processor:.2f} / {costs[n].wall:.1f}" if n in costs else "" for n in counts]
        ratio = f"{each / unit:.2f}" if each is not None and unit else ""
        rows.append([name, *cells, "" if each is None else f"{each:.3f}", ratio])
    if ours in measured and base in measured and measured[ours].keys() == set(counts):
        rows.append(["  of it beyond ansible-playbook", *beyond(measured[ours], measured[base]), ""])
    return aligned(rows)


def figures(rows: Mapping[str, object]) -> str:
    """Return name and value on a line each, a cost as processor and wall seconds; and which of them miss their aim."""
    width = max(map(len, rows), default=0)
    return "\n".join(
        f"{name.ljust(width)}  {_said(value)}{', missed' if missed(name, value) else ''}"
        for name, value in rows.items()
    )


def missed(name: str, value: object) -> bool:
    """Tell whether a figure is larger than the aim in its name."""
    aim = _AIM.search(name)
    if aim is None:
        return False
    if isinstance(value, Cost):
        return any(
            getattr(value, kind) > float(most) for most, kind in re.findall(r"([\d.]+) s (wall|processor)", aim[1])
        )
    return isinstance(value, float) and value > float(aim[1].split()[0])


def _said(value: object) -> str:
    if isinstance(value, Cost):
        return f"{value.processor:.2f} s processor, {value.wall:.1f} s wall"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def plain(value: object) -> object:
    """Return figures as JSON can say them."""
    if isinstance(value, Cost):
        return value.as_dict()
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    return value
