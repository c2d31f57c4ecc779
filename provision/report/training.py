"""What training jobs have measured, as a report draws it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from provision.model.text import one_line
from provision.report.record import NAME, Ink, listed, mapping, number_in, place

#: Steps and ranks that are drawn; of more ranks, the slowest of each node.
_STEPS, _RANKS = 512, 256


@dataclass(frozen=True)
class Rank:
    """Milliseconds of one rank's steps; ``own`` are those in which it waits for no other."""

    name: str
    p50: float
    p95: float
    own: float | None


@dataclass(frozen=True)
class Training:
    """What one training job has measured."""

    title: str
    losses: tuple[float, ...]
    reference: tuple[float, ...]
    ranks: tuple[Rank, ...]
    shown: str
    facts: tuple[tuple[str, str], ...]


def trainings(document: Mapping[str, Any], ink: Ink) -> list[Training]:
    simulated = listed(document.get("simulated"), 8)
    found = []
    for job in map(mapping, listed(document.get("training"), 8)):
        nodes = [str(mapping(node).get("name", "")) for node in listed(job.get("nodes"))]
        title = f"{len(listed(job.get('ranks'))) or 'no'} ranks on {place(nodes, ink)}"
        inside = f", in {ink(job['gradient_parameter'], NAME)}" if job.get("gradient_parameter") else ""
        made_up = "; on simulated GPUs, which says nothing of real ones" if "gpu" in simulated else ""
        facts = {
            "Gradient": _said(
                job.get("gradient_difference"), "differs from the float64 mean by {:.1e} at most", inside
            ),
            "Loss": _said(job.get("reference_difference"), "differs from one process by {:.1e} at most"),
            "Speed": _said(job.get("tokens_per_s"), "{:,.0f} tokens a second", made_up),
            "Path": ink(f"{job.get('backend') or 'no backend'} on {job.get('device') or 'no device'}", NAME),
        }
        said = tuple((name, told) for name, told in facts.items() if told)
        ranks, shown = _ranks(job, ink)
        curves = (_curve(job.get("losses")), _curve(job.get("reference")))
        found.append(Training(ink(title, 240), *curves, tuple(ranks), shown, said))
    return found


def _said(value: Any, words: str, more: str = "") -> str:
    number = number_in(value)
    return "" if number is None else words.format(number) + more


def _curve(values: Any) -> tuple[float, ...]:
    """Return a curve up to the first value that is no number."""
    found = []
    for value in listed(values, _STEPS):
        if (number := number_in(value)) is None:
            break
        found.append(number)
    return tuple(found)


def _ranks(job: Mapping[str, Any], ink: Ink) -> tuple[list[Rank], str]:
    """Return each rank's step times, of many ranks the slowest of each node; and which these are."""
    found: list[tuple[str, Rank]] = []
    for item in map(mapping, listed(job.get("ranks"), 65_536)):
        p50, p95, own = (number_in(item.get(name)) for name in ("p50", "p95", "own"))
        if p50 is not None and p95 is not None:
            node = one_line(item.get("node", ""), NAME)
            name = one_line(f"rank {item.get('rank')}, {node}", NAME)
            found.append((node, Rank(name, p50 * 1e3, p95 * 1e3, None if own is None else own * 1e3)))
    slowest: dict[str, Rank] = {}
    for node, rank in found:
        slowest[node] = max(slowest.get(node, rank), rank, key=lambda one: one.own or one.p50)
    shown = [rank for _, rank in found] if len(found) <= _RANKS else list(slowest.values())
    told = f"{len(found)} ranks" if len(found) <= _RANKS else f"the slowest rank of each of {len(shown)} nodes"
    return [replace(rank, name=ink(rank.name)) for rank in shown[:_STEPS]], told


def speed_of(document: Mapping[str, Any]) -> float:
    speeds = [number_in(mapping(job).get("tokens_per_s")) for job in listed(document.get("training"), 8)]
    return sum(speed or 0.0 for speed in speeds)
