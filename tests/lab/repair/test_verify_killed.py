"""A verify that is killed, or whose Ansible is, proves nothing: no pass, in no report, wherever it was."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import labs
import pytest

from provision.ansible_env import clean_environment
from provision.runner import journal
from provision.runner.process import marked

#: Results of tasks on three machines that a whole verify of the lab has at the least, with some to spare.
RESULTS = 70


def start(lab: labs.Lab, results: int) -> tuple[subprocess.Popen[str], journal.Run]:
    """Start a verify and return it, with its record, once that many results of tasks are in its journal."""
    state = journal.state_directory(lab.inventory)
    before = {run.id for run in journal.runs(state)}
    command = [str(labs.BIN / "clusterctl"), "verify", str(lab.inventory), "--json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=clean_environment()
    )
    while True:
        for record in journal.runs(state):
            if record.id not in before and told(record.directory) >= results:
                return process, record
        assert process.poll() is None, f"it was over before it could be killed at {results}"
        time.sleep(0.05)


def told(directory: Path) -> int:
    path = directory / "journal.jsonl"
    return path.read_text(encoding="utf-8").count('"event": "result"') if path.exists() else 0


def last_verdict(lab: labs.Lab) -> dict[str, object]:
    found: dict[str, object] = json.loads(labs.clusterctl("status", lab.inventory, "--json").stdout)["last_verdict"]
    return found


def kill_ansible(run_id: str) -> None:
    """Kill every process of that run's Ansible. One may end by itself between the look and the signal."""
    for pid in marked(run_id):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def is_no_pass(lab: labs.Lab, what: str, results: int) -> None:
    process, record = start(lab, results)
    if what == "Ansible":
        kill_ansible(record.id)
    else:
        process.kill()
    out, _ = process.communicate(timeout=300)

    assert process.returncode != 0, results
    if what == "Ansible":
        document = json.loads(out)
        assert (process.returncode, document["verdict"]) == (8, "unknown"), results
        assert document["counts"]["never_ran"] > 0
    else:
        assert out == ""
        # Ansible without the command that started it would go on asking.
        kill_ansible(record.id)
    kept = last_verdict(lab)
    assert (kept["id"], kept["verdict"]) == (record.id, "unknown")


# Half-way: twenty at any moment are for the night.
@pytest.mark.parametrize("what", ["Ansible", "the command"])
def test_a_verify_that_is_killed_is_no_pass_in_any_report(provisioned_lab: labs.Lab, what: str) -> None:
    is_no_pass(provisioned_lab, what, RESULTS // 2)


@pytest.mark.night
def test_twenty_kills_at_any_moment_never_leave_a_pass(provisioned_lab: labs.Lab) -> None:
    dice = random.Random(20)  # noqa: S311 - moments, not secrets
    for number in range(20):
        is_no_pass(provisioned_lab, ("Ansible", "the command")[number % 2], dice.randrange(1, RESULTS))
