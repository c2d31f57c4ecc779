"""One site from its plan to its status: what each command prints, in the order in which they are given."""

from __future__ import annotations

import json
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import NamedTuple

import pytest
from ansible_runs import (
    CHANGE,
    CHECKS,
    STATUS,
    command,
    on_a_terminal,
    stages_in,
    write_inventory,
)


class Told(NamedTuple):
    """What each command of one site printed, in the order in which they were given."""

    site: Path
    planned: subprocess.CompletedProcess[str]
    #: The files that there were after the plan.
    made: list[Path]
    first: subprocess.CompletedProcess[str]
    second: subprocess.CompletedProcess[str]
    agreed: subprocess.CompletedProcess[str]
    verified: subprocess.CompletedProcess[str]
    shown: subprocess.CompletedProcess[str]
    status: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    here = tmp_path_factory.mktemp("told")
    write_inventory(here)
    nothing = {"discover": "- meta: noop\n", "preflight": "- meta: noop\n"}
    stages_in(here, **nothing, base=CHANGE, verify=CHECKS, status=STATUS)
    planned = command(here, "plan", "--detailed-exitcode")
    return Told(
        site=here,
        planned=planned,
        made=list(here.glob("made-*")),
        first=command(here, "provision", "--json"),
        second=command(here, "provision", "--json"),
        agreed=command(here, "plan", "--detailed-exitcode", "--json"),
        verified=command(here, "verify", "--json", "--junit", "verify.xml"),
        shown=command(here, "verify"),
        status=command(here, "status", "--json"),
    )


def test_a_plan_tells_what_would_change_and_changes_nothing(told: Told) -> None:
    assert told.planned.returncode == 10
    assert "+node1" in told.planned.stdout
    assert "head,node[1-2]" in told.planned.stdout.replace("node[1-2],head", "head,node[1-2]")
    assert told.made == []


def test_a_second_provision_changes_nothing_and_a_plan_agrees(told: Told) -> None:
    three = (told.first, told.second, told.agreed)
    documents = [json.loads(done.stdout) for done in three]
    assert [done.returncode for done in three] == [0, 0, 0], told.first.stderr
    assert [document["changed"] for document in documents] == [3, 0, 0]
    assert documents[2]["pending"] is False
    assert documents[0]["simulated"] == ["gpu"]


def test_progress_in_a_pipe_is_plain_lines_on_standard_error(told: Told) -> None:
    assert "base: Write: changed " in told.first.stderr
    assert "\x1b" not in told.first.stderr + told.first.stdout + told.shown.stderr + told.shown.stdout
    assert "\r" not in told.first.stderr


def test_verify_names_the_guilty_machine_in_its_table_document_and_junit(told: Told) -> None:
    document = json.loads(told.verified.stdout)
    assert told.verified.returncode == told.shown.returncode == 8
    assert document["verdict"] == "fail"
    assert {check["host"]: check["verdict"] for check in document["checks"] if check["id"] == "munge.key_mode"} == {
        "head": "pass",
        "node1": "pass",
        "node2": "fail",
    }
    assert not [check for check in document["checks"] if check["id"].endswith(".failed")]
    suites = ElementTree.parse(told.site / "verify.xml").getroot()  # noqa: S314 - our own
    failures = [case.get("classname") for case in suites.iter("testcase") if case.find("failure") is not None]
    assert failures == ["node2"]
    assert "verdict: fail" in told.shown.stdout
    assert "fix: clusterctl provision munge" in told.shown.stdout


def test_the_status_shows_the_last_run_and_the_last_verdict(told: Told) -> None:
    document = json.loads(told.status.stdout)
    assert told.status.returncode == 0, told.status.stderr
    assert document["last_run"]["outcome"] == "done"
    assert document["last_verdict"]["verdict"] == "fail"


def test_a_look_has_a_bar_of_its_own_and_no_lines_in_a_pipe(site: Path, told: Told) -> None:
    stages_in(site, status=STATUS)
    _, written = on_a_terminal(site, ["status"], 100)

    assert "Report the cluster's state" in written
    assert told.status.stderr == ""
