"""A training on several nodes is looked at before it starts, and the rank that failed first has the last word."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torchrun_nodes import LAUNCH, Node, both, script, watched
from torchrun_slurm import health, network, requeue, running, ssh, step, talk, team, watch
from waiting import PATIENCE

GIB = 1 << 30
WELL = {"gpus": {"granted": 8, "answering": 8, "problem": ""}, "shm": 100 * GIB, "directory": ""}


def test_a_training_that_ends_well_ends_with_nought_and_one_line_of_the_check(program: Path) -> None:
    first, second = both(program, *script("print('trained')"))

    code, said = first.end()
    assert (code, second.end()) == (0, (0, []))
    assert len(said) == 2
    assert said[0].startswith("torchrun-slurm: job ")
    assert re.match(r"torchrun-slurm: checked in \d+\.\d s: nodes reach one another", said[1])


#: The second fails; the first notices a moment later that its peer has gone, and fails too.
PEERS = """
import os, sys, time
if os.environ["RANK"] == "1":
    open(sys.argv[1], "w").close()
    raise ValueError("no such label: 7")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
time.sleep(0.5)
raise RuntimeError("[gloo] Connection closed by peer")
"""


def test_the_rank_that_failed_first_has_the_last_word(program: Path, tmp_path: Path) -> None:
    first, second = both(program, *script(PEERS), str(tmp_path / "failed"))

    code, said = first.end()
    assert code == second.end()[0] == 1
    assert said[-1] == "ValueError: no such label: 7"
    told = next(number for number, line in enumerate(said) if line.startswith("torchrun-slurm: first to fail: n2, "))
    assert said[told + 1] == "Traceback (most recent call last):"


#: What PyTorch (2.11, NCCL) writes behind a traceback where the program did not take its group down.
WARNING = (
    "[rank1]:[W1127 01:02:03.123456789 ProcessGroupNCCL.cpp:1553] Warning: WARNING: destroy_process_group() was not "
    "called before program exit, which can leak resources."
)


def test_a_warning_behind_the_error_makes_no_follower_of_who_failed_by_itself() -> None:
    own, lost = watch.Tail(), watch.Tail()
    head = b'[rank1]: Traceback (most recent call last):\n[rank1]:   File "train.py", line 3, in <module>\n'
    own.add(head + b"[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.\n\n")
    own.add(WARNING.encode() + b"\n")
    lost.add(head + b"[rank1]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:93, remote error\n")

    assert (own.lost_others(), lost.lost_others()) == (False, True)


#: As users have shown it in PyTorch's and their own issues, of PyTorch 2.2 to 2.7; the stack behind it is left out.
@pytest.mark.parametrize(
    ("said", "lost"),
    [
        (
            "[PG ID 0 PG GUID 0(default_pg) Rank 5] Process group watchdog thread terminated with exception: [Rank 5] "
            "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=10, OpType=BROADCAST, Timeout(ms)=600000)",
            True,
        ),
        (
            "[Rank 2] NCCL watchdog thread terminated with exception: NCCL error: remote process exited or there was a "
            "network error, NCCL version 2.19.3",
            True,
        ),
        (
            "[PG ID 0 PG GUID 0(default_pg) Rank 0] Process group watchdog thread terminated with exception: CUDA "
            "error: device-side assert triggered",
            False,
        ),
        ("double free or corruption (!prev)", False),
    ],
)
def test_who_is_ended_by_nccls_watchdog_follows_but_where_its_own_gpu_failed(said: str, lost: bool) -> None:
    tail = watch.Tail()
    tail.add(b"step 7\nterminate called after throwing an instance of 'c10::DistBackendError'\n")
    tail.add(f"  what():  {said}\n".encode())

    assert tail.lost_others() is lost


@pytest.mark.slow
def test_who_was_told_to_end_is_no_cause(program: Path) -> None:
    # Of this failure one could think that it follows from another's.
    cause = "raise ConnectionError('dataset server: connection refused')"
    first, second = both(program, *script(f"import os, time\nif os.environ['RANK'] == '0': {cause}\ntime.sleep(600)"))

    code, said = first.end()
    assert (code, second.end()[0]) == (1, 1)
    assert said[-1] == "ConnectionError: dataset server: connection refused"


@pytest.mark.slow
def test_a_program_that_cannot_be_executed_is_told_in_a_line(program: Path, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("true\n")
    (tmp_path / "train.sh").chmod(0o644)
    first, second = both(program, "--env", "kubeflow", str(tmp_path / "train.sh"))

    code, said = first.end()
    assert code == second.end()[0] == 126
    assert said[-1] == f"torchrun-slurm: {tmp_path}/train.sh: Permission denied"


def test_who_connects_and_says_nothing_or_nonsense_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talk, "time", SimpleNamespace(monotonic=time.monotonic, time=lambda: 1000.0))
    who = {"job": 7, "step": 0}
    with talk.listening(0) as server:
        place = ("127.0.0.1", server.getsockname()[1])
        silent, nonsense, partial = (socket.create_connection(place) for _ in range(3))
        nonsense.sendall(b"[" * 200_000 + b"\n")
        partial.sendall(json.dumps({"who": who, "task": 1}).encode() + b"\n")
        other = talk.Line(socket.create_connection(place))
        other.say({"who": who, "task": 1, "node": "n2", "at": [], "mark": "", "time": 938.0})

        came = talk.gathered(server, who, {1: "n2"}, 3600)

    assert list(came) == [1]
    assert came[1][1]["ahead"] == -62
    for one in (silent, nonsense, partial):
        one.close()


def test_others_are_stopped_when_one_has_failed(program: Path) -> None:
    first, second = both(program, *script("import os, time; os.environ['RANK'] == '0' and time.sleep(600); exit(9)"))

    assert first.end()[0] == 9
    assert second.end()[0] == 9


def test_a_node_that_goes_away_is_named(program: Path) -> None:
    first, second = watched(program)
    second.vanish()

    code, said = first.end()
    assert code == 1
    assert said[-1] == "task 1 went away: its node or container ended"
    assert "first to fail: n2" in said[-2]


@pytest.mark.slow
def test_without_the_first_node_the_others_end(program: Path) -> None:
    first, second = watched(program)
    first.vanish()

    code, said = second.end()
    assert code != 0
    assert said == ["torchrun-slurm: n2: n1 went away"]


@pytest.mark.slow
def test_a_failure_is_held_for_looking_at_it_until_somebody_is_done(program: Path) -> None:
    first, second = both(program, "--hold", "1h", *script("import os; exit(3 * int(os.environ['RANK']))"))
    assert first.process.stderr
    held = next(line for line in first.process.stderr if "look: " in line)
    assert f"look: job-exec {Node.job} COMMAND, job-shell {Node.job} NODE; when you are done: scancel" in held
    assert first.process.poll() is None
    assert second.process.poll() is None, "its container is kept, too"

    first.process.send_signal(signal.SIGTERM)
    assert first.process.wait(PATIENCE) == 3
    assert second.end()[0] == 3
    assert first.process.stderr.read() == ""


def test_a_cancelled_job_says_so_and_holds_nothing(program: Path) -> None:
    first, second = watched(program, "--hold", "1h")
    for node in (first, second):
        # Slurm sends it to all processes of the step.
        children = subprocess.run(["pgrep", "-P", str(node.process.pid)], capture_output=True, text=True, check=True)
        for pid in (node.process.pid, *map(int, children.stdout.split())):
            os.kill(pid, signal.SIGTERM)

    code, said = first.end()
    assert code == 128 + signal.SIGTERM
    assert said[-1] == "torchrun-slurm: ended by a signal: scancel, the time limit, or another part of the job"
    second.end()


@pytest.mark.slow
def test_a_task_that_does_not_come_is_named_and_nothing_starts(program: Path, tmp_path: Path) -> None:
    Node.job += 1
    alone = Node(program, 0, ["--check-wait", "1", "--env", "kubeflow", "touch", str(tmp_path / "started")])

    code, said = alone.end()
    assert code == 75
    assert "not started: task 1: torchrun-slurm did not come from there in 1 s" in said[-2]
    assert not (tmp_path / "started").exists()


def test_a_first_node_that_cannot_be_reached_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object, **__: object) -> None:
        raise TimeoutError("timed out")

    monkeypatch.setattr("socket.create_connection", lost)

    with pytest.raises(step.Refusal, match=r"n1 cannot be reached at 10\.0\.0\.1:15000: timed out") as refused:
        talk.joined("n1", "10.0.0.1", 15000, 300)
    assert "a firewall between the nodes" in refused.value.args[1]
    assert talk.unreachable({"n3": ("10.0.0.3", 1), "n2": ("10.0.0.2", 1)}) == ["n2", "n3"]
    assert talk.unreachable({"n3": ("10.0.0.3", 1)}, machines=True) == ["n3"]


def test_a_machine_that_refuses_a_connection_is_there() -> None:
    with talk.listening(0) as server:
        port = server.getsockname()[1]

    assert talk.unreachable({"n1": ("127.0.0.1", port)}) == ["n1"]
    assert talk.unreachable({"n1": ("127.0.0.1", port)}, machines=True) == []


def test_who_is_reached_elsewhere_but_not_where_workers_meet_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    one = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_TASKS": "2"}
    way = network.Way("ib0", "127.0.0.1", "NCCL_SOCKET_IFNAME=ib0")
    lead = team.Member(step.Step(one), "127.0.0.1", 0, 1, way=way)
    monkeypatch.setattr(talk, "unreachable", lambda _: [])

    class Silent(talk.Line):
        def __init__(self) -> None:
            self.said: list[Any] = []

        def say(self, message: talk.Message) -> None:
            self.said.append(message)

        def hear(self, seconds: float = 0.0) -> talk.Message:
            return {"unreachable": ["n1"], "found": WELL}

    line = Silent()
    first = {"node": "n2", "at": ["127.0.0.1", 9], "ahead": 0.0, "mark": ""}
    problems = lead._judged({1: (line, first)}, health.Gpus(0), "")

    assert list(line.said[0]["peers"]) == ["n2", "n1"]
    assert problems[0].startswith("n2: cannot reach n1 by ib0 (NCCL_SOCKET_IFNAME=ib0). ")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that is no container's own, also where the tests run in one."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


def test_no_directory_is_made_above_the_one_that_is_written_to(shared: Path) -> None:
    mark = health.mark(str(shared / "no such/x"), 7, 0, 1)

    said = health.written(mark, "text", True)
    assert said.startswith(f"there is no {shared}/no such. mkdir -p {shared}/no such/x, where all nodes see it")
    assert "--container-mounts=" in said
    assert list(shared.iterdir()) == []

    assert health.written(health.mark(str(shared / "x"), 7, 0, 1), "text", True) == ""
    assert (shared / "x").is_dir()


def test_what_is_written_to_a_containers_own_root_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(
        "602 543 0:60 / / rw,relatime - overlay overlay rw\n615 602 0:41 /ada /home/ada rw - nfs head:/home rw\n"
        "616 602 0:42 / /my\\040data rw - ext4 /dev/sda rw\n"
    )
    places = ("/workspace/out", "/home/grace", "/home/ada", "/home/ada/out", "/my data/x")

    def found() -> list[str]:
        return [place for place in places if health.in_layer(Path(place), tmp_path)]

    assert found() == [], "no container"
    (tmp_path / "run").mkdir()
    (tmp_path / "run/.containerenv").touch()
    assert found() == ["/workspace/out", "/home/grace"]

    monkeypatch.setattr(health, "in_layer", lambda _: True)
    said = health.written(tmp_path / "out/mark", "text", True)
    assert said.startswith(f"{tmp_path}/out is in the container alone, and goes with it; ")
    assert f"--container-mounts={tmp_path}/out" in said
    assert not (tmp_path / "out").exists()
    assert health.written(tmp_path / "out/mark", "text") == "", "keys are for as long as the container"


def test_an_output_directory_that_is_not_the_same_is_noticed(program: Path, shared: Path) -> None:
    Node.job += 1
    nodes = [
        Node(program, number, ["--output-dir", str(shared / str(number)), "--env", "kubeflow", "true"])
        for number in (0, 1)
    ]

    code, said = nodes[0].end()
    assert (code, nodes[1].end()[0]) == (75, 75)
    assert said[-2].startswith(f"torchrun-slurm: not started: n2: {shared}/0 is not the first node's")
    assert re.fullmatch(r"torchrun-slurm: checked in \d+\.\d s: exit code 75", said[-1])
    assert list(shared.glob("*/.torchrun-slurm*")) == [], "nothing is left there"


@pytest.mark.parametrize(
    ("changed", "ahead", "said"),
    [
        ({"gpus": {"granted": 8, "answering": 7, "problem": ""}}, 0.0, "7 of 8 granted GPUs answer"),
        ({"gpus": {"granted": 1, "answering": 0, "problem": "cuInit returned 999"}}, 0.0, "cuInit returned 999"),
        ({"shm": 64 << 20}, 0.0, "64 MiB are free in /dev/shm, 256 are needed. --ipc=host"),
        ({"shm": None}, 0.0, "there is no /dev/shm"),
        ({"directory": "/data cannot be written: Permission denied"}, 0.0, "/data cannot be written"),
        ({}, 62.0, "its clock is 62 s before the first node's"),
        ({}, -7.0, "its clock is 7 s behind the first node's"),
    ],
)
def test_what_is_wrong_with_a_node_is_said(changed: dict[str, Any], ahead: float, said: str) -> None:
    (told,) = health.wrong({**WELL, **changed}, ahead)

    assert said in told


def test_a_node_on_which_all_is_well_has_nothing_to_say() -> None:
    assert health.wrong({**WELL}, 0.4) == []
    assert health.wrong({**WELL, "gpus": {"granted": 2, "answering": None, "problem": ""}}) == [], "simulated ones"


def test_gpus_that_cannot_be_asked_are_no_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "version").touch()
    assert "libcuda.so.1" in health.Gpus(2, tmp_path / "version").told()["problem"]

    monkeypatch.setattr(health, "CUDA", "print(0, 2)")
    assert health.Gpus(2, tmp_path / "version").told() == {"granted": 2, "answering": 2, "problem": ""}
    monkeypatch.setattr(health, "CUDA", "import time; time.sleep(3600)")
    slow = health.Gpus(2, tmp_path / "version", limit=0.2).told()["problem"]
    assert slow.startswith("CUDA did not answer in 0.2 s: --gpu-wait SECONDS gives it longer, and nvidia-persistenced")
    assert health.Gpus(2, tmp_path / "none").told()["answering"] is None


#: As torch.distributed.run 2.13 writes it of a node with two workers, of which the second was killed.
SUMMARY = b"""torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-23_03:00:00
  host      : node1
  rank      : 3 (local_rank: 1)
  exitcode  : -9 (pid: 4711)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4711
============================================================
"""


def failed(tmp_path: Path, said: bytes, **workers: bytes) -> dict[str, Any]:
    """Return what is known of a program whose workers said something."""
    program = watch.Program(["true"], os.environ, tmp_path, 0)
    for name, text in workers.items():
        program.tails[name.strip("w")] = tail = watch.Tail()
        tail.add(text)
    program.tails[""].add(said)
    return program.failure(1, None)


def test_a_launcher_says_which_of_its_workers_was_killed(tmp_path: Path) -> None:
    peer = b"Traceback (most recent call last):\nRuntimeError: [gloo] Connection closed by peer\n"

    one = failed(tmp_path, SUMMARY, w0=peer, w1=b"step 3\nstep 4\n")

    assert (one["rank"], one["code"], one["last"]) == (3, 137, ["step 3", "step 4"])
    assert not one["follows"]


TRACEBACK = b"Traceback (most recent call last):\n  File run.py\n"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (b"W0: hello\n" + TRACEBACK + SUMMARY, b"W0: hello\n"),
        (TRACEBACK + b"torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15\n", b""),
        (TRACEBACK + b"ValueError: --max-restarts\n", TRACEBACK + b"ValueError: --max-restarts\n"),
        (TRACEBACK + b"x\n" * watch.KEPT, TRACEBACK + b"x\n" * watch.KEPT),
    ],
)
def test_a_launchers_block_about_its_worker_is_left_out_and_nothing_else(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], said: bytes, shown: bytes
) -> None:
    (tmp_path / "said").write_bytes(said)
    ended: queue.Queue[int] = queue.Queue()
    words = ["sh", "-c", 'cat "$0" >&2; exit 1', str(tmp_path / "said")]

    watch.Program(words, os.environ, tmp_path, 1).follow(ended.put)

    assert ended.get(timeout=PATIENCE) == 1
    assert capfdbinary.readouterr().err == shown


def test_a_lost_connection_is_nobodys_cause(tmp_path: Path) -> None:
    lost = failed(tmp_path, b"Traceback (most recent call last):\nRuntimeError: Connection closed by peer\n")
    own = {**lost, "follows": False, "when": lost["when"] + 2, "node": "n2"}

    assert lost["follows"]
    assert watch.first([lost, own]) is own
    assert watch.first([lost]) is lost


def test_a_traceback_is_known_that_comes_in_pieces() -> None:
    tail = watch.Tail()
    for piece in (b"step 1\nTrace", b"back (most recent", b" call last):\n  File x\n10%\r20%\rKeyError: 'a'\n"):
        tail.add(piece)

    assert tail.began
    assert tail.last() == ["Traceback (most recent call last):", "  File x", "KeyError: 'a'"]


@pytest.mark.parametrize(
    ("nodes", "own", "unreached", "blamed"),
    [
        ("a b c", "b", [], "b"),
        ("a b c", "", [("a", "c"), ("b", "c")], "c"),
        ("a b c", "", [("c", "a"), ("c", "b")], "c"),
        ("a b c", "", [("a", "c")], "c"),
        # Whom nobody reaches, and who cannot write either, is one node.
        ("a b c", "c", [("a", "c"), ("b", "c")], "c"),
        ("a b c d", "", [("a", "c"), ("b", "c"), ("b", "d"), ("a", "d")], "c d"),
        # What is wrong on all nodes is not theirs; of one node nobody can tell.
        ("a b", "a b", [], ""),
        ("a", "a", [], "a"),
        ("a b", "", [], ""),
    ],
)
def test_the_node_is_to_blame_that_explains_most(
    nodes: str, own: str, unreached: list[tuple[str, str]], blamed: str
) -> None:
    assert requeue.at_fault(nodes.split(), own.split(), unreached) == blamed.split()


#: Slurm's commands, of a job that has two nodes of ``n[1-4]`` and leaves out n4 already; what they are told is kept.
SLURM = """#!/bin/sh
case ${0##*/} in
squeue) echo "2|batch|n4" ;;
sinfo) printf 'n1\\nn2\\nn3\\nn4\\n' ;;
scontrol) [ "$1" != show ] || { echo "KillWait                = ${KILL_WAIT:-30} sec"; exit 0; }
    echo "$*" >>"$SAID"; case $1 in $FAILS) echo "slurm_update error: $1 is refused" >&2; exit 1 ;; esac ;;
esac
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins for Slurm's commands, and the file that has what scontrol was told."""
    for name in ("squeue", "sinfo", "scontrol"):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(SLURM)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    monkeypatch.setenv("FAILS", "nothing")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return tmp_path / "said"


def test_a_job_goes_back_held_and_leaves_out_what_it_left_out_before(slurm: Path) -> None:
    assert requeue.back(7, ["n2"]) == ""
    assert slurm.read_text().splitlines() == [
        "requeuehold 7",
        "update JobId=7 ExcNodeList=n2,n4",
        "release 7",
    ]


def test_a_job_that_would_wait_for_ever_is_not_put_back(slurm: Path) -> None:
    assert (
        requeue.back(7, ["n1", "n3"])
        == "the job is not requeued: partition batch has 4 nodes, too few for 2 without n1,n3,n4"
    )
    assert not slurm.exists()


HELD = ["requeuehold 7", "update JobId=7 ExcNodeList=n2,n4", "release 7"]


@pytest.mark.parametrize(
    ("fails", "told", "said"),
    [
        ("requeuehold", "the job is not requeued: slurm_update error: requeuehold is refused", HELD[:1]),
        ("update", "the job is requeued, with these nodes: slurm_update error: update is refused", HELD),
        (
            "release",
            "the job is requeued, and held: slurm_update error: release is refused. scontrol release 7",
            [*HELD, "release 7"],
        ),
    ],
)
def test_what_slurm_refuses_is_told_as_it_is_and_the_job_is_not_left_held(
    slurm: Path, monkeypatch: pytest.MonkeyPatch, fails: str, told: str, said: list[str]
) -> None:
    monkeypatch.setenv("FAILS", fails)

    assert requeue.back(7, ["n2"]) == told
    assert slurm.read_text().splitlines() == said


def test_a_job_is_not_put_back_where_slurm_would_end_what_does_it(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KILL_WAIT", "5")

    assert "KillWait is 5 s" in requeue.back(7, ["n2"])
    assert not slurm.exists()


#: As container_task does it: a process is left outside, and in the container nothing of Slurm's is found.
ENTERED = """
import os, sys
sys.path.insert(0, {launch!r})
from torchrun_slurm import requeue
requeue.offer(os.environ, sys.argv)
os.environ["PATH"] = "/usr/bin:/bin"
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.mark.slow
@pytest.mark.parametrize("container", [False, True])
def test_a_node_that_fails_the_check_is_left_out_by_the_first_nodes_task(
    program: Path, slurm: Path, tmp_path: Path, shared: Path, container: bool
) -> None:
    Node.job += 1
    entered = tmp_path / "entered.py"
    entered.write_text(
        ENTERED.format(launch=str(LAUNCH)) if container else "import os, sys; os.execv(sys.executable, sys.argv)"
    )
    nodes = []
    for number in (0, 1):
        (tmp_path / "file").touch()
        place = shared if number == 0 else tmp_path / "file"
        words = [str(program), "--requeue-on=node-failure", "--output-dir", str(place), "--env", "kubeflow", "true"]
        nodes.append(Node(entered, number, words))

    code, said = nodes[0].end()
    assert (code, nodes[1].end()) == (75, (75, []))
    assert said[-1] == "torchrun-slurm: n2: the job is requeued without it, for turn 1 of at most 20"
    assert slurm.read_text().splitlines()[1] == f"update JobId={Node.job} ExcNodeList=n2,n4"


def test_what_is_the_programs_own_is_not_put_back(program: Path, slurm: Path) -> None:
    first, second = both(program, "--requeue-on=node-failure", *script("raise ValueError('mine')"))

    code, said = first.end()
    assert (code, second.end()[0], said[-1]) == (1, 1, "ValueError: mine")
    assert not slurm.exists()


@pytest.mark.slow
def test_a_worker_that_vanishes_on_a_machine_that_answers_is_not_the_nodes_fault(program: Path, slurm: Path) -> None:
    first, second = watched(program, "--requeue-on=node-failure")
    second.vanish()

    code, said = first.end()
    assert (code, said[-1]) == (1, "task 1 went away: its node or container ended")
    assert not slurm.exists()


def test_after_so_many_turns_a_job_ends(program: Path, slurm: Path, tmp_path: Path) -> None:
    Node.job += 1
    (tmp_path / "file").touch()
    own = {"SLURM_STEP_NODELIST": "n1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_RESTART_COUNT": "20"}
    words = ["--requeue-on=node-failure", "--output-dir", str(tmp_path / "file"), "--env", "kubeflow", "true"]

    code, said = Node(program, 0, words, **own).end()

    assert (code, said[-1]) == (75, "torchrun-slurm: n1: the job is not requeued, after 20 turns")
    assert not slurm.exists()


@pytest.mark.slow
def test_where_nothing_leads_to_slurm_it_is_said_before_anything_starts(program: Path) -> None:
    Node.job += 1
    own = {"SLURM_STEP_NODELIST": "n1", "SLURM_STEP_NUM_TASKS": "1", "PATH": "/usr/bin:/bin"}
    code, said = Node(program, 0, ["--requeue-on=node-failure", "true"], **own).end()

    assert code == 2
    assert "no way leads from this container to Slurm. Fix: give --requeue-on on the line of srun" in said[-1]


@pytest.mark.slow
def test_a_program_enters_nodes_by_ssh_with_keys_that_are_gone_afterwards(program: Path, shared: Path) -> None:
    Node.job += 1
    own = {"SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_NUM_TASKS": "1", "OF_THE_CONTAINER": "two words"}
    look = 'echo "$OF_THE_CONTAINER, rank ${RANK-none}, $PWD" >&2; cd $(dirname $(command -v ssh))/..'
    look += "; stat -c %a . key host"
    script = f"ls -A {shared}; ssh localhost '{look}'; ssh -o BatchMode=yes localhost exit 7"
    words = ["--env", "ssh", "--output-dir", str(shared), "sh", "-c", script]

    # Where the job was submitted is not in each container.
    node = Node(program, 0, words, **own, PWD="/nonexistent", RANK="0")
    out, said = node.process.communicate(timeout=PATIENCE)

    assert node.process.returncode == 7, said
    assert f"two words, rank none, {Path.cwd()}\n" in said
    assert "kex_exchange" not in said, "a look at sshd is no error in the log"
    assert out.split() == ["700", "600", "600"]
    assert list(shared.iterdir()) == []
    assert not subprocess.run(["pgrep", "-f", f"torchrun-slurm-{Node.job}-"], capture_output=True, check=False).stdout


@pytest.mark.parametrize(("code", "other", "ends"), [(0, None, 0), (3, None, 3), (None, 255, 255)])
def test_where_others_only_serve_the_first_program_its_end_is_that_of_all(
    tmp_path: Path, code: int | None, other: int | None, ends: int
) -> None:
    Node.job += 1
    own = {"SLURM_JOB_ID": str(Node.job), "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_TASKS": "2"}
    member = team.Member(step.Step(own), "127.0.0.1", 0, 1)
    with talk.listening(0) as server:
        here = socket.create_connection(("127.0.0.1", server.getsockname()[1]))
        there = server.accept()[0]
    member.lines, member.names = {1: talk.Line(here)}, {0: "n1", 1: "n2"}
    words = f"exit {code}" if code is not None else "exec sleep 3600"
    program = watch.Program(["sh", "-c", words], os.environ, tmp_path, 0)
    run = running.Run(member, program, None, served=True)
    if other is not None:
        gone = {"rank": None, "worker": "", "code": other, "when": 0.0, "follows": False, "last": [], "node": "n2"}
        talk.Line(there).say({"ended": other, "failure": gone})

    assert run.lead(0) == ends
    told = [json.loads(line) for line in there.recv(1 << 12).splitlines()]
    assert told[-1] == {"release": ends}


def test_an_image_without_sshd_is_said_to_have_none(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "PLACES", ())

    with pytest.raises(step.Refusal, match="there is no sshd here") as refused:
        ssh.found("sshd", str(tmp_path))
    assert "openssh-server" in refused.value.args[1]


def test_keys_are_taken_from_nobodys_directory_but_ones_own(tmp_path: Path) -> None:
    own = {"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_TASKS": "2"}
    way = ssh.Ssh(step.Step(own), str(tmp_path), os.environ)
    way.offer()
    shared = next(tmp_path.iterdir())
    assert sorted(one.name for one in shared.iterdir()) == ["host", "host.pub", "key", "key.pub"]

    # Put into its place by somebody who may write where it is: another owner's, an open one, a link.
    (tmp_path / "own").mkdir()
    shared.chmod(0o755)
    with pytest.raises(step.Refusal, match="is somebody else's"):
        way._take(tmp_path / "own")
    shared.rename(tmp_path / "theirs")
    shared.symlink_to(tmp_path / "theirs")
    with pytest.raises(step.Refusal, match="Not a directory"):
        way._take(tmp_path / "own")
    assert list((tmp_path / "own").iterdir()) == []
