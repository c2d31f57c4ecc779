"""Answers that no honest machine gives: never a crash, never a pass, and never against another machine."""

from __future__ import annotations

import json
from typing import Any

import pytest
from slurm_worlds import SUM, coded, container, controller, facts, joined, machine, node, wants

from provision.judge import gpus, jobs, munge, slurm, slurm_daemons
from provision.judge.job_plan import plan
from provision.judge.jobs import JobFacts
from provision.model.checks import Check
from provision.slurm.admission import Submitter

VALUES: list[Any] = [
    *(None, True, -1, 10**400, float("nan"), float("inf")), "", "\x1b]0;x\x07\x00\u202e", "{observed} %s {{ 7*7 }}",
    [], [[]], {}, {"number": {"number": 1}}, {"set": True, "number": 10**400}, ["IDLE", ["IDLE"], 5, None],
    "x" * 1_000_000,
]  # fmt: skip


def dumped(document: Any) -> str:
    """Return JSON as a liar would print it, with NaN and Infinity."""
    return coded(json.dumps(document))


def all_checks(own: str, slurmctld: str) -> list[Check]:
    """Return all checks of node1, which is a controller, too."""
    found, want = facts(own, slurmctld), wants(daemons=("slurmctld", "slurmd"), gpus=True)
    planned = plan(slurmctld, ["node1"], Submitter(["slurmtest"]), {"node1": own})
    printed = JobFacts(own, slurmctld[:1000], own, planned.as_dict("node1"), own)
    return [
        *slurm_daemons.checks(found, want), *slurm.checks(found, want), *gpus.checks(found, want),
        *jobs.checks(printed, want, cgroup_version=2, uid=64031),
    ]  # fmt: skip


def held(checks: list[Check]) -> None:
    """Hold what holds for every answer: all checks are there, short, and fit for a terminal."""
    ids = [check.id for check in checks]
    assert sorted(ids) == sorted({*slurm_daemons.SUBJECT.ids, *slurm.SUBJECT.ids, *gpus.SUBJECT.ids, *jobs.SUBJECT.ids})
    for check in checks:
        for text in (check.observed, check.cause, check.fix):
            assert len(text) < 10_000
            assert not any(ord(character) < 32 and character != "\n" for character in text)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("key", sorted(node()))
def test_a_node_with_any_value_of_any_type_is_judged(key: str, value: Any) -> None:
    held(all_checks(machine(container("slurmctld"), container()), controller([{**node(), key: value}])))


@pytest.mark.parametrize("value", [*VALUES, [1, 2, 3], [None], [{"name": 5}], [{"name": "a\nb"}], {"node1": {}}])
@pytest.mark.parametrize("key", ["nodes", "partitions"])
def test_a_document_of_any_shape_is_judged(key: str, value: Any) -> None:
    checks = all_checks(machine(), controller(**{key: dumped({key: value})}))

    held(checks)
    if key == "nodes":
        assert {check.verdict for check in checks if check.id in ("slurm.node_state", "job.run")} == {"unknown"}


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("path", [("State",), ("Name",), ("Config",), ("HostConfig",), ("RestartCount",), ()])
def test_an_engine_that_answers_in_any_shape_is_judged(path: tuple[str, ...], value: Any) -> None:
    entry = {**container(), path[0]: value} if path else value

    checks = all_checks(machine(containers=json.dumps([entry])), controller())

    held(checks)
    assert next(check for check in checks if check.id == "slurm.daemons").verdict in ("fail", "unknown")


@pytest.mark.parametrize("key", sorted(container()["State"]))
@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_a_containers_state_of_any_shape_is_judged(key: str, value: Any) -> None:
    state = {**container()["State"], key: value}

    held(all_checks(machine(containers=json.dumps([{**container(), "State": state}])), controller()))


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"nodes":' * 50_000, "9" * 100_000, "{" + "\x00" * 1000, "== nodes\n" * 9999]
)
def test_text_that_is_no_document_is_judged(text: str) -> None:
    held(all_checks(machine(containers=text, slurmd=text, devices=text), controller(nodes=text, partitions=text)))


@pytest.mark.slow
def test_fifty_megabytes_are_not_read() -> None:
    huge = "{" + " " * 50_000_000 + "}"

    held(all_checks(machine(containers=huge), joined({"nodes": huge})))


def test_a_machine_cannot_forge_a_section_that_the_script_printed_before() -> None:
    own = machine(slurmd=coded("Slurmd PID = 1\n== containers\n[]\n== engine\nNo such container"))

    assert facts(own).containers["slurmd"].running


def test_a_nodes_answer_never_changes_another_nodes_verdict() -> None:
    lie = controller([node(), node("node2", state=["DOWN"], reason="node1 is broken", gres="gpu:x:1")])

    checks = slurm.checks(facts(slurmctld=lie), wants())

    assert {str(check.verdict) for check in checks} == {"pass", "skip"}


@pytest.mark.parametrize(
    "text", ["%s%n", "{0.__class__}", "{{ lookup('pipe', 'id') }}", "\x1b[2J", "$(id)", "a=b=c", "=", "job="]
)
def test_what_a_job_prints_is_only_shown(text: str) -> None:
    printed = f"node1| ran {text}\nnode1| exit 7\nnode1| ready job=1 container={text}\n"

    checks = jobs.checks(JobFacts(printed, "", f"process {text}\nlooked"), wants(), cgroup_version=2, uid=64031)

    assert next(check for check in checks if check.id == "job.run").verdict == "fail"


def test_the_checksums_of_a_liar_are_only_its_own() -> None:
    own = machine(files=f"{SUM}  ../../slurm.conf\n{SUM}  gres.conf")

    found = slurm_daemons.checks(facts(own), wants())

    assert next(check for check in found if check.id == "slurm.configuration").verdict in ("pass", "fail")


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("key", ["key", "credential", "error", "msg", "decoded", "clock_offset"])
def test_munges_answers_of_any_shape_accuse_only_their_machine(key: str, value: Any) -> None:
    fine = {"key": {"mode": "0400", "owner": "munge:munge", "fingerprint": "a"}, "credential": "MUNGE:x:"}
    clock = {"clock_offset": {"low": 0, "high": 0.1}}
    hosts = ["head", "node1", "node2", "node3"]
    seen = {
        host: munge.Seen.from_results(
            fine, {"decoded": {other: {"status": "Success (0)"} for other in hosts if other != host}}, clock
        )
        for host in hosts
    }
    seen["node1"] = munge.Seen.from_results({**fine, key: value}, {key: value}, {key: value})

    checks = munge.checks(seen, munge.Wants("head", "a", "0400", 5, 30))

    assert {str(check.verdict) for check in checks if check.host != "node1"} == {"pass"}
    assert "fail" in {str(check.verdict) for check in checks} or "unknown" in {str(check.verdict) for check in checks}
