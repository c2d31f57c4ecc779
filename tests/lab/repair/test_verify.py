"""Verification: by the other door, and red with the right name when something is broken."""

from __future__ import annotations

import re
from typing import Any

import labs
import pytest
from breaking import NO_WAIT, OTHER_KEY, OWN_KEY, bad, broken, verified

# Whole verifies, of what is seen every day of other faults (tests/core).
pytestmark = pytest.mark.night

#: By its own title: containers have programs of other names.
DOCKERD = "-f '^([^ ]*/)?dockerd([: ]|$)'"


def accused(document: dict[str, Any]) -> dict[str, set[str]]:
    """Return the ids that failed, by machine."""
    found: dict[str, set[str]] = {}
    for check in document["checks"]:
        if check["verdict"] == "fail":
            found.setdefault(check["host"], set()).add(check["id"])
    return found


def test_plain_ansible_comes_to_the_same_verdict_by_the_same_checks(provisioned_lab: labs.Lab) -> None:
    done = labs.playbook("verify", "-i", provisioned_lab.inventory, check=False)

    assert done.returncode == 0, done.stdout[-4000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("verdict: ")]
    assert line.startswith("verdict: pass (")
    assert "never ran" not in done.stdout
    assert re.search(r"(?m)^ended: head: job \d+: J speed: pass$", done.stdout)


def test_an_odd_key_on_the_controller_is_the_controllers(provisioned_lab: labs.Lab) -> None:
    with broken(provisioned_lab, "head", OTHER_KEY, OWN_KEY):
        code, document = verified(provisioned_lab)

    assert (code, document["verdict"]) == (8, "fail")
    assert accused(document) == {"head": {"munge.same_key", "munge.round_trip"}}
    undecided = [check for check in document["checks"] if check["verdict"] == "unknown"]
    assert {name for check in undecided for name in check["follows"] or ["nothing"]} == {
        "munge.same_key@head",
        "munge.round_trip@head",
    }


def test_what_is_silent_is_named_and_nobody_else_is_accused(provisioned_lab: labs.Lab) -> None:
    """One machine is gone, one has a paused slurmd, and one an engine that neither answers nor ends."""
    gone = provisioned_lab.container("login1")
    labs.docker("pause", gone)
    try:
        with (
            broken(provisioned_lab, "node1", "docker pause slurmd", "docker unpause slurmd"),
            broken(provisioned_lab, "node2", f"pkill -STOP {DOCKERD}", f"pkill -CONT {DOCKERD}"),
        ):
            code, document = verified(provisioned_lab, *NO_WAIT)
    finally:
        labs.docker("unpause", gone)

    found = accused(document)
    assert (code, document["verdict"]) == (8, "fail")
    assert any("login1" in hosts for hosts in bad(document).values()), bad(document)
    told = {(check["id"], check["host"]): check for check in document["checks"]}
    assert {"slurm.daemons", "slurm.answers"} <= found.get("node1", set()), found
    assert "slurmd is paused" in told["slurm.daemons", "node1"]["observed"]
    engine = told["engine.answers", "node2"]
    assert engine["verdict"] in ("fail", "unknown")
    assert "dockerd" in f"{engine['observed']} {engine['cause']}", engine
    subjects = {check.split(".")[0] for check in found["node1"]}
    assert subjects <= {"slurm", "slurm_service", "job", "ddp"}, found
    assert "head" not in found, found
