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


def told(lab: labs.Lab, before: set[str], words: str) -> int:
    """Return how often these words stand in the journals of runs that have begun since."""
    records = [run for run in journal.runs(journal.state_directory(lab.inventory)) if run.id not in before]
    files = [path for run in records if (path := run.directory / "journal.jsonl").exists()]
    return sum(path.read_text(encoding="utf-8").count(words) for path in files)


def results(lab: labs.Lab, before: set[str]) -> int:
    """Return how many results of tasks there are in the journals of runs that have begun since."""
    return told(lab, before, '"event": "result"')


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


def killed_at_its_first_change(lab: labs.Lab) -> None:
    """Start a provision, and kill it when its journal has the first result that says "changed"."""
    before = runs(lab)
    words = [str(labs.BIN / "clusterctl"), "provision", str(lab.inventory)]
    run = subprocess.Popen(words, env=clean_environment(), start_new_session=True, stderr=subprocess.DEVNULL)
    while not told(lab, before, '"changed": true'):
        assert run.poll() is None, "it was over without a change"
        time.sleep(0.05)
    run.kill()
    run.wait()
