"""docker where users log in: in a job of one node for them, the machine's own for root."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from provision import content

PROGRAM = content.ROOT / "roles/slurm_image/files/image/login-docker"


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """Return a directory of programs: an ordinary user's id, an srun that shows its words and runs them, a docker."""
    for name, text in (
        ("id", "echo 2001"),
        ("srun", 'echo srun "$@"; while [ "$1" != sh ]; do shift; done; exec "$@"'),
        ("docker", 'echo docker "$@"; pwd; cat'),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def run(tools: Path, where: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # Where the tests run, root may use the machine's own: not here.
    script = PROGRAM.read_text(encoding="utf-8").replace("/var/run/docker.sock", "/nowhere")
    own = {"PATH": f"{tools}:{os.environ['PATH']}", **environment}
    command = ["sh", "-c", script, "docker", *words]
    return subprocess.run(
        command, cwd=where, env=own, input="from stdin\n", capture_output=True, text=True, check=False
    )


def test_a_users_command_runs_in_a_job_of_one_node_in_the_same_directory_and_with_the_same_words(
    tools: Path, tmp_path: Path
) -> None:
    where = tmp_path / "my project"
    where.mkdir()

    done = run(tools, where, "build", "-t", "a b", ".", DOCKER_SRUN="--cpus-per-task=4 --mem=8G")

    assert done.stdout.startswith(
        "srun --quiet --job-name=docker --nodes=1 --ntasks=1 --cpus-per-task=4 --mem=8G sh -c"
    )
    assert done.stdout.splitlines()[-3:] == ["docker build -t a b .", str(where), "from stdin"]
    assert "docker: in a job of one node (srun --nodes=1 --ntasks=1 --cpus-per-task=4" in done.stderr
    assert done.returncode == 0


def test_a_directory_that_the_node_does_not_have_is_said(tools: Path, tmp_path: Path) -> None:
    where = tmp_path / "gone"
    where.mkdir()
    (tools / "srun").write_text('#!/bin/sh\nrmdir "$(pwd)"; while [ "$1" != sh ]; do shift; done; exec "$@"\n')

    done = run(tools, where, "build", ".", SLURMD_NODENAME="node1")

    assert done.returncode == 125
    assert f"docker: {where} is not on node1: go to a directory that all machines share" in done.stderr


def test_root_gets_the_machines_own(tools: Path, tmp_path: Path) -> None:
    (tools / "id").write_text("#!/bin/sh\necho 0\n")
    own = tools / "own"
    own.write_text('#!/bin/sh\necho own "$@"\n')
    own.chmod(0o755)
    script = PROGRAM.read_text(encoding="utf-8").replace("/usr/bin/docker", str(own))

    done = subprocess.run(
        ["sh", "-c", script, "docker", "ps", "-a"],
        env={"PATH": f"{tools}:{os.environ['PATH']}"}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.stdout, done.stderr) == ("own ps -a\n", "")
