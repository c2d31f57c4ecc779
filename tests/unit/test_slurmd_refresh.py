"""When slurmd is told of its configuration again, and which drained nodes come back by themselves."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from machines import plugin

module = plugin("roles/slurm_service/library/slurmd_refresh.py")
to_resume = module.slurm_running.to_resume

NEW = "ClusterName=a\nMessageTimeout=41\n"
#: When its container was started, as the engine says it, and in seconds since 1970.
STARTED, SINCE = "2026-11-25T07:00:00.123456789Z", 1795590000

LOW = "Low RealMemory (reported:1000 < 100.00% of configured:2000)"


def node(*state: str, reason: str = LOW, author: str = "slurm") -> dict[str, Any]:
    """Return the part of ``scontrol show node --json`` that is read."""
    return {"name": "node1", "state": list(state), "reason": reason, "reason_set_by_user": author}


@pytest.mark.parametrize(
    "reason",
    [
        LOW,
        "Low socket*core*thread count, Low CPUs",
        "Low CPUs",
        "gres/gpu count reported lower than configured (1 < 2)",
        "gres/gpu count too low (1 < 2)",
    ],
)
def test_a_node_that_now_registers_as_declared_comes_back(reason: str) -> None:
    assert to_resume(node("IDLE", "DRAIN", reason=reason)) is True


def test_a_node_that_has_rebooted_by_itself_comes_back_once_it_answers() -> None:
    assert to_resume(node("DOWN", reason="Node unexpectedly rebooted")) is True
    assert to_resume(node("DOWN", "NOT_RESPONDING", reason="Node unexpectedly rebooted")) is None


def test_a_node_that_was_away_and_came_back_with_less_comes_back_once_it_registers_as_declared() -> None:
    assert to_resume(node("DOWN")) is True
    assert to_resume(node("DOWN", "DRAIN")) is True
    assert to_resume(node("DOWN", "NOT_RESPONDING")) is None
    assert to_resume(node("DOWN", "INVALID_REG")) is None


def test_a_node_that_still_has_less_than_declared_is_waited_for() -> None:
    assert to_resume(node("IDLE", "DRAIN", "INVALID_REG")) is None


@pytest.mark.parametrize(
    "drained",
    [
        node("IDLE", "DRAIN", reason="bad fan", author="root"),
        node("IDLE", "DRAIN", reason="bad fan", author="slurm"),
        node("IDLE", "DRAIN", author="root"),
        node("IDLE", "DRAIN", reason="batch job complete failure"),
        node("DOWN", "DRAIN", reason="Node unexpectedly rebooted"),
        node("DOWN", reason="Node unexpectedly rebooted", author="root"),
        node("DOWN", reason="bad fan", author="root"),
        node("DOWN", author="root"),
        node("IDLE", reason=LOW),
        node("MIXED", reason="", author=""),
        {"name": "node1"},
    ],
    ids=lambda drained: f"{drained.get('state')} {drained.get('reason')}",
)
def test_what_somebody_else_took_out_stays_out(drained: dict[str, Any]) -> None:
    assert to_resume(drained) is False


class Node:
    """A made-up node: the files that its slurmd has fetched, and an engine that writes down what it is asked."""

    def __init__(self, folder: Path, wait: int = 0) -> None:
        self.cache, self.ready, self.asked, self.log = folder / "cache", folder / "ready", [], ""
        self.cache.mkdir()
        self.on: dict[str, Callable[[], Any]] = {}
        self.daemon = module.Daemon(
            {
                "expected": {"slurm.conf": sha256(NEW.encode()).hexdigest()},
                "cache": str(self.cache),
                "ready": str(self.ready),
                "container": "slurmd",
                "node": "node1",
                "wait": wait,
            },
            self.run,
        )

    def run(self, command: list[str]) -> tuple[int, str, str]:
        """Answer as Docker does."""
        words = command[command.index("docker") + 1 :]
        what = "start" if "{{.State.StartedAt}}" in words else "process" if words[0] == "inspect" else words[0]
        if what in ("exec", "process"):
            self.asked.append("reconfigure" if what == "exec" else "signal")
            self.on.get(self.asked[-1], lambda: None)()
        return {"start": (0, STARTED, ""), "logs": (0, "", self.log), "process": (0, "0", "")}.get(what, (0, "", ""))

    def fetched(self, text: str, after: int) -> None:
        """Write the file as slurmd does, so many seconds after its container was started."""
        (self.cache / "slurm.conf").write_text(text)
        os.utime(self.cache / "slurm.conf", (SINCE + after,) * 2)

    def up(self, after: int) -> None:
        """Note that a slurmd has come up, as notify-init does."""
        self.ready.touch()
        os.utime(self.ready, (SINCE + after,) * 2)


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node, and a clock that goes on by what is waited for."""
    clock = [0.0]
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    return Node(tmp_path)


def test_a_slurmd_that_runs_with_its_files_is_asked_nothing(made_up: Node) -> None:
    made_up.fetched(NEW, 5)
    made_up.up(6)

    assert made_up.daemon.refresh() == (False, "")
    assert made_up.asked == []


def test_files_that_it_has_missed_are_sent_by_slurmctld(made_up: Node) -> None:
    made_up.fetched("old", 5)
    made_up.up(6)
    made_up.on["reconfigure"] = lambda: (made_up.fetched(NEW, 100), made_up.up(101))

    assert made_up.daemon.refresh() == (True, "")
    assert made_up.asked == ["reconfigure"]


def test_a_script_that_slurmd_may_not_run_is_sent_again(made_up: Node) -> None:
    names = {"slurm.conf": "Prolog=begin\n", "begin": "#!/bin/sh\n", "cli_filter.lua": "return slurm.SUCCESS\n"}
    for name, text in names.items():
        (made_up.cache / name).write_text(text)
    made_up.daemon.expected = module.checksums.sums(names)

    assert made_up.daemon.differing() == ["begin"]
    (made_up.cache / "begin").chmod(0o755)
    assert made_up.daemon.differing() == []


def test_one_that_did_not_come_up_with_its_files_is_told_once_more_and_named(made_up: Node) -> None:
    made_up.fetched(NEW, 50)
    made_up.up(6)
    made_up.log = "slurmd: Resuming operation, reconfigure failed."

    needed, problem = made_up.daemon.refresh()

    assert needed
    assert made_up.asked == ["signal"]
    assert problem.startswith("slurmd did not come up with what it has fetched, and goes on as before: ")
    assert "reconfigure failed" in problem


def test_one_that_waits_for_an_epilog_first_is_waited_for(made_up: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up.fetched(NEW, 50)
    made_up.up(6)
    sleep = time.sleep

    def slept(seconds: float) -> None:
        sleep(seconds)
        if time.monotonic() > 40:
            made_up.up(90)

    monkeypatch.setattr(time, "sleep", slept)

    assert made_up.daemon.refresh() == (False, "")
    assert made_up.asked == []


@pytest.mark.parametrize("earlier", [False, True])
def test_one_that_has_not_come_up_is_sent_no_signal_which_would_end_it(made_up: Node, earlier: bool) -> None:
    made_up.fetched("old", -50)
    if earlier:
        made_up.up(-20)

    assert made_up.daemon.refresh() == (False, "slurmd has not come up:   ")
    assert made_up.asked == []
