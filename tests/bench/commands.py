"""Whole commands beside what they stand for: clusterctl and Ansible, each pair measured in turn."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.processor import Cost, measure, median

from provision import content
from provision.ansible_env import clean_environment
from provision.runner import journal

BIN = Path(sys.executable).parent
CLUSTERCTL = str(BIN / "clusterctl")


def cost(command: Sequence[str], **options: Any) -> Cost:
    """Run a command to its end and return what it cost; a failing command ends the benchmark."""
    return measure(command, **options)[0]


def in_turn(ours: Callable[[], Cost], theirs: Callable[[], Cost], runs: int) -> tuple[Cost, Cost, float]:
    """Return the medians of both sides and of the processor seconds' ratio, run A B A B so that drift hits both."""
    pairs = [(ours(), theirs()) for _ in range(runs)]
    return (
        median([a for a, _ in pairs]),
        median([b for _, b in pairs]),
        statistics.median(a.processor / b.processor for a, b in pairs),
    )


def _address(number: int) -> str:
    return f"10.{1 + number // 62500}.{number // 250 % 250}.{number % 250 + 1}"


def big_inventory(path: Path, nodes: int) -> None:
    """Write an INI inventory of ``nodes`` compute nodes in two kinds of hardware, said on each line as people do."""
    kinds = {"a40": (range(1, nodes // 2 + 1), "gpu:A40:4"), "h100": (range(nodes // 2 + 1, nodes + 1), "gpu:H100:8")}
    lines = ["[slurm_controller]", "head ansible_host=10.0.0.1", ""]
    for kind, (numbers, gres) in kinds.items():
        lines.append(f"[{kind}]")
        hardware = f"node_cpus=48 node_real_memory=192000 node_gres={gres} node_cgroup_version=2"
        lines += [f"node{n} ansible_host={_address(n)} {hardware}" for n in numbers]
        lines.append("")
    lines += ["[slurm_compute:children]", *kinds, "", "[all:vars]", "cluster_name=big", ""]
    path.write_text("\n".join(lines), encoding="utf-8")


def start_up(runs: int) -> dict[str, Any]:
    ours, theirs, ratio = in_turn(
        lambda: cost([CLUSTERCTL, "--help"]),
        lambda: cost([str(BIN / "ansible-playbook"), "--version"]),
        runs,
    )
    return {
        "clusterctl --help (aim: 0.3 s wall)": ours,
        "ansible-playbook --version": theirs,
        "ratio": ratio,
    }


def ten_thousand(runs: int, nodes: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        inventory = Path(scratch) / "inventory.ini"
        big_inventory(inventory, nodes)
        check, load, ratio = in_turn(
            lambda: cost([CLUSTERCTL, "check", str(inventory)]),
            lambda: cost([str(BIN / "ansible-inventory"), "-i", str(inventory), "--list"], env=clean_environment()),
            runs,
        )
        output = Path(scratch) / "out"
        render = median([cost([CLUSTERCTL, "render", str(inventory), "--output", str(output)]) for _ in range(runs)])
        lines = (output / "slurm.conf").read_text(encoding="utf-8").splitlines()
    return {
        "nodes": nodes,
        "clusterctl check (aim: 5 s wall)": check,
        "ansible-inventory --list": load,
        "ratio": ratio,
        "clusterctl render (aim: 5 s wall)": render,
        "NodeName lines, one per kind of machine": sum(line.startswith("NodeName=") for line in lines),
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


def first(inventory: Path) -> dict[str, Any]:
    """Return how long the first whole provision on record took, by its own report; nothing runs anew."""
    for run in journal.runs(journal.state_directory(inventory)):
        report = run.directory / "report.json"
        told = json.loads(report.read_text(encoding="utf-8")) if report.is_file() else {}
        # What a second one finds changed is less than what a first one makes of any machine.
        if told.get("command") == "provision" and not told["exit_code"] and told["changed"] > 10 * len(told["hosts"]):
            seconds = sum(stage["seconds"] for stage in told["stages"])
            return {"machines": len(told["hosts"]), "wall seconds (aim with images cached: 330)": seconds}
    return {"not on record": "lab down, lab up, provision; then measure"}


def no_op(inventory: Path, runs: int) -> dict[str, Any]:
    """Return what a provision costs that has nothing to do, by clusterctl and by Ansible alone."""
    site = str(content.playbook("site"))
    command = [str(BIN / "ansible-playbook"), "-i", str(inventory), site]
    ours, theirs, ratio = in_turn(
        lambda: cost([CLUSTERCTL, "provision", str(inventory)]),
        lambda: cost(command, env=clean_environment()),
        runs,
    )
    full = cost([CLUSTERCTL, "provision", str(inventory), "--full"])
    plan = median([cost([CLUSTERCTL, "plan", str(inventory)]) for _ in range(runs)])
    verify = median([cost([CLUSTERCTL, "verify", str(inventory)]) for _ in range(runs)])
    told = subprocess.run(
        [CLUSTERCTL, "provision", str(inventory), "--json"], capture_output=True, text=True, check=True
    )
    tasks, validations = counted(inventory)
    return {
        "machines": len(tasks),
        "clusterctl provision (aim for three machines: 8 s wall, 6 s processor)": ours,
        "ansible-playbook site.yml": theirs,
        "clusterctl's own processor seconds (aim: 2)": ours.processor - theirs.processor,
        "ratio": ratio,
        "clusterctl provision --full": full,
        "clusterctl plan": plan,
        "clusterctl verify (aim for three machines: 35 s wall)": verify,
        "changed": json.loads(told.stdout)["changed"],
        "tasks per host": dict(tasks),
        "  and argument validations": dict(validations),
        "processor seconds per host-task": ours.processor / (tasks.total() + validations.total()),
    }
