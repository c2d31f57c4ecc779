"""The DDP job through Slurm, on a provisioned lab: faults on the other machine come back as names."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import labs
import pytest
from labs import Lab, docker

from provision.judge import ddp
from provision.judge.ddp_evidence import Wants, documents, evidence_from
from provision.judge.ddp_plan import Job, Plan

DIRECTORY = "/var/lib/clusterctl/ddp"
RUNS = f"{DIRECTORY}/runs/grace"
EXPECTED = {"node1": 2, "node2": 2}
PLAN = Plan([Job(EXPECTED, 2, "")])


def submit(lab: Lab, *options: str) -> dict[str, Any]:
    """Run the job as the role does; return what ddp_submit.py said of it."""
    jobs = json.dumps([job.as_dict() for job in PLAN.jobs])
    fixed = ["--container=slurmctld", f"--user={labs.PROVES}", f"--runs={RUNS}", f"--jobs={jobs}"]
    limits = ["--start-timeout=60", "--run-timeout=300"]
    command = [f"{DIRECTORY}/ddp_submit.py", f"--script={DIRECTORY}/ddp_job.sh", *fixed, *limits, *options]
    [document] = documents(docker("exec", lab.container("head"), *command))
    return dict(document)


def collected(lab: Lab, node: str, job: dict[str, Any]) -> str:
    """Return what the collector prints on a node."""
    words = [RUNS, job["run_id"], job["id"], labs.PROVES.partition(":")[0]]
    return docker("exec", lab.container(node), f"{DIRECTORY}/ddp_collect.py", *words)


def verdict(lab: Lab, job: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Collect from the machines and judge, as the role does; return the checks by name."""
    left = {node: collected(lab, node, job) for node in EXPECTED}
    found = evidence_from(job, "", left, Wants(EXPECTED, 2, ["gpu"]), {}, RUNS)
    return {check.id.removeprefix("ddp."): check.as_dict() for check in ddp.checks(PLAN, [found])}


def left_over(lab: Lab, job: dict[str, Any]) -> list[str]:
    """Return what of the job is still on the compute machines: processes, and the storage of its containers.

    Slurm's Epilog clears up after the job has been reported as ended; it gets ten seconds for that.
    """
    found: list[str] = ["not looked yet"]
    deadline = time.monotonic() + 10
    while found and time.monotonic() < deadline:
        found = list(remains(lab, job["id"]))
    return found


def remains(lab: Lab, number: str) -> Iterator[str]:
    """Yield what is there of the job right now."""
    for node in EXPECTED:
        listed = docker("exec", lab.container(node), "ps", "-eo", "user,args")
        yield from (line for line in listed.splitlines() if "ddp_proof" in line or "conmon" in line)
        stored = docker("exec", lab.container(node), "ls", "/var/lib/clusterctl/jobs").split()
        yield from (f"{node}: storage of job {number}" for found in stored if found == number)


@pytest.mark.night
def test_a_corrupted_gradient_on_the_other_machine_is_named_through_slurm(provisioned_lab: Lab) -> None:
    job = submit(provisioned_lab, "--env", "DDP_PROOF_SABOTAGE=gradient", "--env", "DDP_PROOF_SABOTAGE_RANK=3")

    checks = verdict(provisioned_lab, job)
    records = json.loads(collected(provisioned_lab, "node2", job))
    own = {record["rank"] for record in records["records"]}
    guilty = "node2" if 3 in own else "node1"

    assert checks["parameters"]["verdict"] == "fail"
    assert f"rank 3 on {guilty}, parameter token.weight" in checks["parameters"]["cause"]
    assert job["exit_code"] != 0
    assert all(check["simulated"] for name, check in checks.items() if name != "nodes")
    assert left_over(provisioned_lab, job) == []


def test_a_rank_that_is_killed_is_named_and_nothing_stays_behind(provisioned_lab: Lab) -> None:
    lab = provisioned_lab
    printed: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: printed.append(submit(lab)))

    waiting.start()
    kill_a_rank(lab, "node2")
    waiting.join(timeout=300)
    checks = verdict(lab, printed[0])

    assert checks["result"]["verdict"] == "fail"
    assert checks["result"]["host"] == "node2"
    assert "died without a word" in checks["result"]["cause"]
    assert checks["parameters"]["verdict"] == "unknown"
    assert left_over(lab, printed[0]) == []


def kill_a_rank(lab: Lab, node: str) -> None:
    """Kill one rank with SIGKILL once it has met the others."""
    find = (
        f'cd {RUNS} && cd "$(ls -td 2*/ | head -n 1)" && grep -l \'"state": "running"\' rank-*.json '
        '| xargs grep -lE \'"step": "(collectives|broadcast|gradients|parameters)"\' | head -n 1'
    )
    deadline = time.monotonic() + 120
    while not docker("exec", lab.container(node), "sh", "-c", find, check=False):
        if time.monotonic() > deadline:
            pytest.fail("no rank came as far as its collectives")
        time.sleep(0.5)
    docker(
        "exec", lab.container(node), "sh", "-c", "kill -KILL $(pgrep -f '^[^ ]*python3.* -m ddp_proof ' | tail -n 1)"
    )
