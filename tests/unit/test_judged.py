"""How a command that judges begins: with what its machines owe, and knowing what it leaves out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from declare import inventory

from provision.cli import flow, judged
from provision.events.fold import RunReport
from provision.events.model import Failure, Task
from provision.events.verdict import RunVerdict
from provision.inventory.loader import Inventory
from provision.judge import manifest
from provision.model.checks import Check, Verdict
from provision.runner.playbooks import Options


def declared(**more: tuple[str, ...]) -> Inventory:
    groups, hostvars = inventory()
    return Inventory(
        path=Path("inventory.ini"),
        groups={**groups, **more},
        hostvars={**hostvars, **{host: {} for hosts in more.values() for host in hosts}},
    )


#: Machines beside the controller and the nodes.
MORE = {"slurm_login": ("login1",), "monitoring": ("watch1",)}


def begun(command: str, *hosts: str, strict: bool = False) -> RunReport:
    found = declared(**MORE)
    return judged.begun(command, found, hosts or tuple(found.hostvars), strict=strict)


@pytest.mark.parametrize("command", ["verify", "preflight"])
def test_a_run_that_judges_owes_what_the_manifest_says_of_its_machines(command: str) -> None:
    report = begun(command)

    assert report.owed == manifest.owed(command, declared(**MORE).groups)
    assert {host for host, _ in report.owed} >= {"head", "node1", "node2", "login1", "watch1"}
    assert report.limited == ()


def test_a_run_on_some_machines_owes_for_those_alone_and_says_that_it_is_limited() -> None:
    report = begun("verify", "node1")

    assert {host for host, _ in report.owed} == {"node1", ""}
    assert report.limited == ("node1",)


def test_checks_may_speak_of_the_inventorys_machines_and_of_no_others() -> None:
    for command in ("verify", "provision"):
        assert begun(command, "node1").machines == {"head", "node1", "node2", "login1", "watch1"}


def test_a_strict_run_is_strict_and_a_command_that_does_not_judge_owes_nothing() -> None:
    assert begun("verify", strict=True).strict
    assert not begun("verify").strict
    assert begun("provision").owed == frozenset()


def test_prometheus_is_told_the_worst_of_each_subject_and_the_whole_verdict() -> None:
    words = {
        "slurm.nodes": ("pass", "fail"), "slurm.answers": ("unknown",), "munge.key": ("pass", "skip"),
        "rdma.ports": ("skip",), "base_system.space": ("pass", "warn"), "ddp.result": ("unknown", "pass"),
    }  # fmt: skip
    checks = tuple(Check(name, "node1", Verdict(word)) for name, each in words.items() for word in each)

    assert judged.by_subject(RunVerdict(Verdict.FAIL, checks)) == {
        "all": "fail", "base_system": "warn", "ddp": "unknown", "munge": "pass", "rdma": "skip", "slurm": "fail",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, True),
        ({"stopped_by": 2}, False),
        ({"unreachable": {Failure(Task("", "", "access"), "no route"): {"head"}}}, False),
    ],
)
def test_the_verdict_is_told_on_the_controller_where_the_run_came_to_its_end(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], told: bool
) -> None:
    report = begun("verify")
    report.checks.append(Check("munge.key", "node1", Verdict.PASS))
    for name, value in more.items():
        setattr(report, name, value)
    runs: list[tuple[list[str], Any]] = []
    monkeypatch.setattr(flow.runner, "run", lambda names, **given: runs.append((names, given["options"])))
    opened: Any = SimpleNamespace(path=Path("inventory.ini"), cluster=SimpleNamespace(controller="head"))

    flow._verdict_told(report, None, opened, Options(limit={"node1"}, extra_vars={"x": 1}))  # type: ignore[arg-type]

    assert [names for names, _ in runs] == ([["verdict"]] if told else [])
    for _, options in runs:
        verdicts = options.extra_vars["clusterctl_verdicts"]
        assert (options.limit, options.extra_vars["x"]) == ({"head"}, 1)
        # What never ran is no pass.
        assert (verdicts["munge"], verdicts["all"], verdicts["slurm"]) == ("unknown", "unknown", "unknown")
