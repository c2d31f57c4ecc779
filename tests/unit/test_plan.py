"""What a plan tells: stage, machines, what is wrong, what mending it brings; files once for all that are alike."""

from __future__ import annotations

import io
from typing import Any

import pytest

from provision.errors import ExitCode
from provision.events.fold import RunReport
from provision.report.documents import run_document
from provision.report.plan import show_plan
from provision.report.summary import Printer, show_run

STAGES = [("discover", "Discover"), ("base", "Base"), ("containers", "Engine"), ("munge", "Munge")]
DIFF = {"before": "a\n", "after": "b\n", "before_header": "/etc/x", "after_header": "/etc/x"}
PROGRAM = {"after_header": "/opt/ddp/program.py", "lines": 225, "prepared": "/opt/ddp/program.py: a program\n"}


def pending(stage: str, check: str, observed: str, **more: Any) -> dict[str, Any]:
    return {"stage": stage, "id": check, "verdict": "fail", "observed": observed, "fix": "run this", **more}


def told(host: str, *found: dict[str, Any], task: str = "Ask the machine", **res: Any) -> dict[str, Any]:
    data = {"host": host, "task": task, "resolved_action": "observe", "res": {"cluster_pending": found, **res}}
    return {"event": "runner_on_ok", "event_data": data}


def planned(*events: dict[str, Any], **more: Any) -> RunReport:
    report = RunReport(plays=STAGES, rc=0, finished=True, began=True, **more)
    for event in events:
        report.add(event)
    return report


def text(report: RunReport, *, width: int = 10_000, every: bool = False) -> str:
    stream = io.StringIO()
    printer = Printer(stream)
    printer.width = width
    show_plan(printer, report, every=every)
    return stream.getvalue()


def test_machines_that_lack_the_same_are_one_line_of_stage_machines_check_and_consequence() -> None:
    restart = {"kind": "restart", "of": "docker", "note": "containers go on"}
    absent = pending("containers", "container_engine.files", "x is absent", consequences=[restart])

    lines = text(planned(*(told(f"node{number}", absent) for number in range(1, 201)))).splitlines()

    assert lines == [
        "containers  node[1-200]  container_engine.files: x is absent -> restarts docker (containers go on)"
    ]


def test_lines_are_in_the_order_of_the_stages_whichever_machine_answered_first() -> None:
    late, early = pending("munge", "munge.key", "no key"), pending("base", "base_system.files", "x is absent")

    lines = text(planned(told("head", late), told("node1", early, late))).splitlines()

    assert [line.split()[0] for line in lines] == ["base", "munge"]


def test_what_is_each_machines_own_is_counted_and_told_when_asked_for() -> None:
    report = planned(
        *(told(f"n{number}", pending("base", "base_system.names", f"own {number}")) for number in range(9))
    )

    assert text(report).splitlines() == [
        "base  n0      base_system.names: own 0",
        "base  n1      base_system.names: own 1",
        "base  n[2-8]  base_system.names: another reason on each machine (--verbose shows them)",
    ]
    assert len(text(report, every=True).splitlines()) == 9


def test_no_fix_is_told_as_a_change() -> None:
    assert "run this" not in text(planned(told("head", pending("munge", "munge.key", "no key"))))


def test_a_difference_is_told_once_for_all_machines_whatever_task_saw_it() -> None:
    report = planned(told("head", diff=[DIFF], task="Ask the controller"), told("node1", diff=[DIFF]))

    assert text(report) == "node1,head: /etc/x\n@@ -1 +1 @@\n-a\n+b\nnothing would change\n"


def test_a_program_of_ours_is_named_with_its_lines_and_not_shown() -> None:
    other = {**PROGRAM, "after_header": "/opt/ddp/job.py", "lines": 0, "before": "", "after": "import secret\n"}

    report = planned(told("node1", diff=[PROGRAM, other]), told("node2", diff=[PROGRAM, other]))

    assert text(report).splitlines()[0] == (
        "node[1-2]: /opt/ddp: programs of clusterctl's own: job.py (0 lines), program.py (225 lines)"
    )


def test_nothing_would_change_is_said_of_a_whole_run_alone() -> None:
    assert text(planned(told("node1"))) == "nothing would change\n"
    lost = planned(told("node1"))
    lost.add({"event": "runner_on_unreachable", "event_data": {"host": "node2", "task": "Ask", "res": {"msg": "x"}}})
    assert text(lost) == ""
    cut = planned(told("node1"))
    cut.finished = False
    assert text(cut) == ""


@pytest.mark.parametrize(("command", "check_mode"), [("plan", True), ("provision", True), ("provision", False)])
def test_both_ways_to_ask_for_a_plan_print_it_and_give_it_as_json(command: str, check_mode: bool) -> None:
    report = planned(
        told("node1", pending("munge", "munge.key", "no key"), diff=[DIFF, PROGRAM]), check_mode=check_mode
    )
    stream = io.StringIO()

    show_run(Printer(stream), command, report)
    document = run_document(command, ExitCode.DONE, report, run={})

    assert ("munge.key: no key" in stream.getvalue()) is check_mode
    assert ("pending" in document) is ("diffs" in document) is check_mode
    (entry,) = document["pending_checks"]
    assert (entry["stage"], entry["host"], entry["id"], entry["consequences"]) == ("munge", "node1", "munge.key", [])
    if check_mode:
        assert document["pending"] is True
        assert "2 machines" not in stream.getvalue()
        assert "1 machine: 1 would change, 0 failed, 0 unreachable" in stream.getvalue()
        assert [sorted(entry) for entry in document["diffs"]] == [["diff", "hosts", "path"], ["hosts", "lines", "path"]]


def test_what_is_gone_with_another_things_mending_says_with_which() -> None:
    report = planned(told("node1", pending("slurm", "slurm_service.containers", "slurmd does not exist")))
    goes_with = {("node1", "slurm_service.containers"): ("engine.answers@node1", "slurm_image.by_digest@head")}
    stream = io.StringIO()

    show_run(Printer(stream), "plan", report, goes_with=goes_with)
    document = run_document("plan", ExitCode.DONE, report, run={}, goes_with=goes_with)

    assert "does not exist (goes with engine.answers, slurm_image.by_digest@head)" in " ".join(
        stream.getvalue().split()
    )
    assert document["pending_checks"][0]["follows"] == ["engine.answers@node1", "slurm_image.by_digest@head"]


def test_what_a_machine_says_of_a_stage_is_no_stage_of_ours() -> None:
    event = told("node1", pending("munge\n\x1b[31m" + "x" * 99, "munge.key", "no key"))

    (one,) = planned(event).pending
    assert one.stage.startswith("munge ")
    assert one.stage.isprintable()
    assert len(one.stage) < 80
    event["event_data"]["resolved_action"] = "machine_facts"
    assert planned(event).pending == []
