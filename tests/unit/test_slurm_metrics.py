"""What Prometheus is told of Slurm, from Slurm's own JSON, whatever is in it."""

from __future__ import annotations

import json
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from provision import content

PROGRAM = runpy.run_path(str(content.ROOT / "roles/machine_metrics/files/slurm-metrics"))
RECORDED = Path(__file__).with_name("fixtures") / "slurm_metrics/24.11.5.json"
NOW = 1_800_000_000.0

Told = Mapping[tuple[Any, ...], float]


def answer(nodes: Any = (), jobs: Any = (), statistics: Any = None) -> str:
    parts = ({"nodes": list(nodes)}, {"jobs": list(jobs)}, {"statistics": statistics or {}})
    return "\036".join(map(json.dumps, parts))


def told(text: str, ended: Any = None, now: float = NOW) -> Told:
    """Return the values by metric and labels."""
    found = PROGRAM["samples"](text, now, ended or PROGRAM["Ended"]())
    return {(name, *labels): value for name, labels, value in found}


def node(name: str = "n1", state: Any = ("IDLE",), **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "state": list(state),
        "gres": "gpu:A40:4(S:0-1),shard:8",
        "gres_used": "gpu:A40:1(IDX:0)",
        **more,
    }


def job(number: int = 7, state: str = "RUNNING", **more: Any) -> dict[str, Any]:
    known = {
        "partition": "batch",
        "account": "physics",
        "user_name": "ada",
        "nodes": "n1",
        "end_time": {"number": number},
    }
    return {"job_id": number, "job_state": [state], **known, **more}


def set_(number: float) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": number}


def test_what_a_slurmctld_has_answered_is_told_whole() -> None:
    # As recorded on a lab: a node with jobs was drained, with a reason of two lines. Without the list of requests.
    found = told(
        "\036".join(map(json.dumps, json.loads(RECORDED.read_text(encoding="utf-8")).values())), now=1795910116 + 90
    )

    assert {key[1:]: value for key, value in found.items() if key[0] == "slurm_jobs"} == {
        ("running", "batch", "operations"): 1,
        ("pending", "batch", "operations"): 3,
        ("failed", "batch", "operations"): 1,
    }  # fmt: skip
    assert found["slurm_node_state", "node1", "mixed"] == found["slurm_node_flag", "node2", "drain"] == 1
    assert found["slurm_node_reason_info", "node2", 'new "fans" and {x="y"}'] == 1
    assert [found[f"slurm_node_gpus_{word}", "node1"] for word in ("declared", "allocated", "idle")] == [2, 1, 1]
    assert [found[f"slurm_node_gpus_{word}", "node2"] for word in ("declared", "allocated", "idle")] == [2, 1, 0]
    gpus = [found["slurm_job_gpu", node, "0", "nvidia0", "1", "grace"] for node in ("node1", "node2")]
    assert gpus == [1, 1]
    assert found["slurm_queue_wait_seconds", "batch", "1"] == 90
    assert set(PROGRAM["METRICS"]) == {key[0] for key in found}


def test_a_node_has_one_state_and_its_flags_and_a_reason() -> None:
    found = told(answer([node(state=["MIXED", "DRAIN", "NOT_RESPONDING"], reason="new fans")]))

    assert {
        key: value for key, value in found.items() if key[0].startswith("slurm_node_") and "gpus" not in key[0]
    } == {
        ("slurm_node_state", "n1", "mixed"): 1,
        ("slurm_node_flag", "n1", "drain"): 1,
        ("slurm_node_flag", "n1", "not_responding"): 1,
        ("slurm_node_reason_info", "n1", "new fans"): 1,
        ("slurm_node_jobs_ended_total", "n1"): 0,
        ("slurm_node_jobs_failed_total", "n1"): 0,
    }


@pytest.mark.parametrize(
    ("state", "idle"), [(["MIXED"], 3), (["MIXED", "PLANNED"], 3), (["MIXED", "DRAIN"], 0), (["DOWN"], 0)]
)
def test_a_gpu_is_idle_where_a_job_could_have_it(state: list[str], idle: int) -> None:
    found = told(answer([node(state=state)]))

    assert found["slurm_node_gpus_declared", "n1"] == 4
    assert found["slurm_node_gpus_allocated", "n1"] == 1
    assert found["slurm_node_gpus_idle", "n1"] == idle


@pytest.mark.parametrize(
    ("gres", "count"),
    [("", 0), (None, 0), ("gpu:2", 2), ("gpu:a:1,gpu:b:2(S:0)", 3), ("gpu:1g.10gb:7(S:0,1)", 7), ("shard:8,nic:1", 0)],
)
def test_gpus_of_all_types_are_counted(gres: Any, count: int) -> None:
    assert PROGRAM["gpus"](gres) == count


def test_a_word_that_nobody_knows_is_told_as_other_and_ends_nothing() -> None:
    found = told(answer([node(state=["QUANTUM", "ENTANGLED"]), node("n2")], [job(state="TELEPORTED")]))

    assert found["slurm_up",] == 1
    assert found["slurm_node_state", "n1", "other"] == found["slurm_node_flag", "n1", "other"] == 1
    assert found["slurm_node_state", "n2", "idle"] == 1
    assert found["slurm_jobs", "other", "batch", "physics"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "slurm_load_node error: Unable to contact slurm controller",
        "\036\036",
        "{}\036{}",
        "{" * 5000 + "\036{}\036{}",
    ],
)
def test_of_a_slurmctld_that_does_not_answer_nothing_else_is_told(text: str) -> None:
    assert told(text) == {("slurm_up",): 0}


@pytest.mark.parametrize("odd", [None, 7, "x", [], {}, [None, 7, "x", {}], {"state": 7}])
def test_answers_of_another_shape_leave_out_what_they_are_about(odd: Any) -> None:
    odd_node = {**node(), "state": odd, "reason": odd, "gres": odd, "gres_used": odd}
    odd_job = dict.fromkeys(job(), odd) | {"eligible_time": odd, "gres_detail": odd}
    found = told(
        "\036".join(map(json.dumps, ({"nodes": [odd, odd_node]}, {"jobs": [odd, odd_job]}, {"statistics": odd})))
    )

    assert found["slurm_up",] == 1
    assert ("slurm_node_reason_info", "n1", "x" if odd == "x" else "") in found


def test_warnings_before_a_document_are_passed_over() -> None:
    parts = answer([node()]).split("\036")

    assert ("slurm_node_state", "n1", "idle") in told("\036".join(f"squeue: warning\n{part}" for part in parts))


def test_hostile_texts_are_one_line_of_a_label() -> None:
    reason = 'a "quoted"\nnew\\line\x1b[2J \ud800' + "x" * 1_000_000
    found = told(answer([node(reason=reason)], [job(user_name='{job="x"}', gres_detail=["gpu:A40:1(IDX:0)"])]))

    [said] = [key[2] for key in found if key[0] == "slurm_node_reason_info"]
    assert said.startswith('a "quoted" new\\line [2J ?xxx')
    assert len(said) == 200
    assert found["slurm_job_gpu", "n1", "0", "nvidia0", "7", '{job="x"}'] == 1


def test_what_is_told_is_a_file_that_prometheus_reads(tmp_path: Path) -> None:
    reason = '"quoted" back\\slash {job="x"} é'
    text = answer(
        [node(reason=reason), node("n1", state=["DOWN"])], [job(user_name='{job="x"}')], {"agent_queue_size": 3}
    )

    PROGRAM["write"](str(tmp_path / "slurm.prom"), PROGRAM["samples"](text, NOW, PROGRAM["Ended"]()))

    families = list(text_string_to_metric_families((tmp_path / "slurm.prom").read_text(encoding="utf-8")))
    labels = {sample.labels["reason"] for one in families for sample in one.samples if "reason" in sample.labels}
    assert reason in labels
    series = [(sample.name, tuple(sample.labels.items())) for one in families for sample in one.samples]
    assert len(series) == len(set(series))
    assert [path.name for path in tmp_path.iterdir()] == ["slurm.prom"]


def test_each_metric_is_described() -> None:
    jobs = [job(gres_detail=["gpu:1(IDX:0)"]), job(8, "PENDING", eligible_time=1)]
    text = answer([node(state=["DRAIN"])], jobs, {key: 1 for key, _, _ in PROGRAM["NUMBERS"].values()})
    found = {key[0]: len(key) - 1 for key in told(text)}

    assert found == {name: len(labels) for name, (_, labels) in PROGRAM["METRICS"].items()}


def test_jobs_are_counted_by_state_partition_and_account() -> None:
    jobs = [job(), job(8), job(9, "PENDING", account=""), job(10, "PENDING", partition="debug")]
    found = told(answer(jobs=jobs))

    assert {key[1:]: value for key, value in found.items() if key[0] == "slurm_jobs"} == {
        ("running", "batch", "physics"): 2, ("pending", "batch", ""): 1, ("pending", "debug", "physics"): 1,
    }  # fmt: skip


def test_who_makes_up_accounts_makes_no_rows_without_end() -> None:
    found = told(answer(jobs=[job(number, account=f"a{number}") for number in range(5000)]))
    rows = {key[1:]: value for key, value in found.items() if key[0] == "slurm_jobs"}

    assert len(rows) == PROGRAM["MOST_ROWS"] + 1
    assert sum(rows.values()) == 5000
    assert rows["running", "other", "other"] == 4500


def test_a_job_waits_from_when_it_could_have_started() -> None:
    jobs = [
        *(job(number, "PENDING", eligible_time=set_(NOW - 60 * number)) for number in range(1, 11)),
        job(20, "PENDING", eligible_time=set_(NOW + 3600)),
        job(21, "PENDING", eligible_time=set_(0)),
        job(22, "PENDING", eligible_time=set_(NOW - 9000), hold=True),
        job(23, "RUNNING", eligible_time=set_(NOW - 9000)),
    ]
    found = told(answer(jobs=jobs))

    assert {key[2]: value for key, value in found.items() if key[0] == "slurm_queue_wait_seconds"} == {
        "0.5": 360, "0.9": 600, "1": 600,
    }  # fmt: skip


def test_the_scheduler_is_told_in_seconds_and_what_it_does_not_say_is_left_out() -> None:
    found = told(answer(statistics={"schedule_cycle_last": 2500, "dbd_agent_queue_size": 4}))

    assert {key[0]: value for key, value in found.items()} == {
        "slurm_up": 1, "slurm_sched_cycle_seconds": pytest.approx(0.0025), "slurm_dbd_agent_queue_size": 4,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("folded", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3,07],login", ["n1", "n2", "n3", "n07", "login"]),
        ("a[1-2]b[3-4]", ["a1b3", "a1b4", "a2b3", "a2b4"]),
        ("n[008-010]", ["n008", "n009", "n010"]),
        ("", []), (None, []), ("n[1-999999999]", []), ("n[1-99999]x[1-99999]", []), ("n[x]", []), ("n[", ["n"]),
    ],
)  # fmt: skip
def test_host_lists_are_unfolded_and_bounded(folded: Any, names: list[str]) -> None:
    assert PROGRAM["hosts"](folded) == names


def test_jobs_that_end_are_counted_once_on_each_of_their_nodes() -> None:
    ended = PROGRAM["Ended"]()
    nodes = [node("n1"), node("n2")]
    before = [job(1, "FAILED"), job(2)]
    after = [
        job(1, "FAILED"),
        job(2, "FAILED", nodes="n[1-2]"),
        job(3, "COMPLETED"),
        job(4, "CANCELLED"),
        job(5, "NODE_FAIL"),
        job(6, "FAILED", name="clusterctl-verify-n1"),  # on purpose
    ]

    for jobs in (before, after, after):
        found = told(answer(nodes, jobs), ended)

    # Job 1 had ended before anybody looked.
    assert (found["slurm_node_jobs_ended_total", "n1"], found["slurm_node_jobs_failed_total", "n1"]) == (4, 2)
    assert (found["slurm_node_jobs_ended_total", "n2"], found["slurm_node_jobs_failed_total", "n2"]) == (1, 1)


def test_gpus_of_a_job_on_two_nodes_are_each_nodes_own() -> None:
    found = told(
        answer(jobs=[job(nodes="n[1-2]", gres_detail=["gpu:A40:2(IDX:0-1)", "gpu:A40:1(IDX:3),gpu:V100:1(IDX:4)"])])
    )

    assert [key[1:3] for key in found if key[0] == "slurm_job_gpu"] == [
        ("n1", "0"),
        ("n1", "1"),
        ("n2", "3"),
        ("n2", "4"),
    ]
