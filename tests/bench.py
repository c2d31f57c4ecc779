"""Speed, as ratios: both sides of each comparison are measured in this one run, in turn.

Run by ``make bench``. The parts that need a cluster use the inventory given (a provisioned, converged one); without it
they are left out and said so. The figures are wall-clock seconds of whole processes; the median of the runs is used.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from provision import content
from provision.ansible_env import clean_environment
from provision.runner import journal

BIN = Path(sys.executable).parent
CLUSTERCTL = str(BIN / "clusterctl")


def seconds(command: Sequence[str], **options: Any) -> float:
    """Run a command to its end and return its wall-clock seconds; a failing command ends the benchmark."""
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    took = time.monotonic() - start
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return took


def in_turn(ours: Callable[[], float], theirs: Callable[[], float], runs: int) -> tuple[float, float, float]:
    """Return the medians of both sides and of the ratio pair by pair, run A B A B so that drift hits both."""
    pairs = [(ours(), theirs()) for _ in range(runs)]
    return (
        statistics.median(a for a, _ in pairs),
        statistics.median(b for _, b in pairs),
        statistics.median(a / b for a, b in pairs),
    )


def big_inventory(path: Path, nodes: int) -> None:
    """Write an INI inventory of ``nodes`` compute nodes in two kinds of hardware."""
    half = nodes // 2
    kinds = {"a40": (1, half, "gpu:A40:4"), "h100": (half + 1, nodes, "gpu:H100:8")}
    lines = ["[slurm_controller]", "head ansible_host=10.0.0.1", ""]
    for kind, (first, last, gres) in kinds.items():
        lines.append(f"[{kind}]")
        lines += [
            f"node{n} ansible_host=10.{1 + n // 62500}.{n // 250 % 250}.{n % 250 + 1}" for n in range(first, last + 1)
        ]
        lines += [
            "",
            f"[{kind}:vars]",
            "node_cpus=48",
            "node_real_memory=192000",
            f"node_gres={gres}",
            "node_cgroup_version=2",
            "",
        ]
    lines += ["[slurm_compute:children]", *kinds, "", "[all:vars]", "cluster_name=big", ""]
    path.write_text("\n".join(lines), encoding="utf-8")


def start_up(runs: int) -> dict[str, Any]:
    ours, theirs, ratio = in_turn(
        lambda: seconds([CLUSTERCTL, "--help"]),
        lambda: seconds([str(BIN / "ansible-playbook"), "--version"]),
        runs,
    )
    return {
        "clusterctl --help": ours,
        "ansible-playbook --version": theirs,
        "ratio": ratio,
        "aim": "0.3 s or less",
    }


def ten_thousand(runs: int, nodes: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        inventory = Path(scratch) / "inventory.ini"
        big_inventory(inventory, nodes)
        check, load, ratio = in_turn(
            lambda: seconds([CLUSTERCTL, "check", str(inventory)]),
            lambda: seconds([str(BIN / "ansible-inventory"), "-i", str(inventory), "--list"], env=clean_environment()),
            runs,
        )
        output = Path(scratch) / "out"
        render = statistics.median(
            seconds([CLUSTERCTL, "render", str(inventory), "--output", str(output)]) for _ in range(runs)
        )
        lines = (output / "slurm.conf").read_text(encoding="utf-8").splitlines()
    return {
        "nodes": nodes,
        "clusterctl check": check,
        "ansible-inventory --list": load,
        "ratio": ratio,
        "clusterctl render": render,
        "NodeName lines": sum(line.startswith("NodeName=") for line in lines),
        "aim": "5 s or less each, one NodeName line per kind of machine",
    }


def counted(inventory: Path) -> tuple[Counter[str], Counter[str]]:
    """Return how many tasks the last run did on each host: the roles' own, and Ansible's validation of their arguments.

    Tasks that were skipped did nothing and are not counted.
    """
    last = journal.runs(journal.state_directory(inventory))[-1]
    done = [json.loads(line) for line in (last.directory / "journal.jsonl").read_text(encoding="utf-8").splitlines()]
    ran = [row for row in done if row["event"] == "result" and row["outcome"] != "skipped"]
    validation = [row["task"].startswith("Validating arguments against arg spec") for row in ran]
    return (
        Counter(row["host"] for row, is_one in zip(ran, validation, strict=True) if not is_one),
        Counter(row["host"] for row, is_one in zip(ran, validation, strict=True) if is_one),
    )


def wrapper(inventory: Path, runs: int) -> dict[str, Any]:
    site = str(content.playbook("site"))
    environment = {**clean_environment(), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    ours, theirs, ratio = in_turn(
        lambda: seconds([CLUSTERCTL, "provision", str(inventory)]),
        lambda: seconds([str(BIN / "ansible-playbook"), "-i", str(inventory), site], env=environment),
        runs,
    )
    told = subprocess.run(
        [CLUSTERCTL, "provision", str(inventory), "--json"], capture_output=True, text=True, check=True
    )
    report = json.loads(told.stdout)
    tasks, validations = counted(inventory)
    return {
        "clusterctl provision (no-op)": ours,
        "ansible-playbook site.yml (no-op)": theirs,
        "ratio": ratio,
        "changed": report["changed"],
        "tasks per host": dict(tasks),
        "  and argument validations": dict(validations),
        "seconds per host-task": ours / (tasks.total() + validations.total()),
        "aim": "ratio 1.05 or less, 40 tasks or less per compute node",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inventory", type=Path, help="a converged cluster, for example the lab's")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=10_000)
    arguments = parser.parse_args()
    figures = {
        "start-up": start_up(arguments.runs),
        "large inventory": ten_thousand(arguments.runs, arguments.nodes),
    }
    if arguments.inventory:
        figures["wrapper"] = wrapper(arguments.inventory, min(arguments.runs, 3))
    for title, rows in figures.items():
        print(title)
        for name, value in rows.items():
            print(f"  {name:36} {value:.3f}" if isinstance(value, float) else f"  {name:36} {value}")
    if not arguments.inventory:
        print("wrapper\n  not measured: give --inventory of a converged cluster (make bench does, when the lab is up)")


if __name__ == "__main__":
    main()
