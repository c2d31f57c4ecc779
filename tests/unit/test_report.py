"""What commands print: for people, as JSON, and as JUnit XML."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from typing import Any

import pytest

from provision.errors import ExitCode
from provision.events.fold import RunReport
from provision.events.verdict import RunVerdict, verdict
from provision.model.checks import Check, Level, Verdict
from provision.model.text import MAX_TEXT, clean
from provision.report.checks import show_checks
from provision.report.documents import junit, run_document
from provision.report.summary import Printer, show_run, verdict_line

PASS = Check("munge.key_mode", "node1", Verdict.PASS, observed="0400", expected="0400")
FAIL = Check(
    "munge.key_mode",
    "node2",
    Verdict.FAIL,
    observed="0644",
    expected="0400",
    source="munge_key_mode",
    cause="someone changed it",
    fix="clusterctl provision munge",
)
UNKNOWN = Check("slurm.state", "head", Verdict.UNKNOWN, Level.CLUSTER, observed="no answer")
SKIP = Check("slurm.device_isolation", "node1", Verdict.SKIP, Level.JOB, cause="cgroup v1", simulated=True)


def result(host: str, kind: str, **res: Any) -> dict[str, Any]:
    return {
        "event": f"runner_on_{kind}",
        "created": "2026-01-01T10:00:00+00:00",
        "event_data": {"host": host, "task": "Install", "role": "munge", "res": res},
    }


@pytest.fixture
def report() -> RunReport:
    report = RunReport(rc=2)
    report.stage = "munge"
    for number in range(1, 65):
        report.add(result(f"node{number:02}", "failed", msg="no package munge"))
    report.add(result("head", "ok", changed=True))
    return report


def judged(*checks: Check, **more: Any) -> RunVerdict:
    """Return the verdict of a whole run with these checks."""
    return verdict(RunReport(checks=list(checks), rc=0, finished=True, began=True, **more))


def printed(width: int, *call: Any, **options: Any) -> str:
    show, *arguments = call
    stream = io.StringIO()
    printer = Printer(stream)
    printer.width = width
    show(printer, *arguments, **options)
    return stream.getvalue()


def test_sixty_four_equal_failures_are_one_line(report: RunReport) -> None:
    text = printed(10_000, show_run, "provision", report)

    assert text.count("no package munge") == 1
    assert "node[01-64]: munge | Install: no package munge" in text
    assert "65 machines: 1 changed, 64 failed, 0 unreachable" in text


def test_a_run_on_simulated_hardware_says_so_every_time(report: RunReport) -> None:
    text = printed(80, show_run, "provision", report, simulated=["gpu"])

    assert "simulated: gpu (simulated hardware is not counted as proven)" in text


def test_checks_that_passed_are_counted_and_listed_only_when_asked_for() -> None:
    found = [PASS, FAIL, UNKNOWN, SKIP, replace(SKIP, host="node9", unproven=True)]
    brief = printed(80, show_checks, found)
    full = printed(80, show_checks, found, every=True)

    assert "checks: 1 pass, 1 fail, 1 unknown, 2 skip (-v lists all)" in brief
    assert "0400" not in brief.partition("expected")[0]
    assert "skip     slurm.device_isolation (node9): cgroup v1 (simulated) (not proven)" in brief
    assert "(node1)" not in brief
    assert "cause: someone changed it" in brief
    assert "fix: clusterctl provision munge" in brief
    assert "node1" in full
    assert "cgroup v1" in full
    assert "(simulated)" in full


def test_the_verdict_counts_what_is_simulated_warned_of_or_left_open_apart_from_what_was_proven() -> None:
    simulated, warned = replace(PASS, host="node3", simulated=True), replace(PASS, host="node4", verdict=Verdict.WARN)
    left_open = replace(SKIP, unproven=True)

    found = judged(PASS, simulated, warned, left_open, SKIP)

    assert verdict_line(found, ["gpu"]) == "verdict: pass (1 proven, 1 simulated: gpu, 1 warn, 1 unproven)"
    assert verdict_line(judged(PASS)) == "verdict: pass (1 proven)"
    assert verdict_line(judged(PASS, FAIL, UNKNOWN)) == "verdict: fail (1 fail, 1 unknown, 1 proven)"


def test_the_verdict_of_a_limited_run_says_that_it_is_none_on_the_rest() -> None:
    line = verdict_line(judged(PASS, limited=("node1", "node2")))

    assert line == ("verdict: pass (1 proven), limited to node[1-2]: it says nothing about the rest of the cluster")


def test_machines_with_the_same_finding_share_a_line() -> None:
    text = printed(100, show_checks, [replace(FAIL, host=f"node{number}") for number in (1, 2, 3)])

    assert text.count("someone changed it") == 1
    assert "node[1-3]" in text


def test_of_many_machines_with_one_cause_two_say_what_they_saw_and_one_how_it_is_mended() -> None:
    off = [
        replace(FAIL, host=f"node{number}", observed=f"10.0.0.{number} is silent", fix=f"ping 10.0.0.{number}")
        for number in range(1, 41)
    ]
    text = printed(10_000, show_checks, off)

    assert len(text.splitlines()) == 4
    assert "node[1-40]" in text
    assert "10.0.0.1 is silent; 10.0.0.2 is silent; and 38 more" in text
    assert "fix: for node1: ping 10.0.0.1; the same for each of the others" in text
    assert printed(10_000, show_checks, off, every=True).count("fix: ping") == 40
    assert printed(10_000, show_checks, off[:2]).count("fix: ping") == 2
    same = [replace(check, observed="the key is refused") for check in off]
    assert printed(10_000, show_checks, same).count("the key is refused") == 1


@pytest.mark.parametrize("width", [20, 40, 80])
def test_nothing_is_wider_than_the_terminal(report: RunReport, width: int) -> None:
    report.checks = [PASS, FAIL, UNKNOWN, SKIP]

    text = printed(width, show_run, "verify", report, every_check=True, simulated=["gpu"], log="/a/long/path" * 4)

    # A path can be copied: the terminal wraps that line itself.
    assert max(len(line) for line in text.splitlines() if not line.startswith("record: ")) <= width
    assert "verdict: fail" in text
    assert "record: /a/long/path/a/long/path" in text


def test_an_ascii_terminal_gets_ascii_and_no_error(report: RunReport) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    report.warnings["Gerät größer als 日本"] = None

    show_run(Printer(stream), "provision", report)

    stream.flush()
    assert raw.getvalue().isascii()
    assert b"Ger\\xe4t" in raw.getvalue()


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("\x1b]0;owned\x07title", "title"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[Hcleared", "cleared"),
        ("over\rwritten", "over\ufffdwritten"),
        ("exe\u202egnp.txt", "exegnp.txt"),
        ("\u2066isolate\u2069", "isolate"),
        ("bell\x07 back\x08", "bell\ufffd back\ufffd"),
        ("c1 \x9b31m", "c1 "),
        ("\x1b]8;;http://x\x1b\\link", "link"),
        ("a string for the terminal \x1bP+q544e\x1b\\gone", "a string for the terminal gone"),
        ("8-bit \x90q#0\x9cgone", "8-bit gone"),
        ("a character set \x1b(0lqk\x1b(B", "a character set lqk"),
        ("ba\u200bd mu\u00adnge \u2060\U000e0041", "bad munge "),
        ("plain\ttab\nline ä", "plain\ttab\nline ä"),
    ],
)
def test_what_a_terminal_would_obey_is_taken_out(hostile: str, harmless: str) -> None:
    assert clean(hostile) == harmless


def test_a_line_of_a_million_characters_is_cut_and_says_so() -> None:
    text = clean("x" * 10**6)

    assert len(text) < MAX_TEXT + 50
    assert text.endswith("(998000 more characters)")


def test_hostile_text_in_a_failure_does_not_reach_the_terminal(report: RunReport) -> None:
    report.add(result("evil", "failed", msg="\x1b]0;owned\x07\x1b[2J" + "y" * 10**6))

    text = printed(80, show_run, "provision", report)

    assert "\x1b" not in text
    assert "owned" not in text
    assert len(text) < 20_000


def test_the_json_document_has_the_promised_keys(report: RunReport) -> None:
    report.checks = [PASS, FAIL]

    document = run_document("verify", ExitCode.VERIFICATION_FAILED, report, simulated=["gpu"], run={"id": "x"})

    json.dumps(document)
    assert document["schema"] == "clusterctl/verify/1"
    assert document["command"] == "verify"
    assert document["exit_code"] == 8
    assert document["verdict"] == "fail"
    assert document["simulated"] == ["gpu"]
    assert document["changed"] == 1
    assert document["hosts"]["node01"]["failed"] == 1
    assert {"ok", "changed", "failed", "unreachable"} <= document["hosts"]["head"].keys()
    assert {"id", "host", "verdict", "observed", "expected", "cause", "fix"} <= document["checks"][0].keys()


def test_junit_counts_a_fail_as_failure_and_unknown_as_error() -> None:
    hostile = replace(FAIL, host="node3", observed="\x00\x1b[31m<&>\ud800")

    root = ElementTree.fromstring(junit(judged(PASS, FAIL, UNKNOWN, SKIP, hostile), seconds=1.5).encode())  # noqa: S314 - our own

    suites = {suite.get("name"): suite for suite in root}
    assert suites.keys() == {"verdict", "host.munge", "cluster.slurm", "job.slurm"}
    munge = suites["host.munge"]
    assert (munge.get("tests"), munge.get("failures"), munge.get("errors")) == ("3", "2", "0")
    assert suites["cluster.slurm"].get("errors") == "1"
    assert suites["job.slurm"].get("skipped") == "1"
    failure = munge[1].find("failure")
    assert failure is not None
    assert failure.get("message") == "someone changed it"
    assert "fix: clusterctl provision munge" in (failure.text or "")
    assert munge[1].get("classname") == "node2"


def test_a_verdict_that_no_check_explains_is_no_pass_in_junit_either() -> None:
    told = verdict(RunReport(rc=0, finished=True, checks=[Check("mig.layout", "n1", Verdict.SKIP)]))
    root = ElementTree.fromstring(junit(told).encode())  # noqa: S314 - our own

    suite = root.find("testsuite[@name='verdict']")
    assert told.word is Verdict.UNKNOWN
    assert suite is not None
    assert suite.get("errors") == "1"
    assert suite.find("testcase/error") is not None
