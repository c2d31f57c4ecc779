"""seff: a user's own jobs, in the words of Slurm's seff, from Slurm's own JSON; what was not measured is never 0."""

from __future__ import annotations

import base64
import copy
import gzip
import json
import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provision import job_seff

HERE = Path(__file__).with_name("fixtures") / "job_use"
#: What ``sacct --json`` of Slurm 24.11.5 printed: of a job that has ended, one that runs, and one that waits.
JOBS = {job["job_id"]: job for job in json.loads((HERE / "sacct.json").read_text(encoding="utf-8"))["jobs"]}
ENDED, RUNS, WAITS = JOBS.values()
ME = pwd.getpwuid(os.getuid()).pw_name

Slurm = Callable[..., None]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """Slurm's commands: what sacct prints, what scontrol does, and how sacctmgr calls the user."""

    def commands(
        jobs: list[dict[str, Any]] | None, known: str = "", level: str = "None", failed: str = "no database"
    ) -> None:
        scripts = {"scontrol": f"cat <<'EOF'\n{known}\nEOF", "sacctmgr": f"echo {level}"}
        scripts["sacct"] = f"cat {tmp_path}/jobs" if jobs is not None else f"echo 'sacct: error: {failed}' >&2; exit 1"
        (tmp_path / "jobs").write_text(json.dumps({"jobs": jobs}), encoding="utf-8")
        for name, script in scripts.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / name).chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    # As somebody who is not root.
    monkeypatch.setattr(job_seff.os, "getuid", lambda: 2001)
    monkeypatch.setattr(job_seff, "_name", lambda: "ada")
    return commands


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    code = job_seff.main(words)
    said = capsys.readouterr()
    return code, (said.out + said.err).splitlines()


def changed(job: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a job with other values, each below the keys that its name has between two underscores."""
    job = copy.deepcopy(job)
    for path, value in more.items():
        *above, last = path.split("__")
        place = job
        for key in above:
            place = place[key]
        place[last] = value
    return job


def test_a_job_that_has_ended_is_told_in_the_words_of_slurms_seff(
    slurm: Slurm, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm([ENDED])

    assert told(capsys, "9") == (
        0,
        [
            "Job ID: 9",
            "Cluster: lab",
            "User/Group: ada/ada",
            "State: COMPLETED (exit code 0)",
            "Nodes: 1",
            "Cores per node: 4",
            "CPU Utilized: 00:00:06",
            "CPU Efficiency: 0.53% of 00:21:04 core-walltime",
            "Job Wall-clock time: 00:05:16",
            "Memory Utilized: 308.42 MB",
            "Memory Efficiency: 15.42% of 1.95 GB (1.95 GB/node)",
            "GPUs: held 2, use not measured",
            "GPU Efficiency: not measured; if the cluster keeps it, it comes within three minutes of the job's end",
            "Wasted: it had 1.95 GB of memory, and all its steps used 319.87 MB at most",
            "    Fix: ask for less: --mem=1G",
        ],
    )


def test_gpus_come_from_the_summary_in_slurms_database(slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    node = {
        "gpu_utilization": {"0": 50.0, "1": 0},
        "gpu_utilization_max": {"0": 99, "1": 0},
        "gpu_used_memory": {"0": 2**34, "1": 4},
        "gpu_total_memory": {"0": 2**35, "1": 2**35},
    }
    kept = base64.b64encode(gzip.compress(json.dumps({"nodes": {"node1": node}}).encode())).decode()
    three = [{**one, "count": 3} if one["name"] == "gpu" else one for one in ENDED["tres"]["allocated"]]
    slurm([changed(ENDED, comment__administrator=f"paid JS1:{kept}", tres__allocated=three)])

    lines = told(capsys, "9")[1]

    assert lines[11:14] == [
        "GPUs: held 3, used 1, 1 not measured",
        "GPU Efficiency: 25.00% of 2 GPUs",
        "GPU Memory Utilized: 16.00 GB of 32.00 GB on the GPU that had most",
    ]
    assert "Wasted: 1 of 3 GPUs were never used more than 5 %" in lines


def test_what_was_not_measured_is_not_0(slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    nothing = [{**step, "time": {}, "tres": {}} for step in ENDED["steps"]]
    slurm([changed(ENDED, steps=nothing)])

    lines = told(capsys, "9")[1]

    assert lines[6:8] == ["CPU Utilized: not measured", "CPU Efficiency: not measured"]
    assert lines[9] == "Memory Utilized: not measured"
    assert not any(" 0.00" in line for line in lines)


def test_a_job_that_runs_or_waits_has_nothing_of_it_yet(slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    slurm([RUNS])
    lines = told(capsys, "14")[1]
    assert lines[3] == "State: RUNNING"
    assert "CPU Utilized: not measured" in lines
    assert lines[-1] == "It has not ended: what is not measured comes then."

    slurm([WAITS])
    assert told(capsys, "15")[1][-1] == "It has not begun."


@pytest.mark.parametrize(
    ("level", "shown"), [("None", False), ("", False), ("Operator", True), ("Administrator", True)]
)
def test_another_users_job_is_shown_to_operators_alone(
    slurm: Slurm, capsys: pytest.CaptureFixture[str], level: str, shown: bool
) -> None:
    slurm([changed(ENDED, user="bob")], level=level)

    code, lines = told(capsys, "9")

    assert (code, lines[0] == "Job ID: 9") == ((0, True) if shown else (2, False))
    if not shown:
        assert lines == [
            "seff: job 9 is another user's, and you may look at your own. Fix: sacct lists your jobs of today"
        ]


def test_root_sees_all(slurm: Slurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    slurm([changed(ENDED, user="bob")])
    monkeypatch.setattr(job_seff.os, "getuid", lambda: 0)

    assert told(capsys, "9")[0] == 0


def test_of_an_array_one_job_is_named(slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = [
        changed(ENDED, job_id=number, array__job_id=7, array__task_id={"set": True, "infinite": False, "number": task})
        for number, task in ((8, 0), (7, 1))
    ]
    slurm(tasks)
    code, lines = told(capsys, "7")
    assert (code, lines) == (2, ["seff: 7 is 2 jobs: 7_0, 7_1. Fix: name one of them: 7_0"])

    slurm(tasks[:1])
    assert told(capsys, "7_0")[1][:2] == ["Job ID: 8", "Array Job ID: 7_0"]


def test_without_a_database_slurmctld_tells_what_the_job_had(slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    slurm(None, known=(HERE / "scontrol.json").read_text(encoding="utf-8"))

    code, lines = told(capsys, "9")

    assert (code, lines[:3], lines[6]) == (
        0,
        ["Job ID: 9", "Cluster: lab", "User/Group: ada/ada"],
        "CPU Utilized: not measured",
    )
    assert "Memory Efficiency: not measured, of 1.95 GB (1.95 GB/node)" in lines


@pytest.mark.parametrize(
    ("jobs", "words", "said"),
    [
        ([], "7", "Slurm knows no job 7"),
        (None, "7", "Slurm does not know job 7 any more: sacct: error: no database"),
        ([], "7;ls", "'7;ls' is no job's number"),
        ([], "--help", "seff JOB: "),
    ],
)
def test_what_a_user_can_mend_is_said_with_its_fix(
    slurm: Slurm, capsys: pytest.CaptureFixture[str], jobs: list[dict[str, Any]] | None, words: str, said: str
) -> None:
    slurm(jobs)

    code, lines = told(capsys, words)

    assert code == (0 if words == "--help" else 2)
    assert said in lines[0]
    assert words == "--help" or ". Fix: " in lines[0]
