"""Events folded into a report, and the exit code that follows from it."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

import pytest

from provision.errors import ExitCode
from provision.events.exit import exit_code
from provision.events.fold import Failure, RunReport, Task
from provision.events.verdict import verdict
from provision.model.checks import Check, Verdict


def result(
    host: str,
    *,
    kind: str = "ok",
    task: str = "Do it",
    role: str = "munge",
    res: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Build one event of ansible-runner for a task's end on a machine."""
    return {
        "event": f"runner_on_{kind}",
        "created": "2026-01-01T10:00:02+00:00",
        "event_data": {"host": host, "task": task, "role": role, "res": {"changed": False, **(res or {})}, **more},
    }


def play(name: str, at: str = "2026-01-01T10:00:00+00:00") -> dict[str, Any]:
    return {"event": "playbook_on_play_start", "created": at, "event_data": {"name": name}}


def judged(host: str, *checks: Mapping[str, Any], kind: str = "ok", **more: Any) -> dict[str, Any]:
    """Build the event of our own action that hands over checks."""
    res = {"changed": False, "cluster_checks": list(checks)}
    return result(host, kind=kind, res=res, resolved_action="ansible.legacy.cluster_check", **more)


def stats(**counts: Any) -> dict[str, Any]:
    return {"event": "playbook_on_stats", "event_data": counts}


def check(verdict: str, **more: Any) -> dict[str, Any]:
    return {"id": "munge.key_mode", "verdict": verdict, "observed": "0644", "expected": "0400", **more}


def folded(*events: Mapping[str, Any], plays: list[tuple[str, str]] | None = None, rc: int | None = 0) -> RunReport:
    report = RunReport(plays=plays or [], rc=rc, began=True)
    for event in events:
        report.add(event)
    return report


def whole(*events: Mapping[str, Any], rc: int = 0) -> RunReport:
    """Fold a run that came to its end."""
    failed = {event["event_data"]["host"]: 1 for event in events if event["event"] == "runner_on_failed"}
    return folded(*events, stats(failures=failed), rc=rc)


def test_every_task_result_is_counted_once_for_its_host() -> None:
    report = folded(
        result("n1", res={"changed": True}),
        result("n1"),
        result("n1", kind="skipped"),
        result("n1", kind="failed", res={"msg": "no"}),
        result("n2", kind="unreachable", res={"msg": "gone"}),
    )

    assert report.hosts["n1"].as_dict() == {
        "ok": 2, "changed": 1, "failed": 1, "unreachable": 0, "skipped": 1, "tasks": 4
    }  # fmt: skip
    assert report.hosts["n2"].unreachable == 1
    assert report.changed == 1


def test_machines_that_fail_alike_are_one_failure() -> None:
    report = folded(*(result(f"n{n}", kind="failed", res={"msg": "no room"}) for n in (1, 2, 3)))

    assert dict(report.failures) == {Failure(Task("", "munge", "Do it"), "no room"): {"n1", "n2", "n3"}}


def test_a_failed_loop_names_the_items_that_failed_and_only_those() -> None:
    items = [
        {"failed": True, "msg": "not found", "_ansible_item_label": "munge"},
        {"failed": False, "msg": "", "_ansible_item_label": "docker"},
    ]

    report = folded(result("n1", kind="failed", res={"msg": "One or more items failed", "results": items}))

    assert [failure.reason for failure in report.failures] == ["munge: not found"]


def test_a_failed_command_is_explained_by_its_last_line_of_stderr() -> None:
    res = {"msg": "non-zero return code", "rc": 3, "stderr": "first\nslurmctld: bad config"}

    report = folded(result("n1", kind="failed", res=res))

    assert [failure.reason for failure in report.failures] == ["slurmctld: bad config (exit code 3)"]


def test_a_failure_hidden_by_no_log_says_so_and_nothing_else() -> None:
    report = folded(result("n1", kind="failed", res={"censored": "hidden"}))

    assert "hidden because it may hold a secret" in next(iter(report.failures)).reason


def test_a_failure_that_is_ignored_or_rescued_is_none() -> None:
    ignored = folded(result("n1", kind="failed", ignore_errors=True, res={"msg": "x"}), stats(failures={}))
    rescued = folded(result("n1", kind="failed", res={"msg": "x"}), stats(failures={}, rescued={"n1": 1}))

    assert not ignored.failures
    assert not rescued.failures
    assert rescued.hosts["n1"].failed == 0
    assert not any(stage.failed for stage in rescued.stages.values())


def test_checks_are_read_from_results_and_from_loop_items() -> None:
    report = folded(
        judged("n1", check("pass")),
        result(
            "n2",
            res={"results": [{"cluster_checks": [check("fail", host="n9")]}, {"cluster_checks": [check("warn")]}]},
            resolved_action="cluster_check",
        ),
    )

    assert [(item.host, item.verdict) for item in report.checks] == [
        ("n1", Verdict.PASS), ("n9", Verdict.FAIL), ("n2", Verdict.WARN)
    ]  # fmt: skip


def test_a_check_that_cannot_be_read_is_unknown_and_not_lost() -> None:
    report = folded(judged("n1", {"id": "x.y", "verdict": "splendid"}, {"verdict": "pass"}, {"id": "x"}))

    assert [(item.id, item.verdict) for item in report.checks] == [("run.unreadable", Verdict.UNKNOWN)] * 3


def test_a_task_that_fails_beside_the_checks_becomes_an_unknown_check() -> None:
    report = whole(
        judged("n1", check("pass")),
        result("n1", kind="failed", task="Verify | Ask", res={"msg": "exploded"}),
    )

    found = verdict(report)
    checks = [check for check in found.checks if check.id.startswith("munge.")]

    assert found.word is Verdict.UNKNOWN
    assert checks[-1].observed == "munge | Verify | Ask: exploded"
    assert checks[-1].host == "n1"


def test_the_task_that_sums_up_bad_checks_is_not_a_check_of_its_own() -> None:
    report = whole(
        judged("n1", check("fail")),
        result("n1", kind="failed", role="", task="End", task_action="cluster_check", res={"msg": "one"}),
        rc=2,
    )

    found = verdict(report)
    assert (found.word, len(found.checks)) == (Verdict.FAIL, 1)
    assert report.failed_hosts == {"n1"}


def test_a_fail_task_without_any_bad_check_is_not_taken_for_a_sum() -> None:
    report = whole(
        judged("n1", check("pass")),
        result("n1", kind="failed", resolved_action="ansible.builtin.fail", res={"msg": "one"}),
        rc=2,
    )

    assert verdict(report).word is Verdict.UNKNOWN


def test_stages_follow_the_plays_and_take_their_time_from_the_events() -> None:
    report = folded(
        play("First"),
        result("n1", res={"changed": True}),
        play("Second", "2026-01-01T10:00:07+00:00"),
        result("n2", kind="failed", res={"msg": "x"}),
        plays=[("base", "First"), ("munge", "Second")],
    )

    assert list(report.stages) == ["base", "munge"]
    assert report.stages["base"].seconds == 2
    assert report.stages["base"].changed == {"n1"}
    assert report.stages["munge"].failed == {"n2"}
    assert next(iter(report.failures)).task.stage == "munge"


def test_the_same_play_name_in_two_stages_is_told_apart_by_order() -> None:
    report = RunReport(plays=[("base", "Controller"), ("base", "Nodes"), ("slurm", "Controller")])

    seen = []
    for name in ("Controller", "Nodes", "Controller"):
        report.add(play(name))
        seen.append(report.stage)

    assert seen == ["base", "base", "slurm"]


@pytest.mark.parametrize("hidden", [{"censored": "x"}, {"_ansible_no_log": True}])
def test_no_difference_of_a_secret_file_is_kept(hidden: dict[str, Any]) -> None:
    report = folded(result("n1", res={"diff": {"before": "old", "after": "SECRET"}, **hidden}))

    assert not report.diffs


def test_the_same_difference_on_two_machines_is_one() -> None:
    res = {"changed": True, "diff": [{"before": "a\n", "after": "b\n", "after_header": "/etc/hosts"}]}

    report = folded(result("n1", res=res), result("n2", res=res))

    [(diff, hosts)] = report.diffs.items()
    assert hosts == {"n1", "n2"}
    assert diff.path == "/etc/hosts"
    assert "-a\n+b" in diff.text


def test_what_ansible_prints_before_any_machine_answers_is_kept_as_its_reason() -> None:
    report = folded({"event": "error", "stdout": "[ERROR]: YAML parsing failed"}, rc=4)

    assert report.messages == ["[ERROR]: YAML parsing failed"]


def unreachable(step: str) -> Check:
    return Check(f"access.{step}", "n3", Verdict.FAIL, observed="no", cause="c", fix="f")


def test_a_machine_that_the_probe_did_not_reach_is_unreachable_and_one_without_sudo_has_failed() -> None:
    for step in ("name", "route", "port", "host_key", "login"):
        report = RunReport()
        report.add_access([unreachable(step)])
        assert report.unreachable_hosts == {"n3"}, step
        assert not report.failed_hosts, step
    report = RunReport()
    report.add_access([unreachable("sudo")])
    assert report.failed_hosts == {"n3"}
    assert not report.unreachable_hosts


OK = result("n1")
FAILED = result("n1", kind="failed", res={"msg": "x"})
GONE = result("n2", kind="unreachable", res={"msg": "x"})


@pytest.mark.parametrize(
    ("command", "events", "rc", "expected"),
    [
        ("provision", [OK], 0, ExitCode.DONE),
        ("provision", [FAILED], 2, ExitCode.MACHINE_FAILED),
        # T2: Ansible's own code for this is 4, "unreachable"; the failure must not be hidden.
        ("provision", [FAILED, GONE], 4, ExitCode.MACHINE_FAILED),
        ("provision", [OK, GONE], 4, ExitCode.MACHINE_UNREACHABLE),
        # T1: Ansible ends with 0 when no machine matched.
        ("provision", [], 0, ExitCode.BAD_REQUEST),
        ("provision", [OK], 250, ExitCode.BUG),
        ("discover", [OK], 1, ExitCode.BUG),
        ("plan", [OK], 250, ExitCode.BUG),
        ("provision", [judged("n1", check("fail"))], 0, ExitCode.VERIFICATION_FAILED),
        ("verify", [judged("n1", check("pass"))], 0, ExitCode.DONE),
        ("verify", [judged("n1", check("warn"))], 0, ExitCode.DONE),
        ("verify", [judged("n1", check("fail"))], 0, ExitCode.VERIFICATION_FAILED),
        ("verify", [judged("n1", check("unknown"))], 0, ExitCode.VERIFICATION_FAILED),
        ("verify", [OK], 0, ExitCode.VERIFICATION_FAILED),
        ("verify", [judged("n1", check("pass")), GONE], 4, ExitCode.VERIFICATION_FAILED),
        ("preflight", [judged("n1", check("fail"))], 2, ExitCode.PREFLIGHT_REFUSED),
        ("preflight", [judged("n1", check("pass"))], 0, ExitCode.DONE),
    ],
)
def test_the_exit_code_follows_from_what_happened_on_each_machine(
    command: str, events: list[dict[str, Any]], rc: int, expected: ExitCode
) -> None:
    assert exit_code(command, whole(*events, rc=rc)) is expected


PLAYS = [("discover", "D"), ("preflight", "P"), ("base", "B")]
CHANGED = result("n2", res={"changed": True})


OWN = check("fail", id="hardware.gres")
BACK = check("fail", id="slurm_service.change", details=[{"code": "rolled_back", "thing": "slurmctld"}])
OF_ALL = check("fail", id="preflight.same_cluster", whole=True)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # What concerns the whole cluster refuses the run, whatever else is wrong.
        ([judged("n1", OF_ALL, kind="failed")], ExitCode.PREFLIGHT_REFUSED),
        ([judged("n1", OF_ALL, kind="failed"), judged("n2", OWN, kind="failed"), GONE], ExitCode.PREFLIGHT_REFUSED),
        # A machine's own leaves it out, also where there is nothing to do on the others.
        ([judged("n1", OWN, kind="failed")], ExitCode.MACHINE_FAILED),
        ([judged("n1", OWN, kind="failed"), play("B"), CHANGED], ExitCode.MACHINE_FAILED),
        ([judged("n1", OWN, kind="failed"), GONE], ExitCode.MACHINE_FAILED),
        # Nobody says that nothing was changed where something was.
        ([play("B"), CHANGED, judged("n1", OF_ALL, kind="failed")], ExitCode.MACHINE_FAILED),
        # What was changed is as before, unless another machine failed as well.
        ([play("B"), CHANGED, judged("n1", BACK, kind="failed")], ExitCode.ROLLED_BACK),
        ([judged("n1", BACK, kind="failed"), judged("n2", OWN, kind="failed")], ExitCode.MACHINE_FAILED),
        # A module's word is a machine's: it refuses nothing.
        ([result("n1", kind="failed", res={"msg": "x", "cluster_checks": [OF_ALL]})], ExitCode.MACHINE_FAILED),
    ],
)
def test_only_what_concerns_the_whole_cluster_refuses_a_run(events: list[dict[str, Any]], expected: ExitCode) -> None:
    # What discover has written down beside the inventory is no change of a machine.
    report = folded(play("D"), CHANGED, play("P"), *events, plays=PLAYS, rc=2)

    assert exit_code("provision", report) is expected


def test_what_a_role_asserts_is_told_beside_another_machines_checks() -> None:
    left_out = judged("n1", check("fail"), kind="failed")
    asserts = result("n2", kind="failed", res={"msg": "no room"}, resolved_action="ansible.builtin.assert")

    report = folded(left_out, asserts)

    assert {failure.reason: failure.checked for failure in report.failures}["no room"] is False


def test_a_playbook_of_ours_that_does_not_parse_is_a_bug_and_a_file_of_the_operator_is_not() -> None:
    error = {"event": "error", "stdout": "[ERROR]: YAML parsing failed"}
    ours = folded(error, {"event": "error", "stdout": "Origin: /opt/clusterctl/playbooks/munge.yml:4:1"}, rc=4)
    theirs = folded(error, {"event": "error", "stdout": "Origin: /home/me/group_vars/all.yml:4:1"}, rc=4)

    assert exit_code("provision", ours, root="/opt/clusterctl") is ExitCode.BUG
    assert exit_code("provision", theirs, root="/opt/clusterctl") is ExitCode.BAD_REQUEST


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
def test_a_stopped_run_says_by_which_signal(number: int, expected: int) -> None:
    report = folded(FAILED, rc=99)
    report.stopped_by = number

    assert exit_code("provision", report) == expected
