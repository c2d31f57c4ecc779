"""Runs of clusterctl that tests interrupt: at a result of their journal, which is an event, not after some seconds."""

from __future__ import annotations

import subprocess
import time

import labs

from provision.ansible_env import clean_environment
from provision.runner import journal


def runs(lab: labs.Lab) -> set[str]:
    """Return the ids of all runs so far."""
    return {run.id for run in journal.runs(journal.state_directory(lab.inventory))}


def results(lab: labs.Lab, before: set[str]) -> int:
    """Return how many results of tasks there are in the journals of runs that have begun since."""
    records = [run for run in journal.runs(journal.state_directory(lab.inventory)) if run.id not in before]
    files = [path for run in records if (path := run.directory / "journal.jsonl").exists()]
    return sum(path.read_text(encoding="utf-8").count('"event": "result"') for path in files)


def begun(lab: labs.Lab, number: int, command: str, *words: str) -> subprocess.Popen[str]:
    """Start a command in a session of its own; return it when it has so many results of tasks, or is over."""
    before = runs(lab)
    process = subprocess.Popen(
        [str(labs.BIN / "clusterctl"), command, str(lab.inventory), *words],
        env=clean_environment(), start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while process.poll() is None and results(lab, before) < number:
        time.sleep(0.05)
    return process


def killed(lab: labs.Lab, number: int) -> bool:
    """Kill a provision with everything it has on this computer; return whether it was not over by then."""
    process = begun(lab, number, "provision")
    lives = process.poll() is None
    process.kill()
    process.communicate()
    print(f"a provision was {'killed at' if lives else 'over before'} {number} results")
    return lives
