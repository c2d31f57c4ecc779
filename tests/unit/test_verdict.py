"""The verdict of a run: no pass for anything but a whole run in which every owed check came and none was bad."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from provision.errors import ExitCode
from provision.events.exit import exit_code
from provision.events.fold import RunReport
from provision.events.verdict import NEVER_RAN, RunVerdict, busy, verdict
from provision.model.checks import Check, Verdict
from provision.report.documents import junit, run_document

Event = Mapping[str, Any]

#: What ansible-runner handed over during a verify of the lab: of results only the checks, of most plays only the tasks
#: that have some.
RECORDED = [
    json.loads(line)
    for line in (Path(__file__).parent / "fixtures/verdict/verify.jsonl").read_text(encoding="utf-8").splitlines()
]

ACCESS = [Check("access.ready", host, Verdict.PASS) for host in ("head", "node1", "node2")]


def run(events: Sequence[Event], rc: int | None = 0, **more: Any) -> RunReport:
    report = RunReport(rc=rc, began=True, **more)
    report.add_access(ACCESS)
    for event in events:
        report.add(event)
    return report


OWED = frozenset(
    # The proof by a job is owed by the cluster: it accuses whom it finds guilty.
    ("", check.id) if check.id.startswith("ddp.") else (check.host, check.id)
    for check in run(RECORDED).checks
)


def edited(checks: Mapping[tuple[str, str], Mapping[str, Any]], last: Event | None = None) -> list[Event]:
    """Return the recorded events with some checks changed, and another last event where it is given."""
    events: list[Event] = json.loads(json.dumps(RECORDED))
    for event in events:
        data = event.get("event_data") or {}
        for check in (data.get("res") or {}).get("cluster_checks", ()):
            check.update(checks.get((check.get("host") or data["host"], check["id"]), {}))
    return [*events[:-1], last] if last else events


def test_the_whole_run_passes_and_says_what_was_proven_and_what_was_simulated() -> None:
    found = verdict(run(RECORDED, owed=OWED))

    assert found.word is Verdict.PASS
    assert found.why == ()
    assert found.counts["proven"] + found.counts["simulated"] == sum(c.verdict is Verdict.PASS for c in found.checks)
    assert found.counts["simulated"] > 10
    assert (found.counts["fail"], found.counts["unknown"], found.counts["never_ran"]) == (0, 0, 0)
    assert exit_code("verify", run(RECORDED, owed=OWED)) is ExitCode.DONE


def ended(*words: Verdict) -> RunReport:
    """Return the report of a whole run that gave a check of each of these verdicts."""
    report = RunReport(rc=0, began=True, checks=[Check(f"a.{word}", "node1", word) for word in words])
    report.add(RECORDED[-1])
    return report


@pytest.mark.parametrize(
    ("words", "whole"),
    [
        ([Verdict.PASS, Verdict.UNKNOWN, Verdict.FAIL], Verdict.FAIL),
        ([Verdict.PASS, Verdict.UNKNOWN], Verdict.UNKNOWN),
        ([Verdict.PASS, Verdict.WARN, Verdict.SKIP], Verdict.PASS),
    ],
    ids=str,
)
def test_a_fail_outweighs_an_unknown_and_an_unknown_outweighs_a_pass(words: list[Verdict], whole: Verdict) -> None:
    assert verdict(ended(*words)).word is whole


@pytest.mark.parametrize("words", [[], [Verdict.SKIP]], ids=["no check", "skips alone"])
def test_nothing_checked_is_not_a_pass(words: list[Verdict]) -> None:
    found = verdict(ended(*words))

    assert found.word is Verdict.UNKNOWN
    assert found.why == ("nothing was checked",)


@pytest.mark.parametrize("rc", [None, 0, 1, 2, 4, 8, 99, 250, -9], ids=str)
@pytest.mark.parametrize("owed", [OWED, frozenset()], ids=["manifest", "no manifest"])
def test_a_run_that_is_cut_after_any_event_never_passes(rc: int | None, owed: frozenset[tuple[str, str]]) -> None:
    for end in range(len(RECORDED)):
        report = run(RECORDED[:end], rc, owed=owed)

        assert verdict(report).word is Verdict.UNKNOWN, end
        assert exit_code("verify", report) in (8, 1, 2), end
        assert exit_code("preflight", report) in (3, 1, 2), end
        assert exit_code("provision", report) is not ExitCode.DONE, end


@pytest.mark.parametrize(
    ("number", "code", "told"),
    [
        (signal.SIGINT, 130, "the run was stopped (SIGINT) before its end"),
        (signal.SIGTERM, 143, "the run was stopped (SIGTERM) before its end"),
        (signal.SIGALRM, 143, "the run was stopped at its time limit"),
    ],
)
def test_a_run_that_was_stopped_never_passes_not_even_after_its_last_event(number: int, code: int, told: str) -> None:
    for end in range(len(RECORDED) + 1):
        # Ansible that is stopped at its very end may still end well.
        for rc in (None, 99, 0) if end == len(RECORDED) else ((None, 99)[end % 2],):
            report = run(RECORDED[:end], rc, owed=OWED, stopped_by=number)

            found = verdict(report)
            assert found.word is Verdict.UNKNOWN, end
            assert found.why[0] == told
            assert exit_code("verify", report) == code


@pytest.mark.parametrize("rc", [None, 1, 2, 4, 8, 99, 250, 255, -9], ids=str)
def test_a_code_of_ansible_that_no_machine_explains_is_no_pass(rc: int | None) -> None:
    found = verdict(run(RECORDED, rc, owed=OWED))

    assert found.word is Verdict.UNKNOWN
    assert [check.id for check in found.checks if not check.ok] == ["run.ended"]


def test_no_check_of_the_run_can_be_missing_unnoticed() -> None:
    for number, event in enumerate(RECORDED):
        if not ((event.get("event_data") or {}).get("res") or {}).get("cluster_checks"):
            continue
        found = verdict(run([*RECORDED[:number], *RECORDED[number + 1 :]], owed=OWED))

        assert found.word is Verdict.UNKNOWN
        gone = {check["id"] for check in event["event_data"]["res"]["cluster_checks"]}
        assert {check.id for check in found.checks if check.observed == NEVER_RAN} == gone


def test_a_result_that_was_too_large_is_missed_by_machine_and_task_with_and_without_a_manifest() -> None:
    for number, event in enumerate(RECORDED):
        data = event.get("event_data") or {}
        if not data.get("res"):
            continue
        lost = {**event, "event_data": {**data, "res": {}}}
        for owed in (OWED, frozenset[tuple[str, str]]()):
            found = verdict(run([*RECORDED[:number], lost, *RECORDED[number + 1 :]], owed=owed))

            assert found.word is Verdict.UNKNOWN
            [told] = [check for check in found.checks if check.id == "run.lost"]
            assert told.host == data["host"]
            assert data["task"] in told.observed


def test_an_event_that_could_not_be_written_is_missed() -> None:
    bare = {"uuid": "x", "counter": 7, "stdout": "", "created": "2026-01-01T10:00:00+00:00"}

    assert verdict(run([*RECORDED[:40], bare, *RECORDED[41:]])).word is Verdict.UNKNOWN


NOBODY = {"event": "playbook_on_no_hosts_matched", "event_data": {}}


def test_a_play_for_nobody_is_no_pass_unless_the_run_was_for_some_machines_only() -> None:
    events = [*RECORDED[:-1], {"event": "playbook_on_play_start", "event_data": {"name": "Jobs"}}, NOBODY, RECORDED[-1]]

    found = verdict(run(events))

    assert found.word is Verdict.UNKNOWN
    assert "Jobs" in found.why[0]
    assert verdict(run(events, limited=("node1",))).word is Verdict.PASS


def test_a_play_that_has_nothing_to_do_on_any_machine_is_no_hole_in_the_run() -> None:
    play = {"event": "playbook_on_play_start", "event_data": {"name": "Jobs", "pattern": "!all"}}

    assert verdict(run([*RECORDED[:-1], play, NOBODY, RECORDED[-1]])).word is Verdict.PASS


def test_a_record_with_a_hole_is_no_pass() -> None:
    assert verdict(run(RECORDED, unrecorded="the journal could not be written: no space")).word is Verdict.UNKNOWN


def failed_run(**more: Any) -> RunReport:
    """Return a run in which a check failed, ended by the task that sums up and Ansible's code for that."""
    events = edited({("node2", "munge.key_mode"): {"verdict": "fail", "observed": "0644"}}, {})
    summed = {
        "event": "runner_on_failed",
        "event_data": {"host": "node2", "task": "Sum up", "resolved_action": "cluster_check", "res": {"msg": "m"}},
    }
    end = {"event": "playbook_on_stats", "event_data": {"failures": {"node2": 1}}}
    return run([*[event for event in events if event], summed, end], 2, owed=OWED, **more)


def test_a_fail_stays_a_fail_when_the_run_ends_badly_for_it() -> None:
    found = verdict(failed_run())

    assert found.word is Verdict.FAIL
    assert [(check.host, check.id) for check in found.checks if not check.ok] == [("node2", "munge.key_mode")]
    assert exit_code("verify", failed_run()) is ExitCode.VERIFICATION_FAILED


def test_strict_fails_on_warnings_and_on_what_should_be_proven_and_was_not() -> None:
    plain = {key: dict[str, Any]() for key in OWED}
    steady = {(host, name): {"verdict": "pass"} for host, name in OWED if name.endswith("memlock")}
    unproven = {("node1", "nvidia_driver.version"): {"verdict": "skip", "unproven": True}}

    assert verdict(run(edited(plain | steady), strict=True)).word is Verdict.PASS
    assert verdict(run(RECORDED, strict=True)).word is Verdict.FAIL
    assert verdict(run(edited(steady | unproven), strict=True)).word is Verdict.FAIL
    assert exit_code("verify", run(RECORDED, strict=True)) is ExitCode.VERIFICATION_FAILED
    counted = verdict(run(edited(unproven)))
    assert (counted.word, counted.counts["unproven"]) == (Verdict.PASS, 1)
    assert counted.counts["warn"] > 0


def test_every_report_repeats_the_verdict_and_its_reason() -> None:
    found = verdict(run(RECORDED[:50], None, owed=OWED))

    document = run_document("verify", 8, run(RECORDED[:50], None, owed=OWED), run={})
    told = junit(found)

    assert document["verdict"] == "unknown"
    assert "Ansible was killed before the end of the run" in document["why"]
    assert document["counts"] == found.counts
    assert '<error message="Ansible was killed before the end of the run">' in told


def test_a_command_that_could_not_begin_beside_another_run_is_unknown_and_says_which() -> None:
    report = busy("a provision runs: process 7, since 10:00")

    found: RunVerdict = verdict(report)

    assert found.word is Verdict.UNKNOWN
    assert [(check.id, check.observed) for check in found.checks] == [
        ("run.lock", "a provision runs: process 7, since 10:00")
    ]
    assert exit_code("verify", report) is ExitCode.VERIFICATION_FAILED
