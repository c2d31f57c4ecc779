"""Which nodes are proven together, and who is left out with which reason."""

from __future__ import annotations

from typing import Any

import pytest

from provision.judge import ddp
from provision.judge.ddp_plan import Plan, divided, plan

RANKS = {"node1": 2, "node2": 2, "node3": 2, "node4": 1}
GPUS = {"node1": 2, "node2": 2, "node3": 2, "node4": 0}


def sinfo(**states: str) -> str:
    """What ``sinfo --Node`` prints of nodes in one default partition; a state may bring its reason after a colon."""
    lines = []
    for node, told in states.items():
        state, _, reason = told.partition(":")
        lines.append(f"{node}|batch*|up|{state}|{reason or 'none'}")
    return "\n".join(lines) + "\n"


def planned(text: str, ranks: dict[str, int] | None = None, **options: Any) -> Plan:
    ranks = ranks or {"node1": 2, "node2": 2, "node3": 2}
    return plan(text, ranks, GPUS, **({"scope": list(ranks)} | options))


def jobs(found: Plan) -> list[tuple[list[str], int, str]]:
    return [(list(job.ranks), job.gpus, job.partition) for job in found.jobs]


def nodes_check(found: Plan) -> dict[str, Any]:
    [check] = [check.as_dict() for check in ddp.checks(found, []) if check.id == "ddp.nodes"]
    return check


def test_a_healthy_cluster_is_one_job() -> None:
    found = planned(sinfo(node1="idle", node2="idle", node3="completing"))

    assert jobs(found) == [(["node1", "node2", "node3"], 2, "batch")]
    assert nodes_check(found)["verdict"] == "pass"


def test_a_partition_of_others_is_not_taken_although_sinfo_shows_it() -> None:
    text = sinfo(node1="idle", node2="idle") + "node1|paid|up|idle|none\nnode2|paid|up|idle|none\n"
    text += "node3|paid|up|idle|none\nnode1|gpu|up|idle|none\n"

    found = planned(text, foreign={"paid": "AllowAccounts"})

    assert jobs(found) == [(["node1", "node2"], 2, "batch")]
    assert found.apart == {"node3": "the test user may not use partition paid"}


def test_nodes_without_gpus_train_apart_from_those_with() -> None:
    text = sinfo(node1="idle", node2="idle", node3="idle", node4="idle")

    assert jobs(planned(text, RANKS)) == [(["node1", "node2", "node3"], 2, "batch"), (["node4"], 0, "batch")]


def test_partitions_without_common_nodes_have_jobs_of_their_own_and_need_no_default() -> None:
    text = "node1|a|up|idle|none\nnode2|b|up|idle|none\nnode3|b|up|idle|none\nnode3|a|down|idle|none\n"

    assert sorted(jobs(planned(text))) == [(["node1"], 2, "a"), (["node2", "node3"], 2, "b")]


def test_the_partition_that_has_all_nodes_is_preferred_to_several() -> None:
    text = "".join(
        f"{n}|{p}|up|idle|none\n" for n, p in [("node1", "a"), ("node2", "b"), ("node1", "all"), ("node2", "all")]
    )

    assert jobs(planned(text, {"node1": 2, "node2": 2})) == [(["node1", "node2"], 2, "all")]


@pytest.mark.parametrize("state", ["reserved", "maint"])
def test_jobs_of_the_reservation_that_nodes_are_in_run_there_and_no_others(state: str) -> None:
    text = sinfo(node1="idle", node2=state, node3=f"{state}*")

    assert jobs(planned(text, reserved=True)) == [(["node1", "node2"], 2, "batch")]
    assert jobs(planned(text)) == [(["node1"], 2, "batch")]


@pytest.mark.parametrize("state", ["allocated", "mixed", "ALLOCATED+"])
def test_a_busy_node_is_left_out_named_and_no_false_alarm(state: str) -> None:
    found = planned(sinfo(node1="idle", node2=state, node3="idle"))

    check = nodes_check(found)
    assert jobs(found) == [(["node1", "node3"], 2, "batch")]
    assert (check["verdict"], check["unproven"]) == ("skip", True)
    assert "node2 busy with other jobs" in check["observed"]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("drained:bad fan", "drained: bad fan"),
        ("down*:Not responding", "down*: Not responding"),
        ("idle*", "idle*"),
        ("mixed*", "mixed*"),
        ("maint", "maint"),
        ("inval:gres/gpu count reported lower", "inval: gres/gpu"),
    ],
)
def test_a_node_out_of_service_is_not_waited_for_and_leaves_the_proof_open(told: str, said: str) -> None:
    found = planned(sinfo(node1="idle", node2=told, node3="idle"))

    check = nodes_check(found)
    assert jobs(found) == [(["node1", "node3"], 2, "batch")]
    assert (check["verdict"], check["host"]) == ("unknown", "node2")
    assert said in check["cause"]
    assert "busy" not in check["cause"]


def test_a_node_that_is_outside_the_run_makes_the_proof_a_smaller_one_that_says_so() -> None:
    found = planned(sinfo(node1="idle", node2="idle", node3="idle"), scope=["node1", "node2"])

    check = nodes_check(found)
    assert jobs(found) == [(["node1", "node2"], 2, "batch")]
    assert (check["verdict"], check["unproven"]) == ("skip", True)
    assert "2 of 3 nodes" in check["observed"]
    assert "node3 it is outside this run" in check["observed"]


def test_a_node_that_slurm_does_not_show_is_named() -> None:
    assert nodes_check(planned(sinfo(node1="idle", node2="idle")))["host"] == "node3"


def test_divided_gpus_are_not_proven_and_that_is_said() -> None:
    found = planned(sinfo(node1="idle", node2="idle"), {"node1": 7, "node2": 7}, mig=["node1", "node2"])

    told = ddp.checks(found, [])

    assert {(check.verdict, check.unproven) for check in told} == {("skip", True)}
    assert "MIG" in told[0].observed


@pytest.mark.parametrize(
    ("gres", "mig", "true"),
    [
        ("gpu:1g.10gb:7", None, True),
        (["gpu:a100_3g.20gb:2"], None, False),
        ("gpu:A40:4", "0:3g.40gb*2", True),
        ("gpu:A40:4", None, False),
        (None, None, False),
    ],
)
def test_mig_is_known_by_its_layout_or_its_types(gres: object, mig: object, true: bool) -> None:
    assert divided(gres, mig) is true


@pytest.mark.parametrize("text", ["", "slurm_load_partitions: Unable to contact slurm controller", "a|b\n||||\n"[:4]])
def test_a_slurmctld_that_does_not_answer_leaves_everything_unknown(text: str) -> None:
    found = ddp.checks(planned(text), [])

    assert {check.id for check in found} == {*ddp.SUBJECT.ids, "gpudirect.traffic"}
    assert {check.verdict for check in found} == {"unknown"}
    assert "slurmctld did not list its nodes" in found[0].observed


def test_when_every_node_is_busy_nothing_is_proven_and_no_node_accused() -> None:
    found = ddp.checks(planned(sinfo(node1="allocated", node2="mixed", node3="allocated")), [])

    assert {check.verdict for check in found if check.id != "ddp.nodes"} == {"unknown"}
    assert {check.host for check in found} == {""}


def test_nothing_waits_for_a_node_that_can_run_no_job_whatever_slurm_says_of_it() -> None:
    found = planned(sinfo(node1="idle", node2="idle", node3="idle"), unfit={"node2": "slurmd did not answer in time"})

    assert jobs(found) == [(["node1", "node3"], 2, "batch")]
    assert nodes_check(found)["verdict"] == "unknown"
    assert "node2 slurmd did not answer in time" in nodes_check(found)["observed"]
