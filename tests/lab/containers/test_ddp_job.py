"""The DDP job through Slurm, on a provisioned lab: faults on the other machine come back as names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import labs
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
    limits = [f"--start-timeout={labs.PATIENCE:g}", f"--run-timeout={3 * labs.PATIENCE:g}"]
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


def remains(lab: Lab, number: str) -> Iterator[str]:
    """Yield what of the job is on the compute machines right now: processes, and the storage of its containers."""
    for node in EXPECTED:
        listed = docker("exec", lab.container(node), "ps", "-eo", "user,args")
        yield from (line for line in listed.splitlines() if "ddp_proof" in line or "conmon" in line)
        stored = docker("exec", lab.container(node), "ls", "/var/lib/clusterctl/jobs").split()
        yield from (f"{node}: storage of job {number}" for found in stored if found == number)


def test_a_rank_that_dies_is_named_and_nothing_stays_behind(provisioned_lab: Lab) -> None:
    lab = provisioned_lab
    job = submit(lab, "--env", "DDP_PROOF_SABOTAGE=exit", "--env", "DDP_PROOF_SABOTAGE_RANK=3")

    checks = verdict(lab, job)
    own = {record["rank"] for record in json.loads(collected(lab, "node2", job))["records"]}

    assert checks["result"]["verdict"] == "fail"
    assert checks["result"]["host"] == ("node2" if 3 in own else "node1")
    assert "died without a message" in checks["result"]["cause"]
    assert checks["parameters"]["verdict"] == "unknown"
    # Slurm's Epilog clears up after the job has been reported as ended.
    labs.until(lambda: not list(remains(lab, job["id"])), lambda: "\n".join(remains(lab, job["id"])))
