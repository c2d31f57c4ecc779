"""Whatever keeps a training from its start ends the whole step, also where srun does not end it."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torchrun_nodes import Node, script
from torchrun_slurm import asking, health, main, network, step, talk, team
from waiting import PATIENCE, until

WHO = {"job": 7, "step": 0}

#: Two names of this computer, by which one node asks the other.
PAIR = {"SLURM_STEP_NODELIST": "localhost,127.0.0.1"}

#: An address that no machine has (RFC 919): the kernel refuses at once.
NOWHERE = "255.255.255.255"


def both(program: Path, first: dict[str, str], second: dict[str, str], *words: str) -> tuple[Node, Node]:
    """Start the step on both nodes, each with variables of its own; to wait for the other would take an hour."""
    Node.job += 1
    own = ["--check-wait", "3600", *words]
    return Node(program, 0, own, **PAIR, **first), Node(program, 1, own, **PAIR, **second)


def test_a_node_that_does_not_reach_the_first_ends_the_step(program: Path) -> None:
    first, second = both(program, {}, {"MASTER_ADDR": NOWHERE}, *script("print('ran')"))
    (code, said), (other_code, other_said) = first.end(), second.end()

    assert (code, other_code) == (75, 75)
    wrong = f"torchrun-slurm: not started: 127.0.0.1: localhost cannot be reached at {NOWHERE}:"
    (told,) = (line for line in said if line.startswith(wrong))
    assert "a firewall between the nodes" in told
    assert other_said == [], "the first node's task says it"


def test_a_node_that_refuses_before_the_check_ends_the_step_with_its_code(program: Path) -> None:
    first, second = both(program, {}, {"OMP_NUM_THREADS": "zero"}, *script("print('ran')"))

    (code, said), (other_code, other_said) = first.end(), second.end()
    assert (code, other_code) == (2, 2)
    assert other_said[0].startswith("torchrun-slurm: n2: OMP_NUM_THREADS is zero")
    assert [line for line in said if line.startswith("torchrun-slurm: not started: n2: OMP_NUM_THREADS is zero")]


@pytest.mark.slow
def test_a_first_node_that_refuses_tells_those_that_come(program: Path) -> None:
    first, second = both(program, {"OMP_NUM_THREADS": "zero"}, {}, *script("print('ran')"))

    assert (first.end()[0], second.end()) == (2, (2, []))


@pytest.mark.slow
def test_what_all_nodes_refuse_keeps_nobody_waiting(program: Path) -> None:
    wrong = {"OMP_NUM_THREADS": "zero"}
    first, second = both(program, wrong, wrong, *script("print('ran')"))

    assert (first.end()[0], second.end()[0]) == (2, 2)


@pytest.mark.slow
def test_who_comes_after_the_check_has_failed_is_told_and_does_not_wait(program: Path) -> None:
    Node.job += 1
    three = {"SLURM_STEP_NODELIST": "localhost,127.0.0.1,127.0.0.2", "SLURM_STEP_NUM_TASKS": "3"}
    words = list(script("print('ran')"))
    own = {**three, "SLURM_STEP_TASKS_PER_NODE": "1(x3)"}
    first = Node(program, 0, words, **own)
    second = Node(program, 1, words, **own, MASTER_ADDR=NOWHERE)
    assert second.end()[0] == 75
    assert first.process.poll() is None, "somebody else is to come"

    third = Node(program, 2, words, **own)

    assert (first.end()[0], third.end()) == (75, (75, []))


@pytest.mark.slow
@pytest.mark.parametrize("asked", [(), ("--requeue-on=node-failure",)])
def test_the_exit_code_stays_where_srun_ends_the_task_because_another_has_ended(
    program: Path, tmp_path: Path, asked: tuple[str, ...]
) -> None:
    Node.job += 1
    (tmp_path / "squeue").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "squeue").chmod(0o755)
    three = {"SLURM_STEP_NODELIST": "localhost,127.0.0.1,127.0.0.2", "SLURM_STEP_NUM_TASKS": "3"}
    own = {**three, "SLURM_STEP_TASKS_PER_NODE": "1(x3)", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = [*asked, *script("print('ran')")]
    first = Node(program, 0, words, **own)
    assert Node(program, 1, words, **own, MASTER_ADDR=NOWHERE).end()[0] == 75
    until(lambda: first.catches(signal.SIGTERM), "the end of the first node's check")
    assert first.process.poll() is None, "somebody else is to come"

    first.process.send_signal(signal.SIGTERM)
    assert first.end()[0] == 75


#: Python calls this when it gives its modules up, after it has given signals their first meaning back.
SIGNALLED_LATE = """import os, signal, sys
class Srun:
    def __del__(self, end=os.kill, me=os.getpid(), how=signal.SIGTERM): end(me, how)
sys.srun = Srun()
"""


def test_the_exit_code_stays_where_srun_ends_a_task_that_is_ending(program: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SIGNALLED_LATE)
    nowhere = {"MASTER_ADDR": NOWHERE, "PYTHONPATH": str(tmp_path)}

    first, second = both(program, {"PYTHONPATH": str(tmp_path)}, nowhere, *script("print('ran')"))

    assert (first.end()[0], second.end()[0]) == (75, 75)


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> asking.Asking:
    """Of the first node, n1, to n2, which has not come."""
    found = asking.Asking(WHO, "n1", ("10.0.0.1", 15000), 16000)
    found.missing = lambda: {"n2"}
    monkeypatch.setattr(network, "own_address", lambda _: "10.0.0.1")
    return found


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[asking.Begun]:
    """The task on n2, which has begun; all connections lead to it."""
    found = asking.Begun(0, WHO, "n2")
    assert found._server
    place, connect = found._server.getsockname(), socket.create_connection
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: connect(place))
    yield found
    found.close()


def test_a_node_that_has_begun_and_does_not_come_is_cut_off(
    questions: asking.Asking, begun: asking.Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions.one("n2")
    assert questions.refused == {}, "it may be on its way"

    monkeypatch.setattr(asking, "COMES", 0.0)
    questions.one("n2")
    assert questions.refused == {"n2": ([f"n2: cannot reach n1 at 10.0.0.1:15000. {talk.FIREWALL}"], 75)}
    assert questions.unreached == [("n2", "n1")]

    # It is told, so that it tries no longer.
    questions.answer = {"problems": ["n2: cannot"], "code": 75}
    assert questions.settled() == set()
    questions.one("n2")
    assert questions.settled() == {"n2"}
    begun.close()
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: socket.socket().connect(("127.0.0.1", 1)))
    assert talk.joined("n1", "10.0.0.1", 15000, 300, begun) is None
    assert begun.told["problems"] == ["n2: cannot"]
    own = {"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}
    member = team.Member(step.Step(own), "10.0.0.1", 15000, 300)
    member._begun = begun
    assert member.blamed() == [], "the first node puts the job back"
    begun.told = {}
    assert member.blamed() == ["n1"]


def test_a_node_that_answers_nothing_at_all_is_cut_off_only_where_its_tasks_come_on_that_way(
    questions: asking.Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: Any = iter([TimeoutError("timed out"), ConnectionRefusedError(), *[TimeoutError("timed out")] * 4])

    def fails(*_: object, **__: object) -> None:
        raise next(failures)

    monkeypatch.setattr(socket, "create_connection", fails)
    for _ in range(3):
        questions.one("n2")
    assert questions.refused == {}, "once is no proof, and a machine that refuses is there"

    monkeypatch.setattr(network, "own_address", lambda _: "192.168.0.1")
    questions.one("n2")
    assert questions.refused == {}, "another network's silence says nothing of the workers'"

    monkeypatch.setattr(network, "own_address", lambda _: "10.0.0.1")
    questions.one("n2")
    assert questions.refused["n2"][0][0].startswith("n1: cannot reach n2 at port 16000: timed out. A firewall")
    assert questions.ended == {"n2"}, "nobody can tell it"


def test_who_asks_for_another_job_or_node_is_told_nothing(begun: asking.Begun) -> None:
    told: list[bool] = []
    waiting = threading.Thread(target=lambda: told.append(begun.refuse(["n2: wrong"], 75, PATIENCE)))
    waiting.start()
    for other in ({"job": 8}, {"node": "n3"}):
        line = talk.Line(socket.create_connection(("", 0)))
        line.say({"who": {**WHO, "node": "n2", **other}})
        assert line.hear(PATIENCE) == {}
    assert told == []
    line = talk.Line(socket.create_connection(("", 0)))
    line.say({"who": {**WHO, "node": "n2"}})
    waiting.join(PATIENCE)
    assert told == [True]


@pytest.mark.parametrize(
    "said",
    [{"problems": []}, {"problems": [], "code": 0}, {"problems": ["x"], "code": "x"}, {"problems": "x", "code": 75}],
)
def test_that_all_is_well_is_not_heard_from_who_asks(begun: asking.Begun, said: dict[str, Any]) -> None:
    line = talk.Line(socket.create_connection(("", 0)))
    line.say({"who": {**WHO, "node": "n2"}, **said})
    assert line.hear(PATIENCE)["refused"] == []
    assert line.hear(PATIENCE) == {}, "it has said all, and hung up"
    assert begun.told == {}

    own = {"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}
    member = team.Member(step.Step(own), "10.0.0.1", 15000, 300)
    assert bool(member._told(said)) is (said["problems"] != [])
    assert member.code == 75


def test_a_node_is_asked_only_once_it_knows_the_first_ones_address(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def resolved(name: str) -> str:
        order.append(name)
        return "10.0.0.1"

    def begins(*_: object) -> None:
        order.append("asked")

    def joined(_: str, address: str, *__: object) -> None:
        order.append(address)

    monkeypatch.setattr(socket, "gethostbyname", resolved)
    monkeypatch.setattr(team, "Begun", begins)
    monkeypatch.setattr(talk, "joined", joined)
    own = {"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}
    own |= {"SLURM_NODEID": "1", "SLURM_LOCALID": "0"}
    team.Member(step.Step(own), "n1.cluster", 15000, 300)._follow_check(health.Gpus(0), "")

    assert order == ["n1.cluster", "asked", "10.0.0.1"]


def test_the_whole_check_takes_five_seconds_where_a_driver_hangs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert main.options(["train.py"]).gpu_wait + 1 <= 5
    assert main.options(["--gpu-wait", "30", "train.py"]).gpu_wait == 30
    (tmp_path / "version").touch()
    monkeypatch.setattr(health, "CUDA", "import time; time.sleep(3600)")

    clock = [0.0]
    monkeypatch.setattr(health, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    gpus = health.Gpus(2, tmp_path / "version", limit=3600)
    clock[0] = 3600
    assert "did not answer in 3600 s" in gpus.told()["problem"], "its time runs while other things are looked at"
    found = health.look(gpus)
    (said,) = health.wrong({**found, "shm": health.LEAST_SHM})
    assert "--gpu-wait SECONDS" in said
    assert "nvidia-persistenced" in said

    monkeypatch.setattr(health, "CUDA", "print(0, 2)")
    gpus = health.Gpus(2, tmp_path / "version", limit=3600)
    assert gpus._asked
    gpus._asked.wait(PATIENCE)
    clock[0] += 7200
    assert gpus.told()["answering"] == 2, "what it said in time counts"


@pytest.mark.parametrize(
    ("gpus", "shm", "blamed"),
    [
        ({"problem": "CUDA did not answer in 4 s", "slow": True}, health.LEAST_SHM, []),
        ({"problem": "CUDA did not answer in 4 s", "slow": True}, 0, ["n2"]),
        ({"problem": "cuInit returned 100"}, health.LEAST_SHM, ["n2"]),
    ],
)
def test_a_node_is_not_to_blame_for_a_driver_that_is_late_alone(
    monkeypatch: pytest.MonkeyPatch, gpus: dict[str, Any], shm: int, blamed: list[str]
) -> None:
    well: dict[str, Any] = {"granted": 1, "answering": 1, "problem": ""}
    monkeypatch.setattr(health, "look", lambda *_: {"gpus": well, "shm": health.LEAST_SHM, "directory": ""})
    own = {"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0"}
    member = team.Member(step.Step(own), "10.0.0.1", 15000, 300)
    with talk.listening(0, "127.0.0.1") as server:
        here, (there, _) = socket.create_connection(server.getsockname()), server.accept()
    found = {"gpus": {**well, **gpus}, "shm": shm, "directory": ""}
    with here, there:
        talk.Line(here).say({"unreachable": [], "found": found})
        first = {"node": "n2", "ahead": 0.0, "mark": ""}
        problems = member._answered({1: (talk.Line(there), first)}, health.Gpus(0), "")

    assert problems[0].startswith(f"n2: {gpus['problem']}")
    assert member.at_fault == blamed
