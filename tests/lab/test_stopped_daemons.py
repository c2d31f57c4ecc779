"""A daemon that is stopped neither answers nor ends: verify ends, names it, and judges the other machines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import labs
import pytest
from test_verify import bad, verified

#: Seconds. Against hanging, not a measurement: the aim on an idle computer of two cores is 90. One that is busy with
#: several labs took 190.
ENDS_WITHIN = 240

#: What belongs to a machine alone, and must pass on all machines but the broken one.
OWN = ("base_system.", "engine.", "images.")

#: daemon, its machine, and the check of that machine by which it is named.
STOPPED = [
    pytest.param("dockerd", "node2", "engine.answers", id="dockerd"),
    pytest.param("slurmctld", "head", "slurm.", id="slurmctld", marks=pytest.mark.faults),
    pytest.param("slurmd", "node2", "slurm.", id="slurmd", marks=pytest.mark.faults),
    pytest.param("munged", "node1", "munge.", id="munged", marks=pytest.mark.faults),
    pytest.param("sshd", "node2", "access.", id="sshd", marks=pytest.mark.faults),
]


@contextmanager
def stopped(lab: labs.Lab, machine: str, daemon: str) -> Iterator[None]:
    """Hold a daemon still while the block runs."""
    lab.root(machine, f"pkill -STOP -x {daemon}")
    try:
        yield
    finally:
        lab.root(machine, f"pkill -CONT -x {daemon}")


@pytest.mark.parametrize(("daemon", "machine", "named"), STOPPED)
def test_a_stopped_daemon_is_named_in_time_and_the_other_machines_are_judged(
    provisioned_lab: labs.Lab, daemon: str, machine: str, named: str
) -> None:
    lab = provisioned_lab
    begun = time.monotonic()

    with stopped(lab, machine, daemon):
        code, document = verified(lab)
    took = time.monotonic() - begun

    found = bad(document)
    assert (code, document["verdict"] in ("fail", "unknown")) == (8, True), found
    assert took < ENDS_WITHIN, f"{took:.0f} s"
    accused = [check for check in document["checks"] if check["host"] == machine and check["id"].startswith(named)]
    words = [f"{check['observed']} {check['cause']}" for check in accused if check["verdict"] in ("fail", "unknown")]
    assert words, found
    assert daemon == "sshd" or any(daemon in text for text in words), words
    for other in set(lab.machines) - {machine}:
        own = [check for check in document["checks"] if check["host"] == other and check["id"].startswith(OWN)]
        assert {check["verdict"] for check in own} <= {"pass", "warn", "skip"}, own
        assert len(own) > len(OWN), f"{other} was not judged"


def test_the_cluster_is_whole_again_when_its_daemons_go_on(provisioned_lab: labs.Lab) -> None:
    """The tests above have waited for nothing; a node that was silent needs a moment to be heard again."""
    deadline = time.monotonic() + ENDS_WITHIN
    while (code := labs.clusterctl("verify", provisioned_lab.inventory, check=False).returncode) != 0:
        assert time.monotonic() < deadline, code
        time.sleep(5)
