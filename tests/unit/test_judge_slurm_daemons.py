"""Slurm's daemons: a container that is up is not enough; what runs is compared with what was built and written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from slurm_worlds import IMAGE, SUM, by_name, coded, container, controller, facts, joined, machine, verdicts, wants

from provision.judge import slurm_daemons
from provision.model.checks import Check

NO_SUCH = "Error: No such container: slurmd\ncode 1"


def judged(own: str | None = None, slurmctld: str | None = None, **changes: Any) -> dict[str, Check]:
    """Return the checks of one machine's daemons by name."""
    return by_name(slurm_daemons.checks(facts(own, slurmctld), wants(**changes)))


def with_state(**state: Any) -> str:
    """Return a machine whose slurmd's container is in another state."""
    return machine(container(State=state))


def test_daemons_that_run_as_built_and_answer_pass() -> None:
    assert verdicts(slurm_daemons.checks(facts(), wants())) == dict.fromkeys(slurm_daemons.SUBJECT.names, "pass")


@pytest.mark.parametrize(
    ("own", "observed"),
    [
        (machine(containers="[]", engine=NO_SUCH), "slurmd does not exist"),
        (machine(containers="not JSON"), "slurmd does not exist"),
        (with_state(Status="exited", Running=False), "slurmd is exited"),
        (with_state(Status="restarting", Restarting=True), "slurmd is restarting"),
        (with_state(Status="paused", Paused=True), "slurmd is paused"),
        (with_state(Status="dead", Dead=True), "slurmd is dead"),
        (with_state(Health={"Status": "unhealthy"}), "slurmd is unhealthy"),
        (
            machine(container(RestartCount=7, State={"StartedAt": "2026-11-22T05:52:31.9Z"})),
            "slurmd was restarted 7 times, 3 s ago for the last time",
        ),
        (machine(container(Config={"Image": "r/slurm@sha256:2"})), "slurmd runs another image"),
    ],
)
def test_a_daemon_that_does_not_simply_run_from_the_built_image_fails(own: str, observed: str) -> None:
    check = judged(own)["daemons"]

    assert (check.verdict, check.observed) == ("fail", observed)


@pytest.mark.parametrize(
    ("own", "slurmctld"),
    [
        ("", joined({"unasked": "munged did not answer on the controller"})),
        ("munge: Error: Failed to access socket", joined({"nodes": coded("Munge encode failed", 1)})),
    ],
)
def test_a_slurmctld_that_cannot_be_asked_because_of_munge_is_not_accused(own: str, slurmctld: str) -> None:
    """Of the controller, which munge's own check accuses."""
    head = joined(
        {"containers": json.dumps([container("slurmctld")]), "engine": "", "munge": coded(own, 1 if own else 124)}
    )
    check = judged(head, slurmctld, host="head", daemons=("slurmctld",))["answers"]

    assert (check.verdict, "munge" in check.cause) == ("unknown", True), check


def test_a_container_that_was_restarted_long_ago_passes() -> None:
    assert judged(machine(container(RestartCount=7)))["daemons"].verdict == "pass"


def test_a_daemon_that_came_back_by_its_policy_once_is_running() -> None:
    inspected = container(RestartCount=1, State={"StartedAt": "2026-11-22T05:52:31.9Z"})

    assert judged(machine(inspected))["daemons"].verdict == "pass"


def test_an_image_that_nobody_knows_is_unknown_and_not_the_end_of_the_comparison() -> None:
    check = judged(image="")["daemons"]

    assert (check.verdict, check.observed) == ("unknown", "slurmd running; which image was built is not known")


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        ("code 124", "the container engine did not answer in time"),
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.\ncode 1", "Cannot connect to the Docker"),
    ],
)
def test_an_engine_that_does_not_answer_is_no_stopped_daemon(engine: str, why: str) -> None:
    found = judged(joined({"now": "", "containers": "[]", "engine": engine}))

    assert found["daemons"].verdict == "unknown"
    assert why in found["daemons"].observed
    assert found["answers"].verdict == "unknown"


def test_a_slurmd_that_hangs_in_a_running_container_does_not_answer() -> None:
    found = judged(machine(slurmd=coded("", 124)))

    assert found["daemons"].verdict == "pass"
    assert (found["answers"].verdict, found["answers"].observed) == ("fail", "slurmd did not answer in time")


def test_a_slurmctld_that_hangs_is_its_own_machines_failure() -> None:
    said = joined({"nodes": coded("", 124)})
    found = judged(machine(container("slurmctld")), said, daemons=("slurmctld",))

    assert (found["answers"].verdict, found["answers"].observed) == ("fail", "slurmctld did not answer in time")
    assert judged(slurmctld=said)["answers"].verdict == "pass"


@pytest.mark.parametrize(
    ("limits", "verdict"),
    [
        ([{"Name": "memlock", "Hard": -1, "Soft": -1}], "pass"),
        ([{"Name": "memlock", "Hard": 65536, "Soft": 65536}], "fail"),
        ([{"Name": "memlock", "Hard": -1, "Soft": 65536}], "fail"),
        ([{"Name": "nofile", "Hard": 9, "Soft": 9}], "warn"),
        (None, "warn"),
        ("memlock", "warn"),
    ],
)
def test_the_limit_of_locked_memory_is_compared_and_not_only_there(limits: Any, verdict: str) -> None:
    assert judged(machine(container(HostConfig={"Ulimits": limits})))["memlock"].verdict == verdict


def test_a_finite_limit_is_reached_by_itself_and_by_none() -> None:
    own = machine(container(HostConfig={"Ulimits": [{"Name": "memlock", "Hard": 4096, "Soft": 4096}]}))

    assert judged(own, memlock=4096)["memlock"].verdict == "pass"
    assert judged(own, memlock=4097)["memlock"].verdict == "fail"
    assert judged(memlock=4097)["memlock"].verdict == "pass"


def test_on_a_controller_that_also_computes_slurmds_limit_is_read_and_not_slurmctlds() -> None:
    own = machine(container("slurmctld", HostConfig={"Ulimits": []}), container("slurmd"))

    assert judged(own, daemons=("slurmctld", "slurmd"))["memlock"].verdict == "pass"


def test_a_slurmd_with_other_files_than_the_controllers_fails_and_names_them() -> None:
    found = judged(machine(files=f"{'b' * 40}  gres.conf\n{SUM}  slurm.conf"))

    assert found["configuration"].verdict == "fail"
    assert found["configuration"].observed == "slurmd runs with another gres.conf than the controller's"


def test_a_slurmctld_that_was_not_told_of_a_new_file_fails() -> None:
    said = controller(config=coded("SLURM_VERSION = 24.11.5\nHASH_VAL = Different Ours=0x1 Slurmctld=0x2"))

    check = judged(machine(container("slurmctld")), said, daemons=("slurmctld",))["configuration"]

    assert (check.verdict, check.observed) == (
        "fail", "slurmctld runs with another slurm.conf than the one on disk",
    )  # fmt: skip


def test_with_the_controller_away_a_node_shows_its_daemon_and_release_itself() -> None:
    found = verdicts(slurm_daemons.checks(facts(slurmctld="", problem="timed out"), wants()))

    assert found == {
        "daemons": "pass",
        "answers": "pass",
        "configuration": "unknown",
        "version": "pass",
        "memlock": "pass",
    }


def test_another_release_fails_and_none_is_unknown() -> None:
    assert judged(version="25.05")["version"].verdict == "fail"
    assert judged(machine(slurmd=coded("", 1)))["version"].verdict == "unknown"
    assert judged(image=IMAGE)["version"].observed == "slurmd 24.11.5"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (coded("munge: Error: Failed to access the socket", 1), "munge made no credential: munge: Error: Failed"),
        (coded("", 124), "munged did not answer in time"),
    ],
)
def test_a_slurmd_that_could_not_be_asked_for_want_of_munge_is_not_accused(said: str, why: str) -> None:
    check = judged(machine(munge=said, slurmd="", ping=""))["answers"]

    assert (check.verdict, check.cause) == ("unknown", "munge does not work on this machine")
    assert why in check.observed
