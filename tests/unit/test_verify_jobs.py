"""What the proving jobs told, judged: on the right node, as the right user, one GPU, exit code 7, nothing left."""

from __future__ import annotations

import json
from typing import Any

import pytest

from provision.judge.jobs import checks, targets, told

GOOD = """== node1
ran node=node1 uid=64031 gpus=0 opened=1 memlock=unlimited
exit 7
ready job=12 container=clusterctl-verify-12
srun: Force Terminated StepId=12.0
gone after 2
== node10
ran node=node10 uid=64031 gpus=1 opened=1 memlock=unlimited
exit 7
"""


def judged(text: str = GOOD, left: str = "looked", **changes: Any) -> dict[str, dict[str, Any]]:
    """Return the checks of node1 by id."""
    settings: dict[str, Any] = {
        "gres": "gpu:A40:4",
        "cgroup_version": 2,
        "simulated": [],
        "uid": 64031,
        "name": "node1",
    }
    found = checks({"stdout": text, "stderr": ""}, left=left, **settings | changes)
    return {check["id"].partition(".")[2]: check for check in found}


def test_jobs_that_do_as_they_should_pass() -> None:
    assert {name: check["verdict"] for name, check in judged().items()} == dict.fromkeys(
        ("job", "exit_code", "gpu", "gpu_isolation", "cancel"), "pass"
    )


def test_one_node_is_not_taken_for_another_whose_name_begins_alike() -> None:
    assert told(GOOD, "node1")["job"] == "12"
    assert "job" not in told(GOOD, "node10")
    assert told(GOOD, "node") == {}


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("node=node1 ", "node=node2 ", "job"),
        ("uid=64031", "uid=0", "job"),
        ("exit 7", "exit 0", "exit_code"),
        ("exit 7", "exit 1", "exit_code"),
        ("gpus=0 ", "gpus=0,1 ", "gpu"),
        ("gpus=0 ", "gpus= ", "gpu"),
        ("opened=1", "opened=4", "gpu_isolation"),
        ("opened=1", "opened=0", "gpu_isolation"),
    ],
)
def test_each_deviation_turns_its_own_check_red(old: str, new: str, name: str) -> None:
    found = judged(GOOD.replace(old, new))

    assert {key for key, check in found.items() if check["verdict"] == "fail"} == {name}


@pytest.mark.parametrize("line", ["process 4711 sleep 302", "container 12/storage/overlay-containers/ab/"])
def test_what_a_cancelled_job_leaves_is_named(line: str) -> None:
    check = judged(left=f"{line}\nlooked")["cancel"]

    assert (check["verdict"], check["observed"]) == ("fail", line)


def test_nobody_having_looked_is_unknown() -> None:
    assert judged(left="")["cancel"]["verdict"] == "unknown"


@pytest.mark.parametrize("container", ["none", "failed"])
def test_without_a_container_the_promise_about_containers_is_not_proven(container: str) -> None:
    assert (
        judged(GOOD.replace("container=clusterctl-verify-12", f"container={container}"))["cancel"]["verdict"]
        == "unknown"
    )


def test_a_busy_node_is_unknown_and_a_refused_job_fails_with_slurms_words() -> None:
    busy = "== node1\nsrun: error: Unable to allocate resources: Requested nodes are busy\nexit 1\n"
    refused = "== node1\nsrun: error: Unable to allocate resources: Invalid account\nexit 1\n"

    assert judged(busy)["job"]["verdict"] == "unknown"
    assert judged(refused)["job"]["verdict"] == "fail"
    assert "Invalid account" in judged(refused)["job"]["observed"]


def test_a_node_that_was_not_asked_is_unknown() -> None:
    assert judged("")["job"]["verdict"] == "unknown"


@pytest.mark.parametrize(("version", "simulated"), [(1, []), (2, ["gpu"])])
def test_isolation_that_cannot_be_tried_is_skipped_with_the_reason(version: int, simulated: list[str]) -> None:
    check = judged(cgroup_version=version, simulated=simulated)["gpu_isolation"]

    assert check["verdict"] == "skip"
    assert check["observed"]


def test_simulated_gpus_are_marked_so() -> None:
    assert judged(simulated=["gpu"])["gpu"]["simulated"] is True


def test_a_node_without_gpus_is_asked_for_none() -> None:
    assert set(judged(gres="")) == {"job", "exit_code", "cancel"}


def test_only_nodes_that_take_jobs_are_asked_in_a_partition_of_theirs() -> None:
    text = json.dumps(
        {
            "nodes": [
                {"name": "node1", "state": ["IDLE"], "partitions": ["gpu", "all"], "gres": "gpu:A40:4(S:0)"},
                {"name": "node2", "state": ["IDLE", "DRAIN"], "partitions": ["gpu"], "gres": "gpu:A40:4"},
                {"name": "node3", "state": ["MIXED"], "partitions": ["cpu"], "gres": ""},
                {"name": "node4", "state": ["IDLE"], "partitions": [], "gres": ""},
            ]
        }
    )

    assert targets(text, ["node1", "node2", "node3", "node4", "node5"]) == [
        "node1",
        "gpu",
        "gpu:1",
        "node3",
        "cpu",
        "-",
    ]
