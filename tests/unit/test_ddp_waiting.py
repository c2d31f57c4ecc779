"""Why a job did not start: Slurm's own reason, and nothing that Slurm has not said."""

from __future__ import annotations

import pytest

from provision.judge.ddp_evidence import Job
from provision.judge.ddp_waiting import REASONS, why

#: As ``scontrol --oneliner show job`` prints them.
FIXTURES = {
    "COMPLETING for 95 s": "has not confirmed its end",
    "PartitionDown": "partition does not start jobs",
    "PartitionInactive": "partition does not start jobs",
    "ReqNodeNotAvail,_UnavailableNodes:node2": "out of service",
    "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions": "out of service",
    "launch_failed_requeued_held": "could not launch",
    "JobHeldAdmin": "held",
    "AssocGrpNodeLimit": "account or QOS",
    "QOSMaxNodePerUserLimit": "account or QOS",
    "InvalidAccount": "not valid",
    "PartitionNodeLimit": "partition's own limits",
    "PartitionTimeLimit": "partition's own limits",
    "BeginTime": "may not begin yet",
    "Reservation": "reservation",
    "Licenses": "something other than nodes",
    "BadConstraints": "no node can ever",
    "Priority": "before it in the queue",
    "Resources": "busy with other jobs",
}


def job(reason: str, *out: str) -> Job:
    return Job(run_id="r1", id="7", state="PENDING", reason=reason, out=list(out))


@pytest.mark.parametrize(("reason", "said"), FIXTURES.items())
def test_each_reason_of_slurms_has_its_own_cause(reason: str, said: str) -> None:
    assert said in why(job(reason), {"node1": 2, "node2": 2})[0]


def test_every_reason_that_is_known_has_a_fixture() -> None:
    found = {why(job(reason), {})[0] for reason in FIXTURES}

    assert {cause for _, cause, _ in REASONS} == found


@pytest.mark.parametrize(
    "reason", [reason for reason in FIXTURES if reason != "Resources"] + ["None", "", "SomethingNew"]
)
def test_busy_is_said_only_where_slurm_says_it(reason: str) -> None:
    assert "busy" not in why(job(reason), {"node1": 2})[0]


def test_the_nodes_that_are_out_of_service_are_named_and_those_of_others_are_not() -> None:
    out = ("node2 drained: bad fan", "node9 down*: Not responding")

    for reason in ("Resources", "ReqNodeNotAvail,_UnavailableNodes:node2"):
        cause = why(job(reason, *out), {"node1": 2, "node2": 2})[0]

        assert "node2 drained: bad fan" in cause
        assert "node9" not in cause
        assert "busy" not in cause
