"""The judge of the DDP job: what it says, and whom it names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from provision.judge import ddp
from provision.judge.ddp import STEPS
from provision.judge.ddp_blame import who_broke as who_broke_of
from provision.judge.ddp_evidence import Accused, Evidence, Record, Wants, evidence_from
from provision.judge.ddp_logs import LOG_CAUSES, cause_in, last_words
from provision.judge.ddp_plan import Job, Plan

EXPECTED = {"node1": 2, "node2": 2}


def record(rank: int, **changes: Any) -> dict[str, Any]:
    """One rank's own record; ranks 0 and 1 run on node1, 2 and 3 on node2."""
    return {
        "run_id": "r1",
        "rank": rank,
        "node": f"node{1 + rank // 2}",
        "state": "done",
        "step": "end",
        "calls": 250,
        "waiting": "",
        "error": None,
        "parameters": "feedbeef00000000",
        **changes,
    }


def broken(rank: int, **changes: Any) -> dict[str, Any]:
    """A victim: it lost the others while it trained with them."""
    error = {"kind": "communication", "text": "RuntimeError: Connection closed by peer"}
    lost = {"state": "failed", "step": "parameters", "waiting": "training step 25", "calls": 211, "error": error}
    return record(rank, **{**lost, **changes})


def step(verdict: str = "pass", **more: Any) -> dict[str, Any]:
    return {"verdict": verdict, "observed": "seen", "expected": "wanted", "guilty": [], **more}


def evidence(records: list[dict[str, Any]] | None = None, **job: Any) -> dict[str, Any]:
    """A healthy run on two nodes; without a result where the records are given."""
    everyone = records if records is not None else [record(rank) for rank in range(4)]
    result = {
        "run_id": "r1",
        "job_id": "7",
        "world": 4,
        "device": "cpu",
        "backend": "gloo",
        "simulated": ["gpu"],
        "sabotage": "",
        "steps": {name: step() for name in STEPS} | {"parameters": step(digest="feedbeef00000000")},
    }
    nodes = {}
    for node in EXPECTED:
        here = [one for one in everyone if one["node"] == node]
        nodes[node] = {
            "records": here,
            "result": result if node == "node1" and records is None else None,
            "logs": {str(one["rank"]): [f"last words of rank {one['rank']}"] for one in here},
            "node_log": [f"node {node}"],
        }
    slurm = {"run_id": "r1", "id": "7", "state": "COMPLETED", "reason": "None", "exit_code": 0, **job}
    return {"gpus": 2, "simulated": ["gpu"], "job": slurm, "nodes": nodes, "rdma": {}, "required": False}


def read(found: dict[str, Any]) -> Evidence:
    """The evidence as the role's filter reads it, from what machines printed."""
    left = {node: json.dumps(told) for node, told in found["nodes"].items()}
    own = (found["gpus"], found["simulated"], found["required"], found.get("unused", {}), found.get("release", ""))
    wants = Wants(EXPECTED, *own)
    return evidence_from(found["job"], "", left, wants, found["rdma"], "/runs")


PLAN = Plan([Job(EXPECTED, 2, "batch")])


def judge(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [check.as_dict() for check in ddp.checks(PLAN, [read(found)])]


def by_id(checks: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {check["id"].removeprefix("ddp."): check for check in checks}


def test_a_healthy_run_passes_in_every_step_and_as_a_whole():
    checks = judge(evidence())

    assert {check["id"] for check in checks} == {*ddp.SUBJECT.ids, "gpudirect.traffic"}
    assert len(checks) == len(ddp.SUBJECT.ids) + 1
    assert {check["verdict"] for check in checks if check["id"].startswith("ddp.")} == {"pass"}, checks


def test_what_was_simulated_is_marked_in_every_check_and_what_simulation_leaves_out_is_skipped():
    checks = judge(evidence())

    assert all(check["simulated"] for check in checks if check["id"] != "ddp.nodes")
    assert by_id(checks)["gpudirect.traffic"]["verdict"] == "skip"


def real(lines: dict[str, str], **rdma: Any) -> dict[str, Any]:
    """A healthy run over NCCL on real GPUs; each node's lines on connections."""
    found = evidence() | {"simulated": [], "rdma": rdma}
    found["nodes"]["node1"]["result"] |= {"simulated": [], "backend": "nccl", "device": "cuda"}
    for node, text in lines.items():
        found["nodes"][node]["nccl"] = text.splitlines()
    return found


DIRECT = (
    "gpu:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 2[0] [send] via NET/IB/0/GDRDMA\n"
    "gpu:1:2 [0] NCCL INFO Channel 00/0 : 2[0] -> 0[0] [receive] via NET/IB/0/GDRDMA"
)
STAGED = DIRECT.replace("/GDRDMA", "")


def adapter(bridge: str = "") -> dict[str, Any]:
    """What a machine with one adapter tells; with the bridge that sends its data through the processor."""
    return {"adapters": [{}], "acs": {"bridges": [{"bridge": bridge, "set": ["ReqRedir"]}] if bridge else []}}


@pytest.mark.parametrize(
    ("lines", "rdma", "verdict", "said"),
    [
        ({"node1": DIRECT, "node2": DIRECT}, {}, "pass", "4 connections of 2 machines"),
        ({"node1": DIRECT, "node2": STAGED}, {"node2": adapter("0000:a0:01.0")}, "warn", "node2: rails 0"),
        ({"node1": STAGED.replace("IB", "Socket"), "node2": DIRECT}, {}, "fail", "TCP on node1"),
        ({"node1": DIRECT}, {}, "unknown", "node2"),
        ({}, {"node1": adapter() | {"adapters": []}, "node2": adapter() | {"adapters": []}}, "skip", "no machine"),
        ({}, {"node1": adapter() | {"adapters": []}, "node2": None}, "unknown", "node1, node2"),
    ],
)
def test_the_jobs_own_nccl_says_whether_gpudirect_was_used(lines, rdma, verdict, said):
    check = by_id(judge(real(lines, **rdma)))["gpudirect.traffic"]

    assert check["verdict"] == verdict
    assert said in check["observed"]


def test_the_bridge_that_keeps_gpudirect_away_is_named():
    check = by_id(judge(real({"node1": DIRECT, "node2": STAGED}, node2=adapter("0000:a0:01.0"))))["gpudirect.traffic"]

    assert "ACS is on at 0000:a0:01.0 of node2" in check["cause"]


def test_a_port_that_the_job_was_not_shown_is_named_unless_the_inventory_leaves_it_out():
    port = {"number": 1, "state": "Active", "rate": 400, "link_layer": "InfiniBand"}
    devices = [{"name": f"mlx5_{number}", "software": False, "ports": [port]} for number in range(2)]
    shown = "gpu:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eno1:10.0.0.1<0>\n"
    found = real({"node1": shown + DIRECT, "node2": shown + DIRECT}, node1=adapter() | {"devices": devices})

    check = by_id(judge(found))["gpudirect.traffic"]
    left_out = by_id(judge(found | {"unused": {"node1": ["mlx5_1"]}}))["gpudirect.traffic"]

    assert (check["verdict"], left_out["verdict"]) == ("fail", "pass")
    assert check["observed"].endswith("none over mlx5_1:1 of node1")


def test_nodes_without_gpus_say_nothing_of_gpudirect():
    assert by_id(judge(real({}) | {"gpus": 0}))["gpudirect.traffic"]["verdict"] == "skip"


def test_data_that_all_goes_through_memory_is_an_error_where_gpudirect_is_required():
    found = real({"node1": DIRECT, "node2": STAGED})

    assert by_id(judge(found | {"required": True}))["gpudirect.traffic"]["verdict"] == "fail"
    assert by_id(judge(found))["gpudirect.traffic"]["verdict"] == "warn"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"device": "cpu"}, "made on cpu over nccl, the inventory declares 2 GPUs a node"),
        ({"backend": "gloo"}, "made on cuda over gloo, the inventory declares 2 GPUs a node"),
        ({"world": 2}, "made by 2 ranks, the inventory declares 4"),
    ],
)
def test_a_proof_of_something_else_than_the_inventory_declares_is_a_failure(change, why):
    found = real({"node1": DIRECT, "node2": DIRECT})
    found["nodes"]["node1"]["result"] |= change

    whole = by_id(judge(found))["result"]

    assert whole["verdict"] == "fail"
    assert why in whole["cause"]


@pytest.mark.parametrize(("program", "verdict"), [("abc", "pass"), ("", "fail"), ("abd", "fail")])
def test_a_result_of_another_program_than_this_releases_proves_nothing(program, verdict):
    found = evidence()
    found["nodes"]["node1"]["result"]["program"] = program

    whole = by_id(judge({**found, "release": "abc"}))["result"]

    assert whole["verdict"] == verdict
    assert ("another release" in whole["cause"]) is (verdict == "fail")


def test_a_simulated_result_is_no_proof_of_a_real_cluster():
    found = evidence() | {"simulated": []}

    whole = by_id(judge(found))["result"]

    assert whole["verdict"] == "fail"
    assert "gpu was simulated, the inventory says nothing" in whole["cause"]


def test_a_failed_step_names_rank_node_and_parameter():
    found = evidence(exit_code=3, state="FAILED")
    guilty = [{"rank": 1, "node": "node1", "parameter": "blocks.0.mix.weight", "detail": "differs"}]
    found["nodes"]["node1"]["result"]["steps"]["parameters"] = step("fail", guilty=guilty, digest="x")

    checks = by_id(judge(found))

    assert checks["parameters"]["verdict"] == "fail"
    assert checks["parameters"]["host"] == "node1"
    assert "rank 1 on node1, parameter blocks.0.mix.weight: differs" in checks["parameters"]["cause"]
    assert checks["result"]["verdict"] == "fail"
    assert "did not pass: parameters" in checks["result"]["cause"]


def test_a_step_that_accuses_ranks_of_two_machines_is_no_machines_check():
    found = evidence()
    guilty = [{"rank": rank, "node": f"node{1 + rank // 2}", "parameter": "", "detail": "differs"} for rank in (1, 2)]
    found["nodes"]["node1"]["result"]["steps"]["parameters"] = step("fail", guilty=guilty)
    for node in ("node1", "node2"):
        for one in found["nodes"][node]["records"]:
            one["outcomes"] = {"parameters": "fail"}

    check = by_id(judge(found))["parameters"]

    assert (check["verdict"], check["host"]) == ("fail", "")
    assert "rank 1 on node1: differs; rank 2 on node2: differs" in check["cause"]


def test_ranks_that_were_all_ended_without_a_word_give_no_cause_and_no_culprit():
    # NCCL's watchdog ends every rank while none of them waits: nothing tells who was first, or that it was the network.
    ended = [broken(rank, state="running", error=None, waiting="") for rank in range(4)]

    whole = by_id(judge(evidence(ended, exit_code=134, state="FAILED")))["result"]

    assert (whole["verdict"], whole["host"]) == ("fail", "")
    assert whole["cause"].startswith("every rank ended without a message: the first to fail is unknown")
    assert "network" not in whole["cause"]


def test_a_blind_negative_control_makes_the_whole_unknown():
    found = evidence()
    found["nodes"]["node1"]["result"]["steps"]["negative_control"] = step("unknown")

    checks = by_id(judge(found))

    assert checks["negative_control"]["verdict"] == "unknown"
    assert checks["result"]["verdict"] == "unknown"


def test_a_step_that_the_result_does_not_mention_is_unknown():
    found = evidence()
    del found["nodes"]["node1"]["result"]["steps"]["gradients"]

    assert by_id(judge(found))["gradients"]["verdict"] == "unknown"


def test_a_result_made_with_a_test_hook_is_never_accepted():
    found = evidence()
    found["nodes"]["node1"]["result"]["sabotage"] = "gradient"

    whole = by_id(judge(found))["result"]

    assert whole["verdict"] == "fail"
    assert "test hook 'gradient'" in whole["cause"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"exit_code": 1, "state": "FAILED"}, "the job failed although every step passed"),
        ({"id": "8"}, "it is of job 7, not of job 8"),
    ],
)
def test_a_result_that_slurm_contradicts_is_not_a_pass(change, why):
    whole = by_id(judge(evidence(**change)))["result"]

    assert whole["verdict"] == "fail"
    assert why in whole["cause"]


def test_a_rank_whose_own_record_disagrees_with_the_result_is_named():
    found = evidence()
    found["nodes"]["node2"]["records"][1]["parameters"] = "0123456789abcdef"

    whole = by_id(judge(found))["result"]

    assert whole["verdict"] == "fail"
    assert whole["host"] == "node2"
    assert "rank 3 on node2: recorded other parameters than the result says" in whole["cause"]


def test_the_result_of_an_earlier_run_does_not_count():
    found = evidence(run_id="r2")

    checks = by_id(judge(found))

    assert checks["result"]["verdict"] == "fail"
    assert checks["identity"]["verdict"] == "unknown"


def test_a_job_that_never_started_is_unknown_with_slurms_reason():
    found = evidence([], state="PENDING", reason="ReqNodeNotAvail,_UnavailableNodes:node2", exit_code=None)

    checks = judge(found)

    assert {check["verdict"] for check in checks if check["id"] not in ("ddp.nodes", "gpudirect.traffic")} == {
        "unknown"
    }
    assert "job 7 PENDING: ReqNodeNotAvail,_UnavailableNodes:node2" in by_id(checks)["result"]["observed"]


def test_a_refused_submission_is_unknown_with_what_sbatch_said():
    said = "sbatch: error: invalid partition specified: gpu"
    for job, complaint in ((None, said), ({"id": "", "reason": said}, "")):
        found = evidence_from(job, complaint, {"node1": ""}, Wants(EXPECTED, 2, ["gpu"]), {}, "/d")

        whole = by_id([check.as_dict() for check in ddp.checks(PLAN, [found])])["result"]

        assert whole["verdict"] == "unknown"
        assert "invalid partition" in whole["observed"]


def test_a_broken_job_shows_the_guilty_ranks_last_words_and_not_a_victims():
    dead = record(3, state="running", step="parameters", waiting="training step 10", calls=190, parameters=None)
    found = evidence([broken(0), broken(1), broken(2), dead], exit_code=1, state="FAILED")

    whole = by_id(judge(found))["result"]

    assert whole["verdict"] == "fail"
    assert whole["host"] == "node2"
    assert "rank 3 on node2: died without a message in step parameters" in whole["cause"]
    assert "last words of rank 3" in whole["cause"]


def test_all_done_without_a_result_accuses_rank_0():
    found = evidence([record(rank) for rank in range(4)])

    assert "rank 0 on node1: finished, and wrote no result.json" in by_id(judge(found))["result"]["cause"]


def test_a_known_line_in_a_log_gives_cause_and_fix():
    found = evidence([], exit_code=125, state="FAILED")
    found["nodes"]["node2"]["node_log"] = ["Error: registry/ddp@sha256:00: image not known"]

    whole = by_id(judge(found))["result"]

    assert "image is not in this node's image store" in whole["cause"]
    assert whole["fix"].startswith("clusterctl provision")


def test_a_job_beyond_its_time_limit_says_so():
    waiting = [broken(rank, state="running", error=None) for rank in range(4)]

    whole = by_id(judge(evidence(waiting, state="TIMEOUT", exit_code=None)))["result"]

    assert "time limit" in whole["cause"]


def who_broke(records: list[dict[str, Any]]) -> list[Accused]:
    return who_broke_of([Record.model_validate(one) for one in records], EXPECTED)


OWN = {"kind": "own", "text": "OutOfMemoryError: CUDA out of memory"}


@pytest.mark.parametrize(
    ("changed", "guilty", "why"),
    [
        ({2: {"error": OWN, "waiting": ""}}, [2], "failed in step parameters: OutOfMemoryError"),
        ({1: {"state": "running", "error": None, "waiting": ""}}, [1], "died without a message"),
        ({1: {"state": "running", "error": None}}, [1], "died without a message"),
        ({0: {"state": "terminated", "error": None, "waiting": ""}}, [0], "busy elsewhere"),
        ({3: {"waiting": "broadcast"}}, [3], "was in 'broadcast', the others in 'training step 25'"),
        ({2: {"waiting": "all_reduce"}, 3: {"waiting": "all_reduce"}}, [0, 1, 2, 3], "out of step"),
        ({}, [], ""),
    ],
    ids=["own error", "killed", "killed while waiting", "asleep", "other collective", "split", "network"],
)
def test_the_culprit_is_told_from_its_victims(changed, guilty, why):
    records = [broken(rank, **changed.get(rank, {})) for rank in range(4)]

    found = who_broke(records)

    assert [accused.rank for accused in found] == guilty
    assert all(why in accused.detail for accused in found), found


def test_a_node_whose_ranks_left_no_record_is_named():
    found = who_broke([broken(0), broken(1), broken(2)])

    assert [(accused.rank, accused.node) for accused in found] == [(None, "node2")]
    assert "1 of 2 ranks" in found[0].detail


def test_nodes_that_each_ran_a_job_of_their_own_are_found():
    apart = [record(0), record(1), record(0, node="node2"), record(1, node="node2")]

    found = who_broke(apart)

    assert [(accused.rank, accused.node) for accused in found] == [
        (0, "node1"),
        (0, "node2"),
        (1, "node1"),
        (1, "node2"),
    ]
    assert "separate jobs" in found[0].detail


FIXTURES = (
    "RuntimeError: Gloo connectFullMesh failed with [pair.cc:144] timeout, remote=[127.0.1.1]:34567",
    "RuntimeError: Gloo connectFullMesh failed with [pair.cc:1022] Connection refused, remote=[10.0.0.12]:3456",
    "RuntimeError: Gloo connectFullMesh failed with [pair.cc:144] timed out connecting: SO_ERROR: Connection timed out",
    "srun: error: Task launch for StepId=9.0 failed on node node2: Communication connection failure",
    "[E socket.cpp] port: 29500, useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use",
    "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect",
    "[W socket.cpp:456] cannot be retrieved (gai error: -2 - Name or service not known).",
    "Error: head:5000/clusterctl/ddp@sha256:0: image not known",
    "OSError: [Errno 28] No space left on device",
    "slurmstepd-node1: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
    "torch.AcceleratorError: CUDA error: invalid device ordinal",
    "RuntimeError: No CUDA GPUs are available",
    "srun: error: Unable to create step for job 123: More processors requested than permitted",
)


@pytest.mark.parametrize(("number", "line"), list(enumerate(FIXTURES)), ids=lambda value: str(value)[:20])
def test_each_known_log_line_leads_to_its_own_cause(number, line):
    assert cause_in([["a healthy line", line]]) == LOG_CAUSES[number][1:]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("node2 resolves to 127.0.1.1 on itself: the other nodes could not connect to it", "loopback"),
        ("Gloo connectFullMesh failed with [pair.cc:144] no error", "firewall"),
        ("Gloo connectFullMesh failed with [pair.cc:144] timed out connecting: No route to host", "firewall"),
    ],
)
def test_a_firewall_is_not_taken_for_a_name_that_leads_to_loopback(line, cause):
    assert cause in cause_in([[line]])[0]


def test_an_error_of_cuda_is_told_without_its_advice_for_programmers():
    # c10/cuda/CUDAException.cpp of PyTorch 2.11, as an H200 had it said.
    lines = [
        "[rank1]: torch.AcceleratorError: CUDA error: invalid device ordinal",
        "[rank1]: GPU device may be out of range, do you have enough GPUs?",
        "[rank1]: Search for `cudaErrorInvalidDevice' in https://docs.nvidia.com/cuda/ for more information.",
        "[rank1]: CUDA kernel errors might be asynchronously reported at some other API call.",
        "[rank1]: For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
        "[rank1]: Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
        "[rank1]: ",
    ]

    assert last_words([lines]) == " | ".join(lines[:2])
    failed = {"kind": "own", "text": " ".join(line.removeprefix("[rank1]: ") for line in lines[:6])}
    (found,) = who_broke([record(0), broken(1, error=failed)])
    assert found.detail.endswith("invalid device ordinal GPU device may be out of range, do you have enough GPUs?")


def test_healthy_logs_lead_to_no_cause():
    healthy = [
        "identity          pass     4 ranks",
        "FutureWarning: `torch.distributed.reduce_scatter_tensor` is deprecated",
        "NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>",
    ]

    assert cause_in([healthy]) == ("", "")
    assert len(FIXTURES) == len(LOG_CAUSES)
