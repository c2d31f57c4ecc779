"""How far the DDP job is, as ddp_submit.py tells it from the job's own comment."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from provision import content

FILES = content.ROOT / "roles" / "ddp_validation" / "files"


def told(job: str) -> list[str]:
    """Return what is told of a job about which Slurm says this: what has ended, and where it is."""
    code = "import sys, json, ddp_submit as d; j = d.Job({}, 0, '', 'r', id='7'); j.facts = json.loads(sys.argv[1])"
    code += "; j.tell(); j.tell(); print(j.going)"
    facts = dict(word.split("=", 1) for word in job.split())
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(facts)], cwd=FILES, capture_output=True, text=True, check=True
    )
    return [*(line.removeprefix("clusterctl-told: ") for line in done.stderr.splitlines()), *done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ("JobState=PENDING Reason=Priority", ["job 7: waits for its nodes (Priority)"]),
        ("JobState=RUNNING", ["job 7: its ranks are starting"]),
        (
            "JobState=RUNNING Comment=identity=pass,collectives=fail,step=parameters,waiting=training_step_12_of_30",
            [
                "ended job 7: A who takes part: pass",
                "ended job 7: B collectives: fail",
                "job 7: F training, step 12 of 30",
            ],
        ),
        ("JobState=RUNNING Comment=step=learning,waiting=losses", ["job 7: H learning"]),
        ("JobState=RUNNING Comment=step=parameters,waiting=training_step_x_of_9", ["job 7: F training"]),
        ("JobState=RUNNING Comment=step=end,waiting=training_step_9_of_9", ["job 7: its ranks have ended"]),
    ],
)
def test_each_step_of_the_job_is_told_once_when_it_has_ended(job: str, expected: list[str]) -> None:
    assert told(job) == expected


@pytest.mark.parametrize(
    "comment",
    [
        "identity=owned",
        "gone=pass",
        "=,==,,",
        "step=\x1b[2J",
        "waiting=training_step_1_of_2",
    ],
)
def test_what_a_job_writes_into_its_comment_is_only_compared(comment: str) -> None:
    assert told(f"JobState=COMPLETING Comment={comment}") == [""]


def test_every_step_of_the_program_has_a_title() -> None:
    program = (FILES / "ddp_proof" / "program.py").read_text()
    steps = program.split("STEPS: dict", 1)[1].split("}", 1)[0]
    titles = (FILES / "ddp_submit.py").read_text().split("STEPS = {", 1)[1].split("}", 1)[0]

    assert [line.split('"')[1] for line in steps.splitlines() if '":' in line] == [
        line.split('"')[1] for line in titles.splitlines() if '":' in line
    ]
