"""Slurm's nodes judged by the flags of their state, their devices by what slurmctld and slurmd each say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from provision.judge import slurm as verify_slurm
from provision.judge.slurm import counts, daemon_check, gres_check, nodes_in, registered, settled, state_check

LISTED = "slurmd-node1: Gres Name=gpu Type=A40 Count=4 Index=0 ID=1 File=/dev/nvidia[0-3] Links=(null) Flags=HAS_FILE"


def nodes(**changes: Any) -> dict[str, dict[str, Any]]:
    """Return one node as ``scontrol show nodes --json`` describes it."""
    node = {"name": "node1", "state": ["IDLE"], "reason": "", "gres": "gpu:A40:4", "version": "24.11.5"} | changes
    return nodes_in(json.dumps({"nodes": [node]}))


@pytest.mark.parametrize("state", [["IDLE"], ["MIXED"], ["ALLOCATED", "COMPLETING"], ["IDLE", "PLANNED"], "IDLE"])
def test_a_node_that_takes_jobs_passes(state: Any) -> None:
    assert state_check("node1", nodes(state=state))["verdict"] == "pass"


@pytest.mark.parametrize(
    ("state", "fix"),
    [
        (["IDLE", "DRAIN"], "State=RESUME"),
        (["IDLE", "NOT_RESPONDING"], "docker logs"),
        (["DOWN"], "docker logs"),
        (["UNKNOWN"], "docker logs"),
        (["IDLE", "INVALID_REG"], "clusterctl provision slurm"),
        (["MIXED", "MAINTENANCE"], "scontrol show node node1"),
        ("IDLE+DRAIN", "State=RESUME"),
        ("IDLE*", "docker logs"),
    ],
)
def test_a_flag_that_keeps_jobs_away_fails_although_the_base_state_is_good(state: Any, fix: str) -> None:
    check = state_check("node1", nodes(state=state, reason="Low RealMemory"))

    assert check["verdict"] == "fail"
    assert fix in check["fix"]
    assert "Low RealMemory" in check["observed"]


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        (["IDLE", "DRAIN"], "warn"),
        (["MIXED", "MAINTENANCE"], "warn"),
        (["IDLE", "DRAIN", "INVALID_REG"], "fail"),
        (["IDLE", "DRAIN", "NOT_RESPONDING"], "fail"),
        (["DOWN", "DRAIN"], "fail"),
    ],
)
def test_a_node_that_an_administrator_has_drained_is_no_failure_of_provisioning(state: list[str], verdict: str) -> None:
    check = state_check("node1", nodes(state=state, reason="bad fan"), verifying=False)

    assert check["verdict"] == verdict
    assert "bad fan" in check["observed"]


def test_a_node_that_slurmctld_does_not_know_fails_and_a_silent_slurmctld_is_unknown() -> None:
    assert state_check("node2", nodes())["verdict"] == "fail"
    assert (
        state_check("node2", nodes_in("slurm_load_node error: Unable to contact slurm controller"))["verdict"]
        == "unknown"
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpu:A40:4(S:0-1)", {"gpu:a40": 4}),
        ("gpu:2,nic:1", {"gpu": 2, "nic": 1}),
        ("gpu:a100:1,gpu:a100:1", {"gpu:a100": 2}),
        ("", {}),
        ("N/A", {}),
        ("(null)", {}),
    ],
)
def test_resources_are_counted_by_name_and_type(text: str, found: dict[str, int]) -> None:
    assert counts(text) == found


def test_devices_that_slurmd_finds_are_read_with_and_without_a_type() -> None:
    assert registered(LISTED + "\nGres Name=nic Count=2 Index=0") == {"gpu:a40": 4, "nic": 2}
    assert registered("Gres Name=gpu Type=(null) Count=1") == {"gpu": 1}


def test_declared_configured_and_found_devices_agree() -> None:
    assert gres_check("node1", nodes(), LISTED, "gpu:A40:4", [])["verdict"] == "pass"


def test_a_missing_device_fails_and_all_three_counts_are_told() -> None:
    check = gres_check("node1", nodes(), LISTED.replace("Count=4", "Count=3"), "gpu:A40:4", [])

    assert check["verdict"] == "fail"
    assert check["observed"] == "slurmctld has gpu:a40:4, slurmd finds gpu:a40:3"
    assert check["expected"] == "gpu:a40:4"


def test_a_node_without_declared_devices_passes_only_without_any() -> None:
    assert gres_check("node1", nodes(gres=""), "", "", [])["verdict"] == "pass"
    assert gres_check("node1", nodes(), LISTED, "", [])["verdict"] == "fail"


def test_simulated_devices_are_marked_so() -> None:
    assert gres_check("node1", nodes(), LISTED, "gpu:A40:4", ["gpu"])["simulated"] is True
    assert gres_check("node1", nodes(), LISTED, "gpu:A40:4", [])["simulated"] is False


def container(**changes: Any) -> str:
    """Return what the engine says about a running slurmd."""
    state = {"Running": True, "Restarting": False, "Status": "running"} | changes.pop("State", {})
    return json.dumps([{"Name": "/slurmd", "State": state, "Config": {"Image": "r/slurm@sha256:1"}, **changes}])


@pytest.mark.parametrize(
    ("inspected", "told"),
    [
        ("[]", "slurmd does not exist"),
        ("", "slurmd does not exist"),
        ("not JSON", "slurmd does not exist"),
        (container(State={"Running": False, "Status": "exited"}), "slurmd is exited"),
        (container(State={"Restarting": True, "Status": "restarting"}), "slurmd is restarting"),
        (container(Config={"Image": "r/slurm@sha256:2"}), "slurmd runs another image"),
    ],
)
def test_a_daemon_that_does_not_run_from_the_built_image_fails(inspected: str, told: str) -> None:
    check = daemon_check(inspected, ["slurmd"], "r/slurm@sha256:1")

    assert (check["verdict"], check["observed"]) == ("fail", told)


def test_a_running_daemon_passes() -> None:
    assert daemon_check(container(), ["slurmd"], "r/slurm@sha256:1")["verdict"] == "pass"


@pytest.mark.parametrize(
    ("state", "worth_waiting"),
    [
        (["IDLE"], False),
        (["IDLE", "DRAIN"], False),
        (["UNKNOWN"], True),
        (["IDLE", "NOT_RESPONDING"], True),
        (["DOWN"], True),
    ],
)
def test_waiting_ends_when_the_nodes_are_up_or_out_for_a_reason(state: list[str], worth_waiting: bool) -> None:
    text = json.dumps({"nodes": [{"name": "node1", "state": state}]})

    assert settled(text, ["node1"]) is not worth_waiting
    assert settled(text, ["node2"]) is False


def test_status_is_the_same_shape_with_and_without_jobs() -> None:
    text = json.dumps({"nodes": [{"name": "node1", "state": ["IDLE"], "cpus": 48, "gres": "gpu:A40:4", "reason": ""}]})
    jobs = json.dumps({"jobs": [{"job_id": 3, "user_name": "ada", "job_state": ["RUNNING"], "nodes": "node1"}]})

    found = verify_slurm.status("warning: something\n" + text, jobs)

    assert found["nodes"][0] == {
        "name": "node1", "state": ["IDLE"], "cpus": 48, "gres": "gpu:A40:4", "gres_used": "", "reason": "",
    }  # fmt: skip
    assert (found["jobs"][0]["id"], found["jobs"][0]["user"], found["jobs"][0]["state"]) == (3, "ada", ["RUNNING"])
    assert verify_slurm.status(text, "")["jobs"] == []
