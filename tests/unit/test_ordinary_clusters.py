"""Ordinary healthy clusters raise no alarm: what does not apply is a skip with its reason, and the verdict is a pass.

Clocks of 400 machines and a slow login stand in test_judge_munge, jobs that wait their turn in test_judge_jobs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import pytest

from provision.events.fold import RunReport
from provision.events.verdict import RunVerdict, verdict
from provision.judge import ddp, rdma_ports
from provision.judge.ddp_evidence import Wants, evidence_from
from provision.judge.ddp_job import STEPS
from provision.judge.ddp_plan import Plan, plan
from provision.model.checks import Check
from provision.rdma.expected import Expected, expected, majority
from provision.rdma.ibstat import Adapter, Port

EIGHT = {f"gpu{number:02}": 8 for number in range(1, 5)}


def run(checks: Iterable[Check], *, strict: bool = False) -> RunVerdict:
    return verdict(RunReport(checks=list(checks), began=True, finished=True, rc=0, strict=strict))


def sinfo(states: Mapping[str, str], partition: str = "batch*") -> str:
    return "".join(f"{node}|{partition}|up|{state}|none\n" for node, state in states.items())


def trained(found: Plan) -> list[Check]:
    """Return the checks of a plan each of whose jobs went well, on simulated GPUs."""
    evidence = []
    for number, job in enumerate(found.jobs):
        ranks = [node for node, count in job.ranks.items() for _ in range(count)]
        run_id = f"r{number}"
        left = {}
        steps = {name: {"verdict": "pass", "observed": "seen", "expected": "wanted"} for name in STEPS}
        result = {"run_id": run_id, "job_id": "7", "world": len(ranks), "backend": "gloo", "device": "cpu"}
        result |= {
            "simulated": ["gpu"],
            "sabotage": "",
            "steps": steps | {"parameters": {**steps["parameters"], "digest": "d"}},
        }
        for node in job.ranks:
            records = [
                {"run_id": run_id, "rank": rank, "node": node, "state": "done", "step": "end", "parameters": "d"}
                for rank, of in enumerate(ranks)
                if of == node
            ]
            left[node] = {"records": records, "result": result if node == ranks[0] else None}
        told = {"run_id": run_id, "id": "7", "state": "COMPLETED", "reason": "None", "exit_code": 0}
        texts = {node: json.dumps(one) for node, one in left.items()}
        evidence.append(evidence_from(told, "", texts, Wants(dict(job.ranks), job.gpus, ["gpu"]), {}, "/runs"))
    return ddp.checks(found, evidence)


def test_nodes_without_gpus_beside_nodes_with_gpus_are_proven_in_a_job_of_their_own() -> None:
    ranks = EIGHT | {"cpu01": 1, "cpu02": 1}
    found = plan(sinfo(dict.fromkeys(ranks, "idle")), ranks, EIGHT, scope=list(ranks))

    told = run(trained(found), strict=True)

    assert [(list(job.ranks), job.gpus) for job in found.jobs] == [(list(EIGHT), 8), (["cpu01", "cpu02"], 0)]
    assert told.passed, told.why


def test_partitions_without_common_nodes_are_proven_each_by_itself() -> None:
    text = sinfo({"gpu01": "idle", "gpu02": "idle"}, "left") + sinfo({"gpu03": "idle", "gpu04": "idle"}, "right")
    found = plan(text, EIGHT, EIGHT, scope=list(EIGHT))

    told = run(trained(found), strict=True)

    assert sorted(job.partition for job in found.jobs) == ["left", "right"]
    assert told.passed, told.why


@pytest.mark.parametrize(
    ("mig", "states", "said"),
    [(["gpu04"], {}, "gpu04 MIG"), ([], {"gpu04": "mixed", "gpu03": "allocated"}, "gpu[03-04] busy with other jobs")],
    ids=["MIG", "busy"],
)
def test_what_cannot_be_proven_now_is_named_and_the_rest_is_proven(
    mig: list[str], states: dict[str, str], said: str
) -> None:
    found = plan(sinfo(dict.fromkeys(EIGHT, "idle") | states), EIGHT, EIGHT, mig=mig, scope=list(EIGHT))
    checks = trained(found)
    [nodes] = [check for check in checks if check.id == "ddp.nodes"]

    told, strict = run(checks), run(checks, strict=True)

    assert told.passed, told.why
    assert (told.counts["unproven"], said in nodes.observed) == (1, True), nodes.observed
    assert (str(strict.word), strict.passed) == ("fail", False), "what is not proven is no pass to who asks for all"


def test_four_hundred_nodes_are_one_job() -> None:
    many = {f"n{number:03}": 1 for number in range(400)}
    found = plan(sinfo(dict.fromkeys(many, "idle")), many, {}, scope=list(many))

    assert [len(job.ranks) for job in found.jobs] == [400]
    assert run(trained(found), strict=True).passed


def port(adapter: str, rate: str = "400", layer: str = "InfiniBand", state: str = "Active/LinkUp") -> Port:
    logical, physical = state.split("/")
    values = {"State": logical, "Physical state": physical, "Rate": rate, "Link layer": layer, "SM lid": "1"}
    return Port(adapter, 1, values | {"Base lid": "2"})


def server() -> list[Adapter]:
    """Return the ports of a DGX: eight rails, two for storage, one without a cable."""
    ports = [port(f"mlx5_{number}") for number in range(8)]
    ports += [port("mlx5_8", "200", "Ethernet"), port("mlx5_9", "200", "Ethernet")]
    ports.append(port("mlx5_10", "10", state="Down/Disabled"))
    return [Adapter(one.adapter, values={"Number of ports": "1"}, ports=(one,)) for one in ports]


def test_storage_adapters_and_ports_without_a_cable_are_no_alarm_where_all_machines_have_them() -> None:
    group = majority([server() for _ in range(4)])

    told = rdma_ports.checks(server(), expected({}, group))

    assert [check.id for check in told if not check.ok or check.verdict == "warn"] == []


def test_a_machine_alone_with_storage_adapters_is_judged_by_what_is_declared() -> None:
    wants = expected({"unused": "mlx5_8,mlx5_9,mlx5_10"}, Expected())

    told = rdma_ports.checks(server(), wants)

    assert [check.id for check in told if not check.ok] == []
