"""The plots of a report as SVG: they take their colours from the page, so that they are dark where it is. Pure.

svg.py escapes nothing: every text is escaped here, and everything else is a number or a class of ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import svg
from markupsafe import Markup, escape

from provision.report.training import Rank

#: A drawing's size and the place of its axes: half a screen, or a phone's width, with letters that can be read there.
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 460, 244, 46, 452, 26, 204
#: Where the lines of letters below the axis stand.
_UNDER, _LOWEST = 221, 240


def losses(measured: Sequence[float], reference: Sequence[float]) -> Markup:
    """Return the loss of all ranks as dots, and of one process alone as the line that they should lie on."""
    steps = max(len(measured), len(reference))
    top = _top([*measured, *reference])

    def place(step: int, loss: float) -> tuple[float, float]:
        return round(_LEFT + (_RIGHT - _LEFT) * step / max(1, steps - 1), 1), _height(loss, top)

    drawn = _axis(top)
    for step, kind in {0: "ax mid", (steps - 1) // 2: "ax mid", steps - 1: "ax end"}.items():
        drawn.append(_text(place(step, 0)[0], _UNDER, f"step {step + 1}", kind))
    line = [svg.Point(*place(step, loss)) for step, loss in enumerate(reference)]
    drawn.append(svg.Polyline(points=line, class_=["ref"]))
    every = max(1, len(measured) // 60)
    for step, loss in list(enumerate(measured))[::every]:
        x, y = place(step, loss)
        drawn.append(svg.Circle(cx=x, cy=y, r=2.6, class_=["dot"]))
    drawn.append(_text(_LEFT, 14, "loss", "ax"))
    same = f"loss of all ranks falls from {measured[0]:.2f} to {measured[-1]:.2f}" if measured else "no loss"
    return _drawing(drawn, f"{same} in {steps} steps; the line is one process alone")


def steps(ranks: Sequence[Rank], shown: str) -> Markup:
    """Return each rank's step from its median to its 95th percentile, and a circle for its own part of it.

    ``shown`` says which ranks these are.
    """
    top = _top([rank.p95 for rank in ranks])
    wide = (_RIGHT - _LEFT) / max(1, len(ranks))
    thick = round(min(4.0, wide * 0.6), 2)
    drawn = _axis(top)
    slow = slowest(ranks)
    for number, rank in enumerate(ranks):
        x = round(_LEFT + wide * (number + 0.5), 1)
        kind = ["r", "x"] if rank is slow else ["r"]
        title = svg.Title(text=str(escape(f"{rank.name}: {rank.p50:.2f} to {rank.p95:.2f} ms")))
        low, high = _height(rank.p50, top), _height(rank.p95, top)
        drawn.append(
            svg.Line(x1=x, x2=x, y1=low, y2=min(high, low - 2), stroke_width=thick, class_=kind, elements=[title])
        )
        if rank.own is not None:
            drawn.append(
                svg.Circle(
                    cx=x, cy=_height(rank.own, top), r=min(2.6, max(1.0, wide * 0.45)), class_=["own", *kind[1:]]
                )
            )
    drawn.append(_text(_LEFT, 14, "milliseconds", "ax"))
    drawn.append(_text(_RIGHT, _LOWEST, shown, "ax end"))
    if slow is not None:
        x = _LEFT + wide * (list(ranks).index(slow) + 0.5)
        drawn.append(_text(round(x, 1), _UNDER, slow.name[:40], "lab bad " + ("end" if x > _WIDTH / 2 else "")))
    told = f"{slow.name} is slower than the others" if slow else "no rank stands out"
    return _drawing(drawn, f"step time of {shown}, median to 95th percentile; {told}")


def slowest(ranks: Sequence[Rank]) -> Rank | None:
    """Return the rank whose own part is the longest, where it is 1.3 times that of the middle one; else None."""
    known = sorted((rank for rank in ranks if rank.own is not None), key=lambda rank: rank.own or 0.0)
    if len(known) < 3:
        return None
    return known[-1] if (known[-1].own or 0.0) > 1.3 * (known[len(known) // 2].own or 0.0) else None


def _drawing(drawn: list[svg.Element], told: str) -> Markup:
    picture = svg.SVG(viewBox=svg.ViewBoxSpec(0, 0, _WIDTH, _HEIGHT), class_=["plot"], elements=drawn)
    picture.extra = {"role": "img", "aria-label": str(escape(told))}
    return Markup(str(picture))  # noqa: S704 - numbers, our own words, and texts that are escaped


def _text(x: float, y: float, text: str, kind: str) -> svg.Element:
    return svg.Text(x=x, y=y, text=str(escape(text)), class_=kind.split())


def _axis(top: float) -> list[svg.Element]:
    """Return the horizontal lines, with their values, from 0 to ``top``."""
    drawn: list[svg.Element] = []
    step = _step(top)
    for number in range(round(top / step) + 1):
        y = _height(number * step, top)
        drawn.append(svg.Line(x1=_LEFT, x2=_RIGHT, y1=y, y2=y, class_=["g"]))
        drawn.append(_text(_LEFT - 6, y + 4, f"{number * step:g}", "ax end"))
    return drawn


def _height(value: float, top: float) -> float:
    return round(_BOTTOM - (_BOTTOM - _TOP) * min(max(value, 0.0), top) / top, 1)


def _top(values: Sequence[float]) -> float:
    """Return the end of an axis: a whole number of its steps above the highest value."""
    highest = max([value for value in values if value > 0] or [1.0])
    step = _step(highest)
    return math.ceil(highest / step) * step


def _step(highest: float) -> float:
    """Return the distance of an axis's lines: 1, 2 or 5 of some power of ten, for three to six of them."""
    power = 10.0 ** math.floor(math.log10(highest))
    return next(power * part for part in (0.2, 0.5, 1.0, 2.0, 5.0) if highest / (power * part) <= 5)
