"""The DDP proof itself, with real ranks that talk over gloo on this computer: it passes, and it can fail.

Each fault is put in by the program's own test hook on rank 1, and goes all the way to the verdict: the records are
collected and judged as those of a cluster are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from worker import free_port

from provision import content
from provision.judge import ddp
from provision.judge.ddp_evidence import Wants, evidence_from
from provision.judge.ddp_figures import training
from provision.judge.ddp_plan import Job, Plan

FILES = content.ROOT / "roles" / "ddp_validation" / "files"
sys.path.insert(0, str(FILES))
from ddp_proof import release  # noqa: E402 - it lies where the line above points to

RELEASE = release.digest({path.stem: path.read_text(encoding="utf-8") for path in (FILES / "ddp_proof").glob("*.py")})

#: A model of one small layer: what is proven here is the program, and imports take most of the time anyway.
SMALL = ("--layers", "1", "--width", "64", "--steps", "30", "--largest-bytes", "65536", "--timeout", "6")


def rarely(*values: Any) -> Any:
    """Mark a case of which another one shows the same in the routine: the judge is the same for all ranks."""
    return pytest.param(*values, marks=pytest.mark.night)


TWO = {"node1": 1, "node2": 1}
THREE = {"node1": 2, "node2": 1}


@pytest.fixture(scope="session")
def starter(torch_python: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has imported PyTorch and starts ranks, because importing it costs more than a whole proof."""
    command = [str(torch_python), str(Path(__file__).with_name("ddp_ranks.py")), str(FILES)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


class Trial:
    """Ranks on this computer, one directory for each machine they pretend to be on."""

    def __init__(self, starter: subprocess.Popen[str], folder: Path) -> None:
        self.starter = starter
        self.folder = folder
        self.training: dict[str, Any] = {}

    def run(
        self,
        *options: str,
        nodes: dict[str, int] | None = None,
        expect: dict[str, int] | None = None,
        **environment: str,
    ) -> dict[str, dict[str, Any]]:
        """Run the ranks as torchrun and srun would, ending all when one fails; return the verdict's checks by name."""
        nodes = nodes or {"node1": 2}
        expect = expect or nodes
        port = free_port()
        world = str(sum(nodes.values()))
        common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
        fixed = ["--run-id", "r1", "--expect", ",".join(f"{node}={count}" for node, count in expect.items())]
        ranks: list[dict[str, Any]] = []
        for node, count in nodes.items():
            for local in range(count):
                mine = {"RANK": str(len(ranks)), "LOCAL_RANK": str(local), "SLURMD_NODENAME": node, "SLURM_JOB_ID": "7"}
                arguments = ["--out", str(self.folder / node / "r1"), *fixed, "--device", "cpu", *SMALL, *options]
                ranks.append({"environment": common | mine | environment, "arguments": arguments})
        self.starter.stdin.write(json.dumps(ranks) + "\n")
        self.starter.stdin.flush()
        code = int(self.starter.stdout.readline())
        return self.verdict(expect, code, environment.get("CLUSTER_SIMULATED", ""))

    def verdict(self, expected: dict[str, int], code: int, simulated: str) -> dict[str, dict[str, Any]]:
        """Collect and judge, as the role does."""
        slurm = {"run_id": "r1", "id": "7", "state": "FAILED" if code else "COMPLETED", "exit_code": code}
        left = {}
        for node in expected:
            words = [str(self.folder / node), "r1", "7", str(os.getuid())]
            command = [sys.executable, str(FILES / "ddp_collect.py"), *words]
            left[node] = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        words = [word for word in simulated.split(",") if word]
        gpus = next(iter(expected.values())) if words else 0
        wants = Wants(expected, gpus, words, release=RELEASE)
        found = evidence_from(slurm, "", left, wants, {}, str(self.folder))
        self.training = training(found)
        checks = ddp.checks(Plan([Job(expected, gpus, "")]), [found])
        return {check.id.removeprefix("ddp."): check.as_dict() for check in checks}


@pytest.fixture
def trial(starter: subprocess.Popen[str], tmp_path: Path) -> Trial:
    return Trial(starter, tmp_path)


def bad(checks: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: check["verdict"] for name, check in checks.items() if check["verdict"] not in ("pass", "skip")}


def test_four_ranks_on_two_machines_prove_every_step_and_mark_what_is_simulated(trial):
    checks = trial.run(nodes={"node1": 2, "node2": 2}, CLUSTER_SIMULATED="gpu", CUDA_VISIBLE_DEVICES="0,1")

    assert bad(checks) == {}
    assert all(check["simulated"] for name, check in checks.items() if name != "nodes")
    assert "4 distinct simulated GPUs" in checks["identity"]["observed"]
    assert "simulated" in checks["speed"]["observed"]
    # What a report draws comes with it.
    told = trial.training
    assert len(told["losses"]) == len(told["reference"]) == 30
    assert all(abs(one - other) < 1e-3 for one, other in zip(told["losses"], told["reference"], strict=True))
    assert told["gradient_difference"] < 1e-5
    assert [rank["node"] for rank in told["ranks"]] == ["node1", "node1", "node2", "node2"]
    assert all(0 < rank["own"] < rank["p50"] <= rank["p95"] for rank in told["ranks"])


def test_one_rank_alone_compares_with_nobody_and_still_learns(trial):
    checks = trial.run(nodes={"node1": 1})

    assert bad(checks) == {}
    assert {checks[name]["verdict"] for name in ("collectives", "gradients", "parameters")} == {"skip"}
    assert checks["learning"]["verdict"] == "pass"


@pytest.mark.parametrize("rank", [rarely(0), 1])
def test_one_element_of_one_gradient_names_the_rank_and_the_parameter(trial, rank):
    checks = trial.run(DDP_PROOF_SABOTAGE="gradient", DDP_PROOF_SABOTAGE_RANK=str(rank))

    # Two ranks are no majority: the reference of one process tells who is right.
    assert bad(checks) == {"parameters": "fail", "result": "fail"}
    assert f"rank {rank} on node1, parameter token.weight" in checks["parameters"]["cause"]
    assert f"rank {1 - rank}" not in checks["parameters"]["cause"]


@pytest.mark.parametrize(("rank", "node"), [(0, "node1"), rarely(2, "node2")])
def test_the_majority_decides_who_is_wrong_where_there_is_one(trial, rank, node):
    checks = trial.run(nodes=THREE, DDP_PROOF_SABOTAGE="gradient", DDP_PROOF_SABOTAGE_RANK=str(rank))

    assert checks["parameters"]["host"] == node
    assert f"rank {rank} on {node}, parameter token.weight" in checks["parameters"]["cause"]


@pytest.mark.parametrize(
    ("sabotage", "rank", "failing", "told"),
    [
        ("no_result", 1, "result", "rank 0 on node1: finished, and wrote no result.json"),
        ("exit", 1, "result", "rank 1 on node1: died without a message in step parameters"),
        rarely("exit", 0, "result", "rank 0 on node1: died without a message in step parameters"),
        rarely("sleep", 1, "result", "rank 1 on node1: was busy elsewhere in step parameters"),
        ("sleep", 0, "result", "rank 0 on node1: was busy elsewhere in step parameters"),
        ("wrong_collective", 1, "result", "rank 1 on node1: was in 'broadcast torch.float32 1'"),
        rarely(
            "nan_gradient", 0, "gradients", "rank 0 on node1, parameter head.bias: its own gradient is not a number"
        ),
        ("nan_gradient", 1, "gradients", "rank 1 on node1, parameter head.bias: its own gradient is not a number"),
    ],
)
def test_a_fault_is_caught_and_blamed_on_its_rank(trial, sabotage, rank, failing, told):
    checks = trial.run(DDP_PROOF_SABOTAGE=sabotage, DDP_PROOF_SABOTAGE_RANK=str(rank))

    assert checks[failing]["verdict"] == "fail"
    assert told in checks[failing]["cause"]
    assert checks["result"]["verdict"] == "fail"


@pytest.mark.parametrize("rank", [rarely(0), 1])
@pytest.mark.parametrize(
    ("sabotage", "failing", "told"),
    [
        ("wrong_value", "collectives", "in what one sends and the other receives"),
        ("wrong_receive", "collectives", "in what one sends and the other receives"),
        ("local_gradient", "gradients", "in the averaged gradient of token.weight"),
        ("odd_version", "identity", "in versions: torch"),
    ],
)
def test_of_two_machines_neither_is_guilty_and_both_are_named(trial, sabotage, failing, told, rank):
    checks = trial.run(nodes=TWO, DDP_PROOF_SABOTAGE=sabotage, DDP_PROOF_SABOTAGE_RANK=str(rank))

    assert (checks[failing]["verdict"], checks[failing]["host"]) == ("fail", "")
    assert f"node1 and node2 differ {told}" in checks[failing]["cause"]
    assert "two machines cannot tell who is wrong" in checks[failing]["cause"]


@pytest.mark.parametrize(("rank", "node"), [rarely(0, "node1"), rarely(1, "node1"), (2, "node2")])
@pytest.mark.parametrize(
    ("sabotage", "failing", "told"),
    [
        ("wrong_value", "collectives", "wrong numbers in all_reduce"),
        # What is found is as with two machines; whom a majority blames, the others show.
        rarely("wrong_receive", "collectives", "wrong numbers in all_reduce"),
        ("local_gradient", "gradients", "its gradient differs"),
        rarely("odd_version", "identity", "versions differ"),
    ],
)
def test_of_three_ranks_the_bad_one_is_named_and_no_other(trial, sabotage, failing, told, rank, node):
    checks = trial.run(nodes=THREE, DDP_PROOF_SABOTAGE=sabotage, DDP_PROOF_SABOTAGE_RANK=str(rank))

    cause = checks[failing]["cause"]
    assert (checks[failing]["verdict"], checks[failing]["host"]) == ("fail", node)
    assert f"rank {rank} on {node}" in cause
    assert told in cause
    assert not any(f"rank {other} on" in cause for other in range(3) if other != rank)


def test_ranks_that_see_the_same_data_are_named_and_none_is_blamed(trial):
    checks = trial.run(nodes=TWO, DDP_PROOF_SABOTAGE="same_data")

    assert (checks["gradients"]["verdict"], checks["gradients"]["host"]) == ("fail", "")
    assert "ranks 0, 1 have the same local gradient" in checks["gradients"]["cause"]


@pytest.mark.parametrize(("rank", "node"), [(0, "node1"), rarely(2, "node2")])
def test_a_mean_that_is_wrong_alike_everywhere_is_found_by_the_second_path_and_blamed(trial, rank, node):
    checks = trial.run(nodes=THREE, DDP_PROOF_SABOTAGE="half_gradient", DDP_PROOF_SABOTAGE_RANK=str(rank))

    assert checks["gradients"]["verdict"] == "fail"
    assert checks["gradients"]["host"] == node
    assert "largest relative error" in checks["gradients"]["observed"]


def test_a_blind_check_is_found_by_the_negative_control_and_nothing_is_proven(trial):
    checks = trial.run(DDP_PROOF_SABOTAGE="blind_check")

    assert checks["negative_control"]["verdict"] == "unknown"
    assert checks["parameters"]["verdict"] == "pass"
    assert checks["result"]["verdict"] == "fail"


def test_a_reference_that_takes_longer_than_anybody_waits_gives_signs_of_life(trial):
    checks = trial.run("--timeout", "2", "--batch", "64", "--steps", "40", nodes={"node1": 4})

    assert bad(checks) == {}


def test_ranks_that_fall_back_to_the_cpu_are_named_where_gpus_are_expected(trial):
    checks = trial.run("--device", "cuda", DDP_PROOF_SABOTAGE="cpu_fallback")

    assert checks["identity"]["verdict"] == "fail"
    assert "rank 0 on node1: works on cpu, not on cuda" in checks["identity"]["cause"]
    assert "not reached" in checks["gradients"]["observed"]


def test_a_job_with_too_few_ranks_says_which_node_is_missing(trial):
    checks = trial.run(expect={"node1": 2, "node2": 2})

    assert checks["identity"]["verdict"] == "fail"
    assert "node node2: 0 ranks, expected 2" in checks["identity"]["cause"]


@pytest.mark.parametrize(
    ("granted", "told"),
    [("0,0", "rank 1 on node1: shares simulated:node1:0"), ("0", "rank 1 on node1: no GPU was granted for it")],
)
def test_two_ranks_on_one_gpu_are_named(trial, granted, told):
    checks = trial.run(CLUSTER_SIMULATED="gpu", CUDA_VISIBLE_DEVICES=granted)

    assert checks["identity"]["verdict"] == "fail"
    assert told in checks["identity"]["cause"]


def test_a_gpu_that_slurm_did_not_grant_is_named(trial):
    environment = {"CLUSTER_SIMULATED": "gpu", "CUDA_VISIBLE_DEVICES": "0,1"}

    checks = trial.run(DDP_PROOF_GRANTED="simulated:node1:0", **environment)

    assert checks["identity"]["verdict"] == "fail"
    assert "rank 1 on node1: uses simulated:node1:1, which Slurm did not grant" in checks["identity"]["cause"]
