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


@pytest.mark.parametrize(
    ("words", "own", "srun"),
    [
        ("run --rm --gpus 2 image", "", " --gpus=2 sh"),
        ("run --gpus=all -it image nvidia-smi", "", " --gpus=1 sh"),
        ('create --gpus "device=0,1" image', "", " --gpus=2 sh"),
        ("run --gpus all image", "--gres=gpu:a40:4", " --gres=gpu:a40:4 sh"),
        ("run --gpus 0 image", "", " --ntasks=1 sh"),
        ("run --rm -v a:b image deepspeed --gpus 2", "", " --ntasks=1 sh"),
        ("build --gpus 2 .", "", " --ntasks=1 sh"),
    ],
)
def test_docker_run_asks_slurm_for_the_gpus_that_it_names(
    tools: Path, tmp_path: Path, words: str, own: str, srun: str
) -> None:
    done = run(tools, tmp_path, *words.split(" "), **({"DOCKER_SRUN": own} if own else {}))

    assert srun in done.stdout.splitlines()[0], done.stdout
    assert ("--gpus all is one GPU here" in done.stderr) == (srun == " --gpus=1 sh")


@pytest.mark.parametrize(
    ("words", "said"), [("run -d image", True), ("run -itd image", True), ("run -it image x -d", False)]
)
def test_a_container_in_the_background_is_said_to_end_with_its_job(
    tools: Path, tmp_path: Path, words: str, said: bool
) -> None:
    assert ("with -d the job ends at once" in run(tools, tmp_path, *words.split()).stderr) == said


def test_a_terminal_is_told_once_of_the_job(tools: Path, tmp_path: Path) -> None:
    script = tmp_path / "docker.sh"
    script.write_text(PROGRAM.read_text(encoding="utf-8").replace("/var/run/docker.sock", "/nowhere"))
    asks = "; ".join(f"sh {script} {words}" for words in ("images", "images", "run --gpus 2 image"))
    own = {"PATH": f"{tools}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": str(tmp_path), "TERM": "dumb"}
    (tools / "docker").write_text("#!/bin/sh\n")

    done = subprocess.run(
        ["script", "-qec", asks, "/dev/null"],
        env=own,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )

    told = [line for line in done.stdout.splitlines() if line.startswith("docker: in a job")]
    assert len(told) == 2, done.stdout
    assert "--gpus=2" in told[1]


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
