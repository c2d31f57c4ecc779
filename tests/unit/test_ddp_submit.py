"""The script that submits the DDP job, against a stand-in for the engine that holds Slurm's commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from waiting import PATIENCE, until

from provision import content

FILES = content.ROOT / "roles" / "ddp_validation" / "files"

# docker exec --interactive --user U [--env X]... CONTAINER COMMAND...: answers as Slurm would, from files beside it.
ENGINE = """\
#!/bin/sh
here=$(dirname "$0")
echo "$@" >>"$here/calls"
for word in $(cat "$here/slow" 2>/dev/null); do case " $* " in *" $word "*) exec sleep 600 ;; esac; done
case "$*" in
*" sbatch "*) cat >"$here/script"; cat "$here/sbatch.out"; exit "$(cat "$here/sbatch.code")" ;;
*" scontrol "*) cat "$here/job" ;;
*" sinfo "*) echo "node2 drained: disk replaced" ;;
esac
"""


class Engine:
    """A directory with a program named docker, and what it answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: list[dict[str, Any]] = [{"expect": {"node1": 2, "node2": 2}, "gpus": 2, "partition": ""}]
        program = folder / "docker"
        program.write_text(ENGINE)
        program.chmod(0o755)
        (folder / "job.sh").write_text("#!/bin/bash\nsrun true\n")
        self.answers(sbatch="42\n", code=0, job="JobId=42 JobState=COMPLETED Reason=None ExitCode=0:0")

    def answers(self, *, sbatch: str = "42\n", code: int = 0, job: str = "") -> None:
        (self.folder / "sbatch.out").write_text(sbatch)
        (self.folder / "sbatch.code").write_text(str(code))
        (self.folder / "job").write_text(job)

    @property
    def calls(self) -> str:
        path = self.folder / "calls"
        return path.read_text() if path.exists() else ""

    def start(self, **options: str) -> subprocess.Popen[str]:
        settings = {"start-timeout": "600", "run-timeout": "600"} | options
        return subprocess.Popen(
            [
                sys.executable,
                str(FILES / "ddp_submit.py"),
                f"--script={self.folder / 'job.sh'}",
                "--container=slurmctld",
                "--user=64031:64031",
                "--runs=/runs/slurmtest",
                f"--jobs={json.dumps(self.jobs)}",
                *(f"--{name}={value}" for name, value in settings.items()),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"},
        )

    def run(self, **options: str) -> dict[str, object]:
        out, err = self.start(**options).communicate(timeout=PATIENCE)
        assert out, err
        [document] = json.loads(out)["jobs"]
        return dict(document)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path)


def test_the_job_is_submitted_as_the_ordinary_user_for_exactly_the_declared_nodes(engine):
    document = engine.run()

    sbatch = next(line for line in engine.calls.splitlines() if " sbatch " in line)
    assert "--user 64031:64031" in sbatch
    assert "--nodes=2 --nodelist=node1,node2" in sbatch
    assert "--gres=gpu:2" in sbatch
    assert "--output=/runs/slurmtest/job-%j.log" in sbatch
    assert "--partition" not in sbatch
    assert f"DDP_RUN_ID={document['run_id']}" in sbatch
    assert "DDP_EXPECT=node1=2,node2=2" in sbatch
    assert (engine.folder / "script").read_text().endswith("srun true\n")


def test_a_cluster_without_gpus_asks_for_none(engine):
    engine.jobs[0]["gpus"] = 0

    engine.run()

    assert "--gres" not in engine.calls


def test_nodes_without_a_common_partition_have_jobs_of_their_own_at_the_same_time(engine):
    engine.jobs = [
        {"expect": {"node1": 2}, "gpus": 2, "partition": "a"},
        {"expect": {"node2": 1}, "gpus": 0, "partition": "b"},
    ]

    out, _ = engine.start().communicate(timeout=PATIENCE)

    first, second = [line for line in engine.calls.splitlines() if " sbatch " in line]
    assert "--nodelist=node1 " in first
    assert "--partition=a" in first
    assert "--nodelist=node2 " in second
    assert "--partition=b" in second
    assert [document["state"] for document in json.loads(out)["jobs"]] == ["COMPLETED", "COMPLETED"]


@pytest.mark.parametrize(
    ("said", "state", "code"),
    [
        ("JobState=COMPLETED Reason=None ExitCode=0:0", "COMPLETED", 0),
        ("JobState=FAILED Reason=NonZeroExitCode ExitCode=3:0", "FAILED", 3),
        ("JobState=FAILED Reason=RaisedSignal:9 ExitCode=0:9", "FAILED", 137),
        ("JobState=CANCELLED Reason=None ExitCode=0:15", "CANCELLED", 143),
        ("JobState=NODE_FAIL Reason=NodeDown ExitCode=1:0", "NODE_FAIL", 1),
    ],
)
def test_slurms_word_on_the_end_is_passed_on(engine, said, state, code):
    engine.answers(job=f"JobId=42 {said} StartTime=2026-01-01T00:00:00")

    document = engine.run()

    assert (document["id"], document["state"], document["exit_code"]) == ("42", state, code)


def test_a_job_that_does_not_start_is_cancelled_and_the_drained_node_is_named(engine):
    engine.answers(job="JobId=42 JobState=PENDING Reason=Resources ExitCode=0:0")

    document = engine.run(**{"start-timeout": "0.5"})

    assert document["state"] == "PENDING"
    assert document["exit_code"] is None
    assert document["reason"] == "Resources"
    assert document["out"] == ["node2 drained: disk replaced"]
    assert "scancel 42" in engine.calls


@pytest.mark.parametrize(
    "reason",
    [
        "ReqNodeNotAvail,_UnavailableNodes:node2",
        pytest.param("launch_failed_requeued_held", marks=pytest.mark.slow),
    ],
)
def test_a_job_that_no_waiting_would_start_is_reported_at_once(engine, reason):
    engine.answers(job=f"JobId=42 JobState=PENDING Reason={reason} ExitCode=0:0")

    document = engine.run()

    assert document["reason"] == reason
    assert "scancel 42" in engine.calls


def test_a_slurmctld_that_takes_a_job_and_does_not_say_so_keeps_no_node(engine):
    (engine.folder / "slow").write_text("sbatch")

    document = engine.run(**{"answer-timeout": "1"})

    assert document["id"] == ""
    assert document["reason"].startswith(
        "sbatch did not answer within 1 s; a job that was taken all the same is cancelled"
    )
    assert f"scancel --name=clusterctl-ddp-{document['run_id']}" in engine.calls


@pytest.mark.slow
def test_a_slurmctld_that_falls_silent_does_not_keep_us_and_the_job_is_not_forgotten(engine):
    (engine.folder / "slow").write_text("scontrol scancel sinfo")

    document = engine.run(**{"answer-timeout": "1", "start-timeout": "1"})

    assert "scontrol did not answer within 1 s; it could not be cancelled: scancel 42" in document["reason"]


def test_a_job_that_does_not_end_is_cancelled_and_called_a_timeout(engine):
    engine.answers(job="JobId=42 JobState=RUNNING Reason=None ExitCode=0:0")

    document = engine.run(**{"run-timeout": "0.5"})

    assert document["state"] == "TIMEOUT"
    assert "scancel 42" in engine.calls


def test_a_launch_that_a_node_never_confirms_is_no_running_job_and_costs_the_wait_for_a_start(engine):
    engine.answers(job="JobId=42 JobState=COMPLETING Reason=None Restarts=1 ExitCode=0:0")

    document = engine.run(**{"start-timeout": "1"})

    assert (document["state"], document["exit_code"], document["waited"]) == ("COMPLETING", None, 0)
    assert document["reason"].startswith("COMPLETING for ")
    assert "scancel 42" in engine.calls


def test_a_job_that_ran_and_whose_nodes_do_not_clear_up_is_waited_for_so_long_and_no_longer(engine):
    engine.answers(job="JobId=42 JobState=RUNNING Reason=None ExitCode=0:0")
    process = engine.start(**{"clear-timeout": "1"})
    # The second question is asked when the first one's answer has been read.
    until(lambda: engine.calls.count("scontrol") >= 2)
    engine.answers(job="JobId=42 JobState=COMPLETING Reason=None ExitCode=0:0")

    [document] = json.loads(process.communicate(timeout=PATIENCE)[0])["jobs"]

    assert document["state"] == "TIMEOUT"
    assert document["reason"].startswith("COMPLETING for ")
    assert "scancel 42" in engine.calls


def test_a_refusal_carries_what_sbatch_said(engine):
    engine.answers(sbatch="sbatch: error: invalid partition specified: gpu\n", code=1)

    document = engine.run()

    assert document["id"] == ""
    assert document["reason"] == "sbatch: error: invalid partition specified: gpu"


def test_stopping_the_wait_cancels_the_job(engine):
    engine.answers(job="JobId=42 JobState=RUNNING Reason=None ExitCode=0:0")
    process = engine.start()
    until(lambda: "scontrol" in engine.calls)

    process.send_signal(signal.SIGTERM)

    assert process.wait(timeout=PATIENCE) == 128 + signal.SIGTERM
    assert "scancel 42" in engine.calls
    process.communicate()


def test_how_far_the_job_is_is_told_on_standard_error_and_the_document_stays_the_only_output(engine):
    engine.answers(job="JobId=42 JobState=RUNNING Reason=None Comment=identity=pass,step=collectives ExitCode=0:0")
    process = engine.start()

    assert process.stderr.readline() == "clusterctl-told: ended job 42: A who takes part: pass\n"
    assert process.stderr.readline() == "clusterctl-told: going job 42: B collectives\n"
    engine.answers(job="JobId=42 JobState=COMPLETED Reason=None ExitCode=0:0")
    out, _ = process.communicate(timeout=PATIENCE)
    assert [job["state"] for job in json.loads(out)["jobs"]] == ["COMPLETED"]
