"""Which machines move data to which, in which order, over which rails. Pure.

Every machine is in one pair at a time, so that each measurement has both machines to itself; a round is a set of such
pairs. All pairs of n machines take n - 1 rounds (n where n is odd).
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Pair = tuple[str, str]

#: Rails of one machine that are used: each costs all who meet it some seconds, and no machine has so many.
MAX_RAILS = 64
Round = list[Pair]


@dataclass(frozen=True)
class Rail:
    """One active port of a machine. ``rate`` is in Gb/s; ``software`` devices have no rate worth the name."""

    device: str
    port: int
    rate: float | None = None
    software: bool = False


def rails_of(found: Mapping[str, Any], unused: Sequence[str] = ()) -> list[Rail]:
    """Return the active ports of what ``machine_facts`` reports under ``rdma``, in the order in which people count.

    ``unused`` names ports (``mlx5_4:1``) or adapters (``mlx5_4``) that jobs do not use.
    """
    active = {
        (str(device["name"]), int(port["number"])): Rail(
            str(device["name"]), int(port["number"]), port["rate"], bool(device["software"])
        )
        for device in found.get("devices", ())
        for port in device["ports"]
        if port["state"] == "Active" and not {str(device["name"]), f"{device['name']}:{port['number']}"} & set(unused)
    }
    return sorted(active.values(), key=lambda rail: [*_natural(rail.device), rail.port])[:MAX_RAILS]


def rounds(machines: Sequence[str], *, all_pairs: int, sampled: int, seed: int) -> list[Round]:
    """Return rounds of pairs: all of them up to ``all_pairs`` machines.

    Beyond that each machine meets its two neighbours and one other in each of ``sampled`` rounds, chosen by ``seed``:
    another seed chooses others, so that in time everybody meets everybody.
    """
    names = list(machines)
    if len(names) < 2:
        return []
    every = _tournament(names)
    if len(names) <= all_pairs:
        return every
    chosen = random.Random(seed).sample(every, min(sampled, len(every)))  # noqa: S311 - a choice, not a secret
    met: set[frozenset[str]] = set()
    result = []
    for one in [*_ring(names), *chosen]:
        new = [pair for pair in one if frozenset(pair) not in met]
        met.update(frozenset(pair) for pair in new)
        result.append(new)
    return [one for one in result if one]


def _tournament(names: Sequence[str]) -> list[Round]:
    """Return all pairs by the circle method: one stays, the others move on by one place from round to round."""
    places: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    result = []
    for _ in range(len(places) - 1):
        half = len(places) // 2
        facing = zip(places[:half], reversed(places[half:]), strict=True)
        result.append([(one, other) for one, other in facing if one is not None and other is not None])
        places = [places[0], places[-1], *places[1:-1]]
    return result


def _ring(names: Sequence[str]) -> list[Round]:
    """Return every machine with its two neighbours, the last with the first."""
    pairs = [(name, names[(place + 1) % len(names)]) for place, name in enumerate(names)]
    odd = [pairs.pop()] if len(names) % 2 else []
    return [pairs[::2], pairs[1::2], *([odd] if odd else [])]


def matched(mine: Sequence[Rail], theirs: Sequence[Rail]) -> list[tuple[Rail, Rail]]:
    """Return which rail of one machine speaks to which of the other: the same names, else the same places."""
    by_name = {(rail.device, rail.port): rail for rail in theirs}
    same = [(rail, by_name[rail.device, rail.port]) for rail in mine if (rail.device, rail.port) in by_name]
    return same or list(zip(mine, theirs, strict=False))


def schedule(
    rails: Mapping[str, Sequence[Rail]],
    addresses: Mapping[str, str],
    *,
    all_pairs: int = 16,
    sampled: int = 3,
    seed: int = 0,
) -> dict[str, list[dict[str, Any]]]:
    """Return each machine's steps in their order.

    A step names the ``peer``, its ``address``, who ``serves``, the pairs of ``rails`` as [mine, theirs], and whether
    bandwidth is to be measured: by each machine with the first that it meets, since one such measurement proves a rail
    and its cable, and the others would only take time.
    """
    able = [name for name, ports in rails.items() if ports]
    steps: dict[str, list[dict[str, Any]]] = {name: [] for name in able}
    measured: set[str] = set()
    for number, one in enumerate(rounds(able, all_pairs=all_pairs, sampled=sampled, seed=seed)):
        for first, second in one:
            pairs = matched(rails[first], rails[second])
            bandwidth = not {first, second} <= measured
            measured |= {first, second}
            for me, peer, turned in ((first, second, False), (second, first, True)):
                steps[me].append(
                    {
                        "round": number,
                        "peer": peer,
                        "address": addresses[peer],
                        "serves": not turned,
                        "bandwidth": bandwidth,
                        "rails": [_step_rail(*(reversed(pair) if turned else pair)) for pair in pairs],
                    }
                )
    return steps


def bound(steps: Mapping[str, Sequence[dict[str, Any]]], patience: int, timeout: int) -> int:
    """Set in each step how many seconds it may take (``within``), and until when after a machine's begin it waits for
    the other side (``by``): by then that one has begun and is through with the rounds before. Return when all have
    ended, whoever hangs.
    """
    longest: dict[int, int] = {}
    for step in (step for mine in steps.values() for step in mine):
        step["within"] = _tests(step) * (timeout + 10) + 30
        longest[step["round"]] = max(step["within"], longest.get(step["round"], 0))
    for step in (step for mine in steps.values() for step in mine):
        step["by"] = patience + sum(longest[earlier] for earlier in range(step["round"]))
    return patience + 60 + sum(longest.values())


def plan(
    found: Mapping[str, Mapping[str, Any]],
    addresses: Mapping[str, str],
    settings: Mapping[str, Any],
    unused: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Return everything that the machines and the judgement need; ``unused`` are ports by machine that jobs do not use.

    ``settings``: ``all_pairs``, ``sampled``, ``seed``, and seconds: ``timeout``, ``begin``. ``patience`` is how long a
    machine waits for others to begin, which Ansible has do so a few at a time; ``limit`` is when even a run in which
    everything hangs has ended; ``pairs`` says what part of all pairs this is.
    """
    unused = unused or {}
    rails = {name: rails_of(one, unused.get(name, ())) for name, one in found.items()}
    steps = schedule(
        rails,
        addresses,
        all_pairs=int(settings["all_pairs"]),
        sampled=int(settings["sampled"]),
        seed=int(settings["seed"]),
    )
    able = len(steps)
    patience = int(settings["begin"]) + able // 2
    tried, possible = sum(len(mine) for mine in steps.values()) // 2, able * (able - 1) // 2
    return {
        "steps": steps,
        "addresses": dict(addresses),
        "unused": {name: list(ports) for name, ports in unused.items()},
        "patience": patience,
        "limit": bound(steps, patience, int(settings["timeout"])),
        "pairs": "" if tried == possible else f"; {tried} of {possible} pairs, other ones every day",
    }


def _tests(step: Mapping[str, Any]) -> int:
    return len(step["rails"]) * (4 if step["bandwidth"] else 2)


def _step_rail(mine: Rail, theirs: Rail) -> dict[str, Any]:
    return {
        "device": mine.device,
        "port": mine.port,
        "peer_device": theirs.device,
        # Both sides must be told the same amount; software is slow, and its packets are counted one by one.
        "software": mine.software or theirs.software,
    }


def _natural(name: str) -> list[int | str]:
    """Return a key that puts mlx5_2 before mlx5_10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
