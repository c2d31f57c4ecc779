"""A changed slurm.conf against the queue: whose job or reservation it would end."""

from __future__ import annotations

import pytest

from provision.judge.queue import queue, to_drain
from provision.model.checks import Verdict
from provision.slurm.taken import jobs_in

NOW = """\
SelectType=select/cons_tres
NodeName=node[1-2] CPUs=8 Sockets=2 CoresPerSocket=4 Gres=gpu:a100:4
NodeName=node3 CPUs=8 Gres=gpu:h100:2
PartitionName=batch Nodes=ALL Default=YES
PartitionName=debug Nodes=node3
"""
#: One job on node1 and node2 with GPUs, one on node3 without, one that waits for node2, one for any a100.
JOBS = """\
11|ada|RUNNING|batch|node[1-2]||gres/gpu:a100:4
12|bob|COMPLETING|debug|node3||N/A
13_[1-9]|cyd|PENDING|batch,debug||node[2-3]|N/A
14|eve|PENDING|debug|||gres:gpu:h100:1
"""
RESERVED = "ReservationName=course StartTime=2027-01-01T00:00:00 Nodes=node[2-3] NodeCnt=2 Users=ada\n"


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        ("PartitionName=batch", "PartitionName=more Nodes=ALL\nPartitionName=batch", []),
        ("Gres=gpu:a100:4", "Gres=gpu:a100:5", []),
        (
            "node[1-2] CPUs", "node1 CPUs",
            ["job 11 (ada) runs on node2, which is removed", "job 13_[1-9] (cyd) waits for node2, which is removed",
             "reservation course loses node2"],
        ),
        ("CoresPerSocket=4", "CoresPerSocket=2", ["job 11 (ada) runs on node[1-2], whose sockets or cores change"]),
        ("Gres=gpu:a100:4", "Gres=gpu:a100:2", ["job 11 (ada) runs with gres/gpu:a100:4 on node[1-2], which has less"]),
        ("Gres=gpu:h100:2", "Gres=gpu:h200:2", ["job 14 (eve) waits for gpu:h100, which no node has any more"]),
        (
            "PartitionName=debug Nodes=node3", "",
            ["job 12 (bob) is in partition debug, which is removed",
             "job 14 (eve) is in partition debug, which is removed"],
        ),
        (
            "select/cons_tres", "select/linear",
            ["job 11 (ada) runs, and SelectType is another one", "job 12 (bob) runs, and SelectType is another one"],
        ),
    ],
)  # fmt: skip
def test_what_a_change_ends_is_named_with_its_user_and_why(old: str, new: str, lost: list[str]) -> None:
    check = queue(NOW, NOW.replace(old, new), JOBS, RESERVED)

    assert check.ok is not bool(lost)
    assert check.observed == ("; ".join(lost) or "the change removes nothing")


@pytest.mark.parametrize(
    ("old", "new", "nodes"),
    [
        ("CoresPerSocket=4", "CoresPerSocket=2", ["node1", "node2"]),
        ("Gres=gpu:a100:4", "Gres=gpu:a100:2", ["node1", "node2"]),
        # Waiting ends neither a pending job that names a node nor one whose resources are gone.
        ("node[1-2] CPUs", "node1 CPUs", []),
        ("Gres=gpu:h100:2", "Gres=gpu:h200:2", []),
        ("PartitionName=debug Nodes=node3", "", []),
        ("select/cons_tres", "select/linear", []),
        ("PartitionName=batch", "PartitionName=more Nodes=ALL\nPartitionName=batch", []),
    ],
)
def test_nodes_are_drained_for_a_change_that_only_running_jobs_keep_from_being_made(
    old: str, new: str, nodes: list[str]
) -> None:
    assert to_drain([queue(NOW, NOW.replace(old, new), JOBS, RESERVED)]) == nodes


def test_the_next_job_does_not_begin_on_a_node_that_the_change_takes_away() -> None:
    running = "11|ada|RUNNING|batch|node3||N/A\n15|eve|COMPLETING|debug|node[2-3]||N/A\n"
    without = NOW.replace("node[1-2] CPUs", "node1 CPUs")
    fewer = without.replace("NodeName=node3 CPUs=8", "NodeName=node3 CPUs=4")

    assert to_drain([queue(NOW, fewer, running, "")]) == ["node2", "node3"]
    assert to_drain([queue(NOW, without, "15|eve|RUNNING|debug|node[2-3]||N/A\n", "")]) == ["node2"]
    of_debug = NOW.replace("PartitionName=debug Nodes=node3", "")
    assert to_drain([queue(NOW, of_debug, running, "")]) == ["node2", "node3"]
    assert to_drain([queue(NOW, without, running, RESERVED)]) == []
    assert to_drain([queue(NOW, fewer, running, "", ends=True)]) == []
    assert to_drain([queue(NOW, fewer, None, "")]) == []


@pytest.mark.parametrize("answer", [None, "slurm_load_jobs error: Unable to contact slurm controller\n", "1|ada\n"])
def test_a_queue_that_cannot_be_read_is_never_empty(answer: str | None) -> None:
    smaller = NOW.replace("node[1-2]", "node1")

    assert queue(NOW, smaller, answer, "").verdict is Verdict.FAIL
    assert queue(NOW, smaller, "", "").verdict is Verdict.PASS
    assert queue(NOW, NOW + "MaxJobCount=5\n", answer, "").verdict is Verdict.PASS
    assert queue(NOW.replace("node[1-2]", "node[1-"), NOW, "", "").verdict is Verdict.FAIL
    assert queue(None, NOW, "", "").verdict is Verdict.FAIL


def test_a_type_that_is_now_told_takes_nothing_away() -> None:
    assert queue(NOW.replace("gpu:a100:4", "gpu:4"), NOW, JOBS, "").observed == "the change removes nothing"


def test_a_site_may_let_jobs_end_and_a_first_provision_has_none() -> None:
    smaller = NOW.replace("node[1-2]", "node1")

    assert queue(NOW, smaller, JOBS, "", ends=True).verdict is Verdict.WARN
    assert queue("", NOW, None, "").verdict is Verdict.SKIP


def test_a_node_that_was_added_and_never_verified_may_go_again() -> None:
    reserved = RESERVED.replace("=course", "=clusterctl-new")

    assert queue(NOW, NOW.replace("node[1-2]", "node1"), "", reserved).verdict is Verdict.PASS


def test_ten_thousand_jobs_are_compared_and_ten_are_named() -> None:
    jobs = "".join(f"{number}|ada|PENDING|batch||node[1-2]|N/A\n" for number in range(10_000))

    check = queue(NOW, NOW.replace("node[1-2] CPUs", "node1 CPUs"), jobs, "")

    assert len(jobs_in(jobs)) == 10_000
    assert check.observed.endswith("job 9 (ada) waits for node2, which is removed; and 9990 more")
