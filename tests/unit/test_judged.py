"""How a command that judges begins: with what its machines owe, and knowing what it leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest
from declare import inventory

from provision.cli import judged
from provision.events.fold import RunReport
from provision.events.verdict import RunVerdict
from provision.inventory.loader import Inventory
from provision.judge import manifest
from provision.model.checks import Check, Verdict


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
