"""Speed, as ratios: both sides of each comparison are measured in this one run, in turn.

Run by ``make bench``. The parts that need a cluster use the inventory given (a provisioned, converged one); without it
they are left out and said so. Made-up machines are made here (bench.fleet). Processor seconds are the control node's
(bench.processor says what is counted); ratios are of processor seconds, because others may use the same processors.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench import clients, commands, containers, fleet, images, monitoring, overlay, recorded, roads, table
from bench.processor import Cost

#: The same road by clusterctl.
OURS = "  the same through clusterctl"


def made_up(counts: list[int], inventory: Path | None) -> tuple[dict[str, dict[int, Cost]], list[str]]:
    """Return what each road costs, and what could not be measured and why.

    ``inventory`` is that of a converged cluster, whose machines' answers are replayed for the whole road.
    """
    failed: list[str] = []
    measured: dict[str, dict[int, Cost]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch, fleet.running(Path(scratch)) as machines:
        for module, answer in roads.recorded("ping", "setup", "machine_facts").items():
            machines.answer(module, answer)

        def note(name: str, way: Callable[[fleet.Fleet, int], Cost]) -> None:
            for count in counts:
                print(f"... {name}, {count} machines", file=sys.stderr, flush=True)
                try:
                    measured.setdefault(name, {})[count] = way(machines, count)
                except SystemExit as error:  # minutes of other figures are not thrown away for one
                    failed.append(f"{name.strip()}, {count} machines: {error}")

        note(roads.JUDGING, roads.plain)
        note(OURS, roads.ours)
        if inventory:
            answers = recorded.record(inventory)
            whole = "all that roles leave behind, by clusterctl"
            note(whole, lambda machines, count: recorded.judged(machines, answers, count))
    return {name: costs for name, costs in measured.items() if costs}, failed


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--inventory", type=Path, help="a converged cluster, for example the lab's")
    parser.add_argument("--runs", type=int, default=3, help="of which the median is taken (default: 3)")
    parser.add_argument("--nodes", type=int, default=10_000, help="in the large inventory (default: 10000)")
    parser.add_argument("--machines", type=int, nargs="*", default=[3, 50, 200], help="made up (default: 3 50 200)")
    parser.add_argument("--image", type=int, default=1024, help="MB of the image that nodes are given (default: 1024)")
    parser.add_argument("--watched", type=int, default=1000, help="nodes that Prometheus reads (default: 1000)")
    parser.add_argument("--overlay", action="store_true", help="of the inventory, overlay networks alone")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    if arguments.overlay:
        arguments.runs, arguments.machines, arguments.watched = 0, [], 0
    figures: dict[str, dict[str, Any]] = {}
    failed: list[str] = []
    if arguments.runs:
        figures["start-up"] = commands.start_up(arguments.runs)
        figures["large inventory"] = commands.ten_thousand(arguments.runs, arguments.nodes)
    if arguments.machines:
        figures["made-up machines"], failed = made_up(sorted(arguments.machines), arguments.inventory)
    if arguments.inventory and (measured := overlay.beside_the_host(arguments.inventory)):
        figures["an overlay network, beside the hosts'"] = measured
    if arguments.inventory and not arguments.overlay:
        figures["the first provision"] = commands.first(arguments.inventory)
        figures["nothing to do"] = commands.no_op(arguments.inventory, max(1, arguments.runs))
        figures["Slurm's commands, beside the daemon's own"] = clients.beside_the_daemon(arguments.inventory)
        figures["containers of jobs"] = containers.in_jobs(arguments.inventory)
        figures["an image to one node, and to all at once"] = images.to_nodes(arguments.inventory, arguments.image)
    if arguments.watched:
        figures["Prometheus"] = monitoring.of_many_nodes(arguments.watched) or {
            "not measured": "needs the packages prometheus and prometheus-node-exporter"
        }
    if arguments.json:
        print(json.dumps(table.plain(figures), indent=2))
    else:
        show(figures, arguments.inventory)
    if failed:
        sys.exit("\nnot measured:\n" + "\n".join(failed))


def show(figures: Mapping[str, Mapping[str, Any]], inventory: Path | None) -> None:
    """Print figures for people."""
    for title, rows in figures.items():
        made = title == "made-up machines"
        print(f"{title}\n{table.roads(rows, roads.JUDGING, OURS) if made else table.figures(rows)}\n")
    if not inventory:
        print("nothing to do\nnot measured: give --inventory of a converged cluster (make bench does, for a lab)")


if __name__ == "__main__":
    main()
