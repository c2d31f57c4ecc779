"""A daemon that is stopped neither answers nor ends: verify ends, names it, and judges the other machines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import interrupting
import labs
import pytest
from test_verify import bad, verified

# Whole verifies, one for each.
pytestmark = pytest.mark.night

#: What belongs to a machine alone, and must pass on all machines but the broken one.
OWN = ("base_system.", "engine.", "images.")

#: Daemon, its machine, and the check of that machine by which it is named.
STOPPED = [
    pytest.param("dockerd", "node2", "engine.answers", id="dockerd"),
    pytest.param("slurmctld", "head", "slurm.answers", id="slurmctld"),
    pytest.param("slurmd", "node2", "slurm.answers", id="slurmd"),
    pytest.param("munged", "node1", "munge.round_trip", id="munged"),
    pytest.param("munged", "head", "munge.round_trip", id="munged-head"),
    pytest.param("sshd", "node2", "access.", id="sshd"),
    pytest.param("sshd", "head", "access.", id="sshd-head"),
]


@pytest.fixture(autouse=True)
def whole(provisioned_lab: labs.Lab) -> None:
    """Begin when Slurm has heard of all nodes again: it asks those that were silent every 100 s only."""
    labs.until(provisioned_lab.nodes_are_well)


@contextmanager
def stopped(lab: labs.Lab, machine: str, daemon: str) -> Iterator[None]:
    """Hold a daemon still while the block runs, by its own title: that of a reconfigured slurmd is slurmd-wlm."""
    title = f"^([^ ]*/)?{daemon}(-wlm)?([: ]|$)"
    lab.root(machine, f"pkill -STOP -f '{title}'")
    try:
        yield
    finally:
        lab.root(machine, f"pkill -CONT -f '{title}'")


def roots(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the checks, as ``id@machine``, that did not pass and are put below no other."""
    wrong = [check for check in document["checks"] if check["verdict"] in ("fail", "unknown")]
    return {f"{check['id']}@{check['host']}": check for check in wrong if not check["follows"]}


@contextmanager
def silent(lab: labs.Lab, machine: str) -> Iterator[None]:
    """Let nothing leave a machine while the block runs: nobody is told that it is gone, and nobody hears of it."""
    lab.root(machine, "ip rule add pref 1 blackhole")
    try:
        yield
    finally:
        lab.root(machine, "ip rule del pref 1 blackhole")


def is_named_and_the_others_are_judged(
    lab: labs.Lab, code: int, document: dict[str, Any], machine: str, named: str
) -> list[str]:
    """See that a machine is the only one accused, by the check ``named``; return what is said of it."""
    assert (code, document["verdict"] in ("fail", "unknown")) == (8, True), bad(document)
    accused = roots(document)
    # One line for the cause; all that could not be decided because of it stands below.
    assert {check["host"] for check in accused.values()} == {machine}, accused
    words = [f"{one['observed']} {one['cause']}" for name, one in accused.items() if name.startswith(named)]
    assert words, accused
    for other in set(lab.machines) - {machine}:
        own = [check for check in document["checks"] if check["host"] == other and check["id"].startswith(OWN)]
        # The registry that a node asks is the controller's.
        own = [check for check in own if not check["follows"]]
        assert {check["verdict"] for check in own} <= {"pass", "warn", "skip"}, own
        assert len(own) > len(OWN), f"{other} was not judged"
    return words


@pytest.mark.parametrize(("daemon", "machine", "named"), STOPPED)
def test_a_stopped_daemon_is_named_and_the_other_machines_are_judged(
    provisioned_lab: labs.Lab, daemon: str, machine: str, named: str
) -> None:
    lab = provisioned_lab

    with stopped(lab, machine, daemon):
        code, document = verified(lab)

    words = is_named_and_the_others_are_judged(lab, code, document, machine, named)
    assert daemon == "sshd" or any(daemon in text for text in words), words


def test_a_provision_asks_an_engine_that_hangs_twice_and_leaves_its_machine_as_it_is(
    provisioned_lab: labs.Lab,
) -> None:
    lab, file = provisioned_lab, "/etc/docker/daemon.json"
    for machine in ("node1", "node2"):
        lab.root(machine, f"chmod 0640 {file}")

    with stopped(lab, "node2", "dockerd"):
        done = labs.document(lab.inventory, "provision", "containers")

    assert done["exit_code"] == 4, done["failures"]
    assert {host for one in done["failures"] for host in one["hosts"]} == {"node2"}, done["failures"]
    assert "engine" in " ".join(one["reason"] for one in done["failures"])
    assert {host: told["failed"] for host, told in done["hosts"].items() if told["failed"]} == {"node2": 1}
    modes = {machine: lab.root(machine, f"stat -c %a {file}") for machine in ("node1", "node2")}
    # Silence is no reason to change anything, and none to leave the others as they are.
    assert modes == {"node1": "644", "node2": "640"}
    assert {host for change in done["changes"] for host in change["hosts"]} == {"node1"}
    labs.clusterctl("provision", lab.inventory, "containers", "--limit", "node2")


@pytest.mark.parametrize("machine", ["head", "node2"])
@pytest.mark.parametrize("results", [1, 35])
def test_a_machine_that_falls_silent_in_the_middle_costs_its_own_checks_only(
    provisioned_lab: labs.Lab, machine: str, results: int
) -> None:
    lab = provisioned_lab
    process = interrupting.begun(lab, results, "verify", "--json")
    assert process.poll() is None, f"it was over before {results} results"

    with silent(lab, machine):
        out, _ = process.communicate(timeout=labs.LIMIT)

    document = json.loads(out)
    assert (process.returncode, document["verdict"] in ("fail", "unknown")) == (8, True), bad(document)
    assert {check["host"] for check in roots(document).values()} == {machine}, roots(document)


def test_the_cluster_is_whole_again_when_its_daemons_go_on(provisioned_lab: labs.Lab) -> None:
    """The tests above have waited for nothing; a node that was silent needs a moment to be heard again."""
    labs.until(lambda: labs.clusterctl("verify", provisioned_lab.inventory, check=False).returncode == 0)
