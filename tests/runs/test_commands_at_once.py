"""What other commands do and print while one holds the lock."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from ansible_runs import (
    CHANGE,
    CHECKS,
    HOLD,
    STATUS,
    command,
    stages_in,
    start,
    until_held,
    write_inventory,
)
from waiting import PATIENCE

from provision.runner import journal
from provision.runner.process import kill_marked


class Held(NamedTuple):
    """What other commands printed while a provision held the lock, and what was on record then and afterwards."""

    site: Path
    #: The provision, which was interrupted after all of them.
    first: subprocess.Popen[str]
    #: Runs that had ended before it.
    earlier: dict[str, journal.Run]
    second: subprocess.CompletedProcess[str]
    preflight: subprocess.CompletedProcess[str]
    verified: subprocess.CompletedProcess[str]
    status: subprocess.CompletedProcess[str]
    #: What was alive on record after them, and whether its log was there when all had ended.
    live: list[journal.Run]
    log: bool

    def on_record(self, command: str) -> list[journal.Run]:
        return [run for run in journal.runs(self.site / ".clusterctl") if run.facts["command"] == command]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    here = tmp_path_factory.mktemp("held")
    write_inventory(here)
    stages_in(here, base=HOLD, preflight=CHECKS, status=STATUS, verify=CHANGE)
    state = here / ".clusterctl"
    earlier = {command: journal.begin(journal.prepare(state), command) for command in ("verify", "provision")}
    for run in earlier.values():
        run.finish("done")
    first = start(here, ["provision", "inventory.ini", "base"])
    try:
        until_held(first, here)
        for _ in range(30):  # what each command that only reads leaves behind
            journal.begin(journal.prepare(state), "status", room=journal.LOOKS).finish("done")
        told = {
            "second": command(here, "provision", "inventory.ini", "base"),
            "preflight": command(here, "preflight", "inventory.ini", "--json"),
            "verified": command(here, "verify", "inventory.ini", "--json"),
            "status": command(here, "status", "inventory.ini", "--json"),
        }
        live = [run for run in journal.runs(state) if run.alive]
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=PATIENCE)
        log = all((run.directory / "ansible.log").exists() for run in live)
        yield Held(here, first, earlier, **told, live=live, log=log)
    finally:
        # What a failure has left running.
        for run in journal.runs(state):
            kill_marked(run.id)


def test_a_second_run_is_told_who_holds_the_lock_while_read_only_commands_go_on(held: Held) -> None:
    assert held.second.returncode == 6
    assert f"process {held.first.pid}" in held.second.stderr
    assert f"kill -INT {held.first.pid}" in held.second.stderr
    assert json.loads(held.preflight.stdout)["checks"], held.preflight.stderr
    assert held.first.returncode == 130
    # The one before, and the one that held: the second has left no record.
    assert [run.id for run in held.on_record("provision")] == [held.earlier["provision"].id, held.live[0].id]


def test_verify_beside_a_provision_is_unknown_and_asks_no_machine(held: Held) -> None:
    document = json.loads(held.verified.stdout)
    assert held.verified.returncode == 8, held.verified.stderr
    assert document["verdict"] == "unknown"
    [check] = [check for check in document["checks"] if check["id"] == "run.lock"]
    assert f"process {held.first.pid}" in check["observed"]
    assert not list(held.site.glob("made-*"))
    [kept] = held.on_record("verify")
    assert kept.id == held.earlier["verify"].id, "it replaced the cluster's verdict"


def test_a_provision_waits_for_no_verify_but_is_turned_away_by_name(site: Path) -> None:
    stages_in(site, base=CHANGE, verify=HOLD)
    judging = start(site, ["verify", "inventory.ini"])
    until_held(judging, site)

    done = command(site, "provision", "inventory.ini", "base")
    judging.send_signal(signal.SIGINT)
    judging.communicate(timeout=PATIENCE)

    assert done.returncode == 6, done.stderr
    assert "'verify'" in done.stderr
    assert f"process {judging.pid}" in done.stderr
    assert not list(site.glob("made-*"))


def test_many_looks_leave_a_running_provision_and_the_last_run_on_record(held: Held) -> None:
    state = held.site / ".clusterctl"
    [live] = held.live
    assert json.loads(held.status.stdout)["last_run"]["id"] == live.id
    assert {run.facts["command"] for run in journal.runs(state)} == {"provision", "verify"}
    last = held.earlier["provision"]
    assert [run.facts["outcome"] for run in journal.runs(state) if run.id == last.id] == ["done"]
    assert held.log
    assert len(journal.runs(state, journal.LOOKS)) <= journal.KEPT_LOOKS + 1


def test_preflight_ends_with_a_code_of_its_own(held: Held) -> None:
    assert held.preflight.returncode == 3
