"""What a program has when it begins: the processors near its GPU, its job's GPUs and nodes, its node's interface."""

from __future__ import annotations

import fnmatch
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from torchrun_nodes import Node
from torchrun_slurm import hostfile, launcher, main, network, numa, ssh, step, talk, team, watch
from waiting import PATIENCE

#: A launcher as torch.distributed.run and DeepSpeed's are: it starts what follows --no_python, once for each worker.
#: DeepSpeed's tells each its rank in a word, and says that the GPUs are those from 0 on (deepspeed/launcher/launch.py).
LAUNCHER = """#!{python}
import os, subprocess, sys
words = sys.argv[sys.argv.index("--no_python") + 1 :]
workers = []
for rank in ("0", "1"):
    own = dict(os.environ, LOCAL_RANK=rank)
    if "deepspeed" in sys.argv[0]:
        own["CUDA_VISIBLE_DEVICES"] = "0,1"
        workers.append(subprocess.Popen([words[0], "--local_rank=" + rank, *words[1:]], env=own))
    else:
        workers.append(subprocess.Popen(words, env=own))
sys.exit(max(worker.wait() for worker in workers))
"""

#: What a worker finds, in a file of its own.
TRAIN = """
import json, os, sys
rank = os.environ["LOCAL_RANK"]
found = {"cpus": sorted(os.sched_getaffinity(0)), "gpus": os.environ.get("CUDA_VISIBLE_DEVICES")}
with open(os.path.join(sys.argv[-1], "worker" + rank), "w") as file:
    json.dump(found, file)
"""

#: A step on one node with two GPUs.
STEP = {
    "SLURM_JOB_ID": "4712", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n1", "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0",
    "MASTER_ADDR": "127.0.0.1",
}  # fmt: skip


@pytest.fixture
def launchers(tmp_path: Path) -> dict[str, str]:
    """Variables with which both launchers are found."""
    package = tmp_path / "lib/torch/distributed"
    package.mkdir(parents=True)
    for place in (package.parent, package):
        (place / "__init__.py").touch()
    (package / "run.py").write_text(LAUNCHER.format(python=sys.executable))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/deepspeed").write_text(LAUNCHER.format(python=sys.executable))
    (tmp_path / "bin/deepspeed").chmod(0o755)
    (tmp_path / "train.py").write_text(TRAIN)
    return {"PYTHONPATH": str(tmp_path / "lib"), "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}


def found(place: Path) -> list[dict[str, Any]]:
    """Return what both workers found."""
    return [json.loads((place / f"worker{rank}").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("words", [(), ("--no-bind",)])
def test_each_worker_runs_on_the_processors_that_are_near_its_gpu(
    launchers: dict[str, str], program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    near, asked = [{allowed[0]}, {allowed[-1]}], []

    def chosen(visible: str, processors: set[int]) -> list[set[int]]:
        asked.append((visible, processors))
        return near

    monkeypatch.setattr(numa, "near", chosen)
    monkeypatch.setattr(launcher, "OWN", str(program))
    environment = {**os.environ, **STEP, **launchers, "CUDA_VISIBLE_DEVICES": "1,0"}
    given = main.options([*words, str(tmp_path / "train.py"), str(tmp_path)])
    plan = launcher.Plan(step.Step(environment), given, environment)
    (tmp_path / "own").mkdir()

    running = main.started(plan, environment, tmp_path / "own")
    ended, codes = threading.Event(), []
    running.follow(lambda code: (codes.append(code), ended.set()))

    assert ended.wait(PATIENCE)
    assert codes == [0]
    assert [one["cpus"] for one in found(tmp_path)] == ([allowed] * 2 if words else [sorted(one) for one in near])
    assert asked == ([] if words else [("1,0", set(allowed))])


@pytest.mark.parametrize("granted", ["2,3", "GPU-5f1c,GPU-77aa", "0,1"])
def test_deepspeeds_workers_see_the_gpus_that_the_job_was_granted(
    launchers: dict[str, str], program: Path, tmp_path: Path, granted: str
) -> None:
    Node.job += 1
    own = {"SLURM_STEP_NODELIST": "n1", "SLURM_STEP_NUM_TASKS": "1", "CUDA_VISIBLE_DEVICES": granted, **launchers}
    words = ["--env", "deepspeed", "--no-check", str(tmp_path / "train.py"), str(tmp_path)]

    code, said = Node(program, 0, words, **own).end()

    assert code == 0, said
    assert [one["gpus"] for one in found(tmp_path)] == [granted] * 2


class Unsaid(talk.Line):
    """A conversation of which nobody hears anything."""

    def __init__(self) -> None:
        pass

    def say(self, message: talk.Message) -> None:
        pass


@pytest.mark.parametrize(("users", "named"), [({}, "=ib0"), ({"NCCL_SOCKET_IFNAME": "eth0"}, "eth0")])
def test_a_session_by_ssh_has_the_interface_of_its_own_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, users: dict[str, str], named: str
) -> None:
    monkeypatch.setattr(network, "interfaces", lambda: {"eth0": "10.0.0.2", "ib0": "10.1.0.2"})
    monkeypatch.setattr(network, "own_address", lambda _: "10.1.0.2")
    monkeypatch.setattr(watch, "Program", lambda *_: None)
    second = {"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
    environment = {**os.environ, **STEP, **second, "SLURM_NODEID": "1", "SLURM_PROCID": "1", **users}
    plan = launcher.Plan(step.Step(environment), main.options(["--env", "ssh", "mpirun", "train"]), environment)
    member = team.Member(plan.step, plan.meets, 0, 1)
    member.lines = {0: Unsaid()}
    way = ssh.Ssh(plan.step, str(tmp_path), environment)
    way.offer()
    monkeypatch.setattr(way, "begun", lambda: True)
    (tmp_path / "own").mkdir()

    main.entered(plan, environment, tmp_path / "own", member, way)

    # What sshd gives each of its sessions.
    assert json.loads((tmp_path / "own/environment").read_text())["NCCL_SOCKET_IFNAME"] == named


#: What a user's script calls, and finds in its own words.
DEEPSPEED = '#!/bin/sh\nprintf \'%s\\n\' "$0" "$@"\nexit 9\n'


def by_script(program: Path, place: Path, line: str, **environment: str) -> tuple[int, list[str], str]:
    """Return the exit code of a script with one line, the words that an image's deepspeed gets, and what is said."""
    (place / "bin").mkdir(exist_ok=True)
    (place / "bin/deepspeed").write_text(DEEPSPEED)
    (place / "bin/deepspeed").chmod(0o755)
    (place / "train.sh").write_text(f"{line}\n")
    Node.job += 1
    own = {"SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_NUM_TASKS": "1", "PATH": f"{place}/bin:{os.environ['PATH']}"}
    node = Node(program, 0, ["--env", "ssh", "sh", "train.sh"], **{**own, "MASTER_PORT": "23456", **environment})
    out, said = node.process.communicate(timeout=PATIENCE)
    return node.process.returncode, out.splitlines(), said


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("deepspeed train.py --lr 1", "--hostfile * --master_addr 127.0.0.1 --master_port 23456 train.py --lr 1"),
        (
            "deepspeed --hostfile hosts --master_port=7 'two words.py'",
            "--master_addr 127.0.0.1 --hostfile hosts --master_port=7 two words.py",
        ),
        ("MASTER_PORT=8 deepspeed -H hosts x.py", "--master_addr 127.0.0.1 --master_port 8 -H hosts x.py"),
    ],
)
def test_a_deepspeed_in_a_script_is_told_of_the_job_what_its_words_leave_out(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts").write_text("localhost slots=1\n")

    code, found, said = by_script(program, tmp_path, line)

    assert code == 9, said
    assert found[0] == f"{tmp_path}/bin/deepspeed", "it is the image's own, called once"
    assert fnmatch.fnmatch(" ".join(found[1:]), words)


@pytest.mark.parametrize(
    ("line", "granted", "refused"),
    [
        ("deepspeed --hostfile hosts x.py", "", "hosts:1: manager is no node of this job. Fix: name localhost;"),
        (
            "deepspeed x.py",
            "1",
            "deepspeed takes a node's GPUs from 0 on (0), and this job has 1. Fix: --env",
        ),
        ("PATH=${PATH%%:*} deepspeed x.py", "", "there is no other deepspeed on the PATH. Fix: "),
    ],
)
def test_a_deepspeed_in_a_script_is_refused_what_it_would_be_on_the_command_line(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, granted: str, refused: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts").write_text("manager slots=1\n")

    code, found, said = by_script(program, tmp_path, line, CUDA_VISIBLE_DEVICES=granted)

    assert (code, found) == (2, []), said
    assert f"torchrun-slurm: n1: {refused}" in said


def test_an_image_without_deepspeed_gets_none(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    hostfile.stand_in(tmp_path, "torchrun-slurm", {"PATH": "/nonexistent"})

    assert list((tmp_path / "bin").iterdir()) == []
