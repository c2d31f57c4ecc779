"""What a bar shows and what a pipe is told, from events and a clock."""

from __future__ import annotations

from typing import Any

import pytest

from provision.events.fold import RunReport
from provision.report.going import Going

PLAYS = (("containers", "Have an engine"), ("slurm", "Run Slurm"))


class Run:
    """A run whose events come at times that a test chooses."""

    def __init__(self, **settings: Any) -> None:
        self.report = RunReport(plays=PLAYS)
        self.going = Going(0.0, **{"machines": 3, **settings})
        self.lines: list[str] = []

    def event(self, at: float, kind: str, stdout: str = "", **data: Any) -> None:
        event = {"event": kind, "stdout": stdout, "event_data": data}
        self.report.add(event)
        self.lines += self.going.take(self.report, event, at)

    def task(self, name: str, at: float = 0.0, play: str = "") -> None:
        if play:
            self.event(at, "playbook_on_play_start", name=play)
        self.event(at, "playbook_on_task_start", task=name)

    def ended(self, host: str, at: float, kind: str = "ok", **result: Any) -> None:
        self.event(at, f"runner_on_{kind}", host=host, task="", res={"changed": False, **result})

    def told(self, line: str, at: float) -> None:
        self.event(at, "verbose", stdout=line)


def building(**settings: Any) -> Run:
    run = Run(**settings)
    run.task("Build the image", play="Have an engine")
    return run


def test_a_bar_shows_stage_task_machines_and_time() -> None:
    run = building()
    run.ended("head", 4.0)
    run.ended("node1", 5.0, kind="failed", msg="no")

    look = run.going.look(65.0)

    assert (look.stage, look.task, look.done, look.machines) == ("containers", "Build the image", 2, 3)
    assert (look.failed, look.elapsed, look.left) == (1, "1:05", "")


def test_the_time_left_is_what_the_last_run_still_took_from_here() -> None:
    run = building(expected=[("containers", 40.0), ("slurm", 50.0)])

    assert run.going.look(10.0).left == "about 1:20 left"
    assert run.going.look(70.0).left == "about 0:50 left"
    run.task("Start", at=80.0, play="Run Slurm")
    assert run.going.look(100.0).left == "about 0:30 left"
    assert run.going.look(140.0).left == "longer than last time"


def test_without_an_earlier_run_or_in_a_stage_that_it_lacked_no_time_left_is_shown() -> None:
    assert building().going.look(10.0).left == ""
    assert building(expected=[("slurm", 50.0)]).going.look(10.0).left == ""


def test_a_pipe_is_told_every_15_seconds_what_is_waited_for() -> None:
    run = building()
    run.event(5.0, "waiting", hosts=["head", "node1", "node2"])
    run.ended("node2", 6.0)

    assert run.going.silent(14.0) == []
    assert run.going.silent(15.0) == [
        "containers: started after 0:00",
        "containers: Build the image: waiting for node1,head (0:15)",
    ]
    assert run.going.silent(29.0) == []
    run.ended("node1", 30.0)
    assert run.going.silent(30.0) == ["containers: Build the image: waiting for head (0:30)"]


def test_a_task_that_has_just_begun_is_named_and_not_said_to_be_waited_for() -> None:
    run = building()
    run.task("Push the image", at=14.0)

    assert run.going.silent(15.0)[1:] == ["containers: Push the image"]


def test_a_line_that_was_said_anyway_counts_for_the_15_seconds() -> None:
    run = building()
    run.ended("head", 10.0, changed=True)
    run.task("Push the image", at=12.0)

    assert run.lines == ["containers: started after 0:00", "containers: Build the image: changed head"]
    assert run.going.silent(26.0) == []
    assert run.going.silent(27.0) == ["containers: Push the image: waiting (0:15)"]


def test_with_verbosity_1_each_task_is_named_beside_a_bar_too() -> None:
    run = building(verbosity=1, live=True)
    run.task("Push the image", at=1.0)

    assert run.lines == ["containers: Build the image", "containers: Push the image"]


def test_what_a_machine_tells_of_its_work_is_shown_until_it_is_done() -> None:
    run = building()
    run.told("going: head: ddp: step 4 of 9", 3.0)

    assert run.going.look(4.0).task == "head: ddp: step 4 of 9"
    assert run.going.waiting(20.0) == "containers: Build the image: waiting (0:20): head: ddp: step 4 of 9"
    run.ended("head", 21.0)
    assert run.lines == []
    assert run.going.look(22.0).task == "Build the image"


def test_machines_that_tell_the_same_are_shown_together_and_of_many_texts_three() -> None:
    run = building()
    for number, text in enumerate(("1 of 5", "1 of 5", "2 of 5", "3 of 5", "4 of 5")):
        run.told(f"going: node{number}: {text}", 1.0)

    assert run.going.look(1.0).task == "node[0-1]: 1 of 5; node2: 2 of 5; node3: 3 of 5"


@pytest.mark.parametrize("live", [True, False])
def test_what_has_ended_stays_as_a_line_above_a_bar_too(live: bool) -> None:
    run = building(live=live)
    run.told("ended: head: job 7: A identity: pass", 3.0)

    assert run.lines[-1] == "containers: head: job 7: A identity: pass"


def test_nothing_that_a_machine_tells_reaches_the_terminal_as_an_order() -> None:
    run = building()
    run.told("going: head: \x1b]0;owned\x07step\x1b[2J 4 of 9\u202e", 3.0)

    assert run.going.look(4.0).task == "head: step 4 of 9"
    assert "\x1b" not in run.going.waiting(20.0)


def test_ansibles_other_lines_are_nobodys_progress() -> None:
    run = building()
    run.told("Using module file /x: going: head: y", 1.0)
    run.told("going: head", 1.0)

    assert run.going.look(2.0).task == "Build the image"
