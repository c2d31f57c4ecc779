"""Rarer forms of the mistakes of job scripts are found, and what is right beside each of them is not.

In job_forms/, a line ``== NAME`` stands before each script; one without its own first line is the rest of a job of two
nodes without a mistake.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_lint_job import DOCKER, IMAGE, MEET, SRUN, job

from provision.slurm.jobs.lint import RULES, findings

TORCHRUN = f"torchrun --nnodes=2 --nproc-per-node=8 {MEET}"


def forms(file: str) -> list[tuple[str, str]]:
    """Return names of mistakes with scripts."""
    text = (Path(__file__).parent / "job_forms" / file).read_text(encoding="utf-8")
    parts = re.split(r"^== (.*)\n", text, flags=re.MULTILINE)[1:]
    bodies = zip(parts[::2], parts[1::2], strict=True)
    return [(name, body if body.startswith("#!") else job(body.rstrip("\n"))) for name, body in bodies]


FOUND, CLEAN = forms("found.txt"), forms("clean.txt")


@pytest.mark.parametrize(("name", "text"), FOUND)
def test_a_rarer_form_is_found_and_nothing_else_with_it(name: str, text: str) -> None:
    assert [one.name for one in findings(text)] == [name]


@pytest.mark.parametrize(("name", "text"), CLEAN)
def test_what_is_right_beside_a_mistake_is_not_found(name: str, text: str) -> None:
    assert name in RULES
    assert findings(text) == []


def test_every_mistake_has_two_rarer_forms() -> None:
    named = [name for name, _ in FOUND]
    assert {name for name in RULES if named.count(name) < 2} == set()


def test_a_rank_that_the_batch_script_has_put_in_is_named_as_it_stands_there() -> None:
    (found,) = findings(job("ARGS=(--node_rank $SLURM_PROCID)", f'{SRUN} {TORCHRUN} "${{ARGS[@]}}" train.py'))

    assert found.problem == "the batch script expands $SLURM_PROCID: every node is the first"


def test_an_array_that_is_empty_at_first_hides_no_option_behind_it() -> None:
    lines = ("gpus=()", 'for one in $UUIDS; do gpus+=(--device "nvidia.com/gpu=$one"); done')
    podman = DOCKER.replace("docker", "podman")

    assert findings(job(*lines, f'{SRUN} {podman} "${{gpus[@]}}" {IMAGE} python train.py')) == []
    (found,) = findings(job("NONE=", f"{SRUN} {podman} $NONE --privileged {IMAGE} python train.py"))
    assert found.name == "ungranted-gpus"
