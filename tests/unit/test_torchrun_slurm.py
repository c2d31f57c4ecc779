"""What torchrun-slurm works out for a step, for each way of starting a training, and what it refuses."""

from __future__ import annotations

import os
import socket
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from provision import content

LAUNCH = content.ROOT / "roles/slurm_image/files/image/launch"
sys.path.insert(0, str(LAUNCH))

from torchrun_slurm import hostfile, launcher, main, network, numa, rdma, step  # noqa: E402

#: Of a task of ``srun --nodes=2 --ntasks-per-node=1 --gpus-per-node=4``, as slurmstepd of 24.11 sets them.
STEP = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "gpu[01-02]",
    "SLURM_JOB_NODELIST": "gpu[01-04]",
    "SLURM_NODEID": "1",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_GPUS_ON_NODE": "4",
    "CUDA_VISIBLE_DEVICES": "0,1,2,3",
    "MASTER_ADDR": "10.0.0.1",
}
#: That of ``srun --nodes=2 --ntasks-per-node=4``.
FOUR = STEP | {
    "SLURM_PROCID": "6", "SLURM_LOCALID": "2", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
}  # fmt: skip


def dry(capsys: pytest.CaptureFixture[str], *words: str, **changed: str | None) -> tuple[int, dict[str, str], str]:
    """Return exit code, variables, and the command that would be run; a variable that is None is taken away."""
    base = changed.pop("base", None) or STEP
    environment = {**base, **changed}  # type: ignore[dict-item]
    code = main.main(["--dry-run", *words], {name: one for name, one in environment.items() if one is not None})
    told = capsys.readouterr()
    if code:
        return code, {}, told.err
    words_told = told.out.split(" ")
    variables = [word for word in words_told if word[:1].isupper() and "=" in word]
    return code, dict(word.split("=", 1) for word in variables), " ".join(words_told[len(variables) :]).strip()


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        ("node1", ["node1"]),
        ("gpu[01-03,07]", ["gpu01", "gpu02", "gpu03", "gpu07"]),
        ("a[1-2],b,c[9-11]x", ["a1", "a2", "b", "c9x", "c10x", "c11x"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("node-a[099-101].site", ["node-a099.site", "node-a100.site", "node-a101.site"]),
    ],
)
def test_slurms_list_of_nodes_is_read_without_slurm(listed: str, names: list[str]) -> None:
    assert step.hosts(listed) == names


@pytest.mark.parametrize(
    ("listed", "each"), [("1(x2)", [1, 1]), ("4,2", [4, 2]), ("2(x2),1", [2, 2, 1]), ("3", [3, 1])]
)
def test_a_nodes_tasks_are_its_own(listed: str, each: list[int]) -> None:
    assert [step.tasks(listed, node) for node in range(len(each))] == each


def test_torchrun_gets_what_a_script_would_compute_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    code, variables, command = dry(capsys, "--launcher-options", "--max-restarts 1", "train.py", "--lr", "1e-5")

    port = 20000 + 4711 * 31 % 10000
    assert code == 0
    assert variables["MASTER_ADDR"] == "10.0.0.1"
    assert variables["MASTER_PORT"] == str(port)
    assert command.split(" ", 1)[1] == (
        "-m torch.distributed.run --nnodes 2 --node_rank 1 --nproc_per_node 4 --master_addr 10.0.0.1"
        f" --master_port {port} --max-restarts 1"
        f" --no_python {sys.executable} {launcher.OWN} --torchrun-slurm-worker DIRECTORY 3"
        f" {sys.executable} -u train.py --lr 1e-5"
    )


def test_a_platforms_script_gets_nodes_as_its_world(capsys: pytest.CaptureFixture[str]) -> None:
    _, variables, command = dry(capsys, "--env", "kubeflow", "bash", "launch_ddp.sh", "train.py")

    assert (variables["WORLD_SIZE"], variables["RANK"]) == ("2", "1")
    assert command == "bash launch_ddp.sh train.py"


def test_a_task_is_a_worker_where_nothing_else_starts_them(capsys: pytest.CaptureFixture[str]) -> None:
    _, variables, command = dry(capsys, "--env", "torch", "train.py", base=FOUR)

    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    assert [variables[name] for name in names] == ["6", "2", "8", "4"]
    assert command == f"{sys.executable} -u train.py"


def test_deepspeed_is_started_without_ssh_with_hosts_of_this_job(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _, variables, command = dry(capsys, "--env", "deepspeed", "train.py", "--deepspeed", "ds.json")

    assert command == (
        "deepspeed --hostfile DIRECTORY/hosts --no_ssh --node_rank 1 --master_addr 10.0.0.1"
        f" --master_port {variables['MASTER_PORT']} --no_python {launcher.OWN}"
        f" --torchrun-slurm-worker DIRECTORY 3 {sys.executable} -u train.py --deepspeed ds.json"
    )
    launcher.Plan(step.Step(STEP), main.options(["--env", "deepspeed", "train.py"]), STEP).list_hosts(tmp_path)
    assert (tmp_path / "hosts").read_text() == "gpu01 slots=4\ngpu02 slots=4\n"


def test_what_the_user_has_set_stays(capsys: pytest.CaptureFixture[str]) -> None:
    own = {"MASTER_PORT": "23456", "OMP_NUM_THREADS": "7", "NCCL_SOCKET_IFNAME": "ib0"}

    _, variables, _ = dry(capsys, "train.py", **own)

    assert {name: variables.get(name, own[name]) for name in own} == own


@pytest.mark.parametrize(
    ("words", "processors", "threads"),
    [((), 64, "16"), (("--nproc-per-node", "3"), 64, "21"), ((), 2, "1"), (("--env", "torch"), 64, "8")],
)
def test_a_workers_threads_are_its_part_of_the_processors_that_the_task_has(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    processors: int,
    threads: str,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))
    tasks = {"SLURM_STEP_TASKS_PER_NODE": "8(x2)", "CUDA_VISIBLE_DEVICES": ""} if words == ("--env", "torch") else {}

    assert dry(capsys, *words, "train.py", **tasks)[1]["OMP_NUM_THREADS"] == threads


def test_jobs_and_steps_side_by_side_have_ports_of_their_own() -> None:
    ports = {
        step.Step({**STEP, "SLURM_JOB_ID": str(job), "SLURM_STEP_ID": str(number)}).port
        for job in range(100, 140)
        for number in range(5)
    }

    assert len(ports) == 200
    assert 20000 <= min(ports) <= max(ports) < 30000


@pytest.mark.parametrize(
    ("visible", "on_node", "count"),
    [
        ("0,1", "8", 2),
        ("", "8", 0),
        ("NoDevFiles", "1", 0),
        ("GPU-1,GPU-2,GPU-3", None, 3),
        (None, "4", 4),
        (None, None, 0),
    ],
)
def test_gpus_are_those_that_were_granted(visible: str | None, on_node: str | None, count: int) -> None:
    given = {"CUDA_VISIBLE_DEVICES": visible, "SLURM_GPUS_ON_NODE": on_node}

    assert step.granted({name: value for name, value in given.items() if value is not None}) == count


@pytest.mark.parametrize(
    ("words", "changed", "said"),
    [
        (["train.py"], {"SLURM_JOB_ID": None}, "this is no job of Slurm's"),
        (["train.py"], {"SLURM_STEP_NODELIST": None}, "this is its batch script"),
        (["train.py"], {"SLURM_STEP_TASKS_PER_NODE": "4(x2)"}, "4 tasks on a node would each start 4 workers"),
        (["--nproc-per-node", "8", "train.py"], {}, "8 workers of a node for 4 granted GPUs"),
        (["--nproc-per-node", "0", "train.py"], {}, "it must be 1 or more"),
        (["--env", "torch", "train.py"], {"SLURM_STEP_TASKS_PER_NODE": "8(x2)"}, "8 tasks of a node, each a worker"),
        ([], {}, "no program is named"),
        (["--launcher-options", "it's", "train.py"], {}, "close the quote"),
        (["--env", "kubeflow", "--launcher-options=-m", "a.sh"], {}, "with --env kubeflow no launcher is started"),
        (["--env", "ssh", "deepspeed", "a.py"], {"CUDA_VISIBLE_DEVICES": "2,3"}, "from 0 on (0,1), and this job has"),
        (["train.py"], {"SLURM_STEP_TASKS_PER_NODE": "1,2"}, "2 tasks on a node"),
        (["train.py"], {"SLURM_JOB_ID": "x"}, "SLURM_JOB_ID is x, which is no number"),
        (["train.py"], {"SLURM_STEP_NODELIST": "n[a-b]"}, "SLURM_STEP_NODELIST: n[a-b] is no list of nodes"),
        (["train.py"], {"SLURM_STEP_NODELIST": "n[3-1]"}, "3-1 ends before it begins"),
        (["--requeue-on", "node-failure", "a.py"], {"SLURM_RESTART_COUNT": "x"}, "SLURM_RESTART_COUNT is x, which is"),
        (["train.py"], {"MASTER_PORT": "abc"}, "MASTER_PORT is abc: a port is from 1 to 65535"),
        (["train.py"], {"MASTER_PORT": "0"}, "MASTER_PORT is 0"),
        (["train.py"], {"OMP_NUM_THREADS": "zero"}, "OMP_NUM_THREADS is zero: it must be a whole number"),
        (["train.py"], {"OMP_NUM_THREADS": "0"}, "OMP_NUM_THREADS is 0"),
        (["--check-wait", "0", "train.py"], {}, "--check-wait 0: "),
        (["--check-wait", "nan", "train.py"], {}, "--check-wait nan: "),
        (["train.py"], {"MASTER_ADDR": None, "SLURM_STEP_NODELIST": "no-host[1-2].invalid"}, "has no address here"),
        (["train.py"], {"MASTER_ADDR": None, "SLURM_STEP_NODELIST": "localhost,gpu02"}, "which is every machine's own"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_with_what_to_do(
    capsys: pytest.CaptureFixture[str], words: list[str], changed: dict[str, Any], said: str
) -> None:
    code, _, told = dry(capsys, *words, **changed)

    assert code == 2
    assert said in told
    assert ". Fix: " in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"CUDA_VISIBLE_DEVICES": "0"},  # each its own: --gpus-per-task, --gpu-bind
        {"CUDA_VISIBLE_DEVICES": ""},
        {"CUDA_VISIBLE_DEVICES": None, "SLURM_GPUS_ON_NODE": None},
        {"SLURM_STEP_TASKS_PER_NODE": "4(x2)"},
    ],
)
def test_tasks_that_share_no_gpu_or_do_so_on_purpose_are_workers(
    capsys: pytest.CaptureFixture[str], changed: dict[str, Any]
) -> None:
    own = {"base": FOUR, "SLURM_STEP_TASKS_PER_NODE": "8(x2)", **changed}

    assert dry(capsys, "--env", "torch", "train.py", **own)[0] == 0


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        ("--nproc_per_node 9", "Fix: torchrun-slurm --nproc-per-node N"),
        ("--nproc 9", "--nproc-per-node N"),
        ("-H/tmp/foreign", "the job's nodes are known"),
        ("--nnodes 1:4", "srun --nodes=N"),
        ("--standalone", "srun --nodes=N"),
        ("--node-rank=0", "Slurm counts the nodes"),
        ("--rdzv_endpoint=host:1", "MASTER_ADDR"),
        ("--master_port 1", "MASTER_PORT"),
    ],
)
@pytest.mark.parametrize("env", ["torchrun", "deepspeed"])
def test_a_launcher_is_told_nothing_else_than_the_job_has(
    capsys: pytest.CaptureFixture[str], env: str, given: str, fix: str
) -> None:
    code, _, told = dry(capsys, "--env", env, f"--launcher-options={given}", "train.py")

    assert (code, len(told.splitlines())) == (2, 1)
    assert f"--launcher-options {given}: --" in told or f"--launcher-options {given}: -H" in told
    assert "is said to the launcher already" in told
    assert fix in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--launcher-options", "-m", "train.main"], "-u -m train.main"),
        (["--launcher-options", "--max-restarts=2", "train.py"], "--max-restarts=2 --no_python"),
        (["--nproc_per_node", "2", "train.py"], "--nproc_per_node 2 "),
        (["-m", "train.main", "-m", "x"], "-u -m train.main -m x"),
        (["--no_python", "./train", "-h"], "DIRECTORY 1 ./train -h"),
        (["--env", "deepspeed", "-m", "train.main"], "-u -m train.main"),
        (["--no-bind", "--", "train.py", "--", "a"], "-u train.py -- a"),
    ],
)
def test_words_are_taken_as_torchrun_takes_them(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    code, _, command = dry(capsys, *words)

    assert code == 0
    assert said in f"{command} "


@pytest.mark.parametrize(
    ("words", "said", "fix"),
    [
        (
            ["--max-restarts=2", "train.py"],
            "there is no option --max-restarts=2",
            "--launcher-options=--max-restarts=2",
        ),
        (["--nnodes", "2", "train.py"], "--nnodes: what it says follows from the job", "srun --nodes=N"),
        (["-n", "4", "train.py"], "there is no option -n", "--help"),
        (["--nproc-per-node", "gpu", "train.py"], "--nproc-per-node: gpu: it must be a number", "--help"),
        (["--hold", "soon", "train.py"], "--hold: soon: a number and s, m, h or d", "--help"),
        (["--launcher-options"], "--launcher-options: expected one argument", "--help"),
        (["--env", "torch", "-m", "train.main"], "-m: with --env torch", "torchrun-slurm --env torch python -m MODULE"),
    ],
)
def test_a_wrong_option_ends_with_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str, fix: str
) -> None:
    code, _, told = dry(capsys, *words)

    assert (code, len(told.splitlines())) == (2, 1)
    assert said in told
    assert fix in told.partition(". Fix: ")[2]


def test_a_port_that_is_taken_is_told_before_workers_wait_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    first = {"SLURM_NODEID": "0", "SLURM_PROCID": "0"}
    with socket.create_server(("", step.Step(STEP).port)):
        code, _, told = dry(capsys, "train.py", **first)

    assert code == 2
    assert f"port {step.Step(STEP).port} of gpu01 is taken" in told
    assert dry(capsys, "train.py", **first)[0] == 0


def port(root: Path, device: str, link: str, state: str = "4: ACTIVE", gids: tuple[tuple[str, str], ...] = ()) -> None:
    """Make a port of an adapter as the kernel shows it: Documentation/ABI/stable/sysfs-class-infiniband."""
    place = root / device / "ports/1"
    (place / "gid_attrs/types").mkdir(parents=True)
    (place / "gids").mkdir()
    texts = {"link_layer": link, "state": state, "rate": "200 Gb/sec (4X HDR)"}
    for index, (kind, gid) in enumerate(gids):
        texts |= {f"gid_attrs/types/{index}": kind, f"gids/{index}": gid}
    for name, text in texts.items():
        (place / name).write_text(f"{text}\n")


LOCAL, ROUTED = "fe80:0000:0000:0000:0a", "0000:0000:0000:0000:0000:ffff:0a00:0001"
KINDS = (("IB/RoCE v1", LOCAL), ("RoCE v2", LOCAL), ("IB/RoCE v1", ROUTED), ("RoCE v2", ROUTED))


def test_adapters_are_named_that_nccl_takes_and_the_gid_of_roce_with_the_reason(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0", "InfiniBand")
    port(tmp_path, "mlx5_1", "InfiniBand", "1: DOWN")
    port(tmp_path, "mlx5_2", "Ethernet", gids=KINDS)
    port(tmp_path, "mlx5_3", "Ethernet", gids=KINDS[:2])

    assert rdma.adapters({}, str(tmp_path)) == [
        "mlx5_0:1 InfiniBand 200 Gb/sec",
        "mlx5_2:1 RoCE 200 Gb/sec, GID 3: RoCE v2, IPv4",
        "mlx5_3:1 RoCE 200 Gb/sec, no GID of RoCE v2 with an IPv4 address"
        " (give its interface one, or leave the port out: NCCL_IB_HCA=^=mlx5_3)",
    ]
    assert rdma.adapters({}, str(tmp_path / "none")) == []


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"NCCL_IB_DISABLE": "1"}, ["NCCL_IB_DISABLE=1: no RDMA"]),
        ({"NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": "^=mlx5_1"}, ["left out by NCCL_IB_HCA=^=mlx5_1", "RoCE 200"]),
        # Without = it is the beginning of a name.
        ({"NCCL_IB_HCA": "mlx5_1"}, ["RoCE 200", "RoCE 200"]),
        ({"NCCL_IB_HCA": "=mlx5_1:2,mlx5_10:1"}, ["left out by NCCL_IB_HCA=", "RoCE 200"]),
        ({"NCCL_IB_GID_INDEX": "2"}, ["GID 2: IB/RoCE v1, IPv4 (NCCL_IB_GID_INDEX)"] * 2),
        ({"NCCL_IB_GID_INDEX": "9"}, ["GID 9 by NCCL_IB_GID_INDEX is empty"] * 2),
        ({"NCCL_IB_GID_INDEX": "-1"}, ["GID 3: RoCE v2, IPv4"] * 2),
        ({"NCCL_IB_TC": "106"}, ["GID 3: RoCE v2, IPv4, traffic class 106 (NCCL_IB_TC)"] * 2),
    ],
)
def test_what_nccl_is_told_of_adapters_is_obeyed_and_shown(
    tmp_path: Path, variables: dict[str, str], said: list[str]
) -> None:
    port(tmp_path, "mlx5_1", "Ethernet", gids=KINDS)
    port(tmp_path, "mlx5_10", "Ethernet", gids=KINDS)

    found = rdma.adapters(variables, str(tmp_path))

    assert len(found) == len(said)
    assert all(words in one for words, one in zip(said, found, strict=True)), found


@pytest.mark.parametrize(
    ("release", "kinds", "others", "index", "said"),
    [
        ("2.21.5-1", KINDS, KINDS, "", "GID 3: RoCE v2, IPv4"),
        ("", KINDS, KINDS, "", "GID 3: RoCE v2, IPv4"),
        ("2.19.3+cuda12.3", KINDS, KINDS, "3", "GID 3: RoCE v2, IPv4 (set here: NCCL 2.19.3 takes 0 by itself)"),
        # The number is one for all ports, and there is none where all have what is wanted at 0.
        ("2.19.3", KINDS, KINDS[3:], "", "GID 0: IB/RoCE v1, IPv6, where 3 would be right, which is not so on all"),
        ("2.19.3", KINDS, (*KINDS[1:], KINDS[3]), "3", "GID 3: RoCE v2, IPv4 (set here"),
        ("2.19.3", KINDS[3:], KINDS[3:], "", "GID 0: RoCE v2, IPv4"),
        ("2.19.3", KINDS[:2], KINDS[:2], "", "no GID of RoCE v2 with an IPv4 address"),
        ("2.21.5", (*KINDS, KINDS[3]), KINDS, "", "GID 3: RoCE v2, IPv4, the first of 2 such: NCCL_IB_GID_INDEX for"),
    ],
)  # fmt: skip
def test_a_gid_is_set_where_an_older_nccl_would_take_a_wrong_one(
    tmp_path: Path, release: str, kinds: Any, others: Any, index: str, said: str
) -> None:
    port(tmp_path, "mlx5_0", "InfiniBand")
    port(tmp_path, "mlx5_1", "Ethernet", gids=kinds)
    port(tmp_path, "mlx5_2", "Ethernet", gids=others)
    own = {"NCCL_VERSION": release}

    assert rdma.gid_index(own, str(tmp_path)) == index
    assert rdma.adapters(own, str(tmp_path), index)[1].startswith(f"mlx5_1:1 RoCE 200 Gb/sec, {said}")
    for users in ({"NCCL_IB_GID_INDEX": "1"}, {"NCCL_IB_DISABLE": "1"}, {"NCCL_IB_HCA": "=mlx5_0"}):
        assert rdma.gid_index({**own, **users}, str(tmp_path)) == "", "the user's own word stands"


def test_a_gid_that_is_set_is_in_the_line_and_in_the_workers_variables(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    port(tmp_path, "mlx5_1", "Ethernet", gids=KINDS)
    monkeypatch.setattr(rdma, "ROOT", str(tmp_path))
    first = {"SLURM_NODEID": "0", "SLURM_PROCID": "0", "NCCL_VERSION": "2.19.3"}

    assert main.main(["--dry-run", "train.py"], {**STEP, **first}) == 0

    told = capsys.readouterr()
    assert "GID 3: RoCE v2, IPv4 (set here: NCCL 2.19.3 takes 0 by itself)" in told.err
    assert "NCCL_IB_GID_INDEX=3 " in told.out


def test_the_release_of_nccl_is_that_of_the_package_which_pytorch_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "nvidia-nccl-cu12":
            return "2.20.5"
        raise metadata.PackageNotFoundError(name)

    image = {"NCCL_VERSION": "2.27.3-1"}
    assert rdma.nccl(image) == (2, 27, 3)
    assert rdma.nccl({}) == ()
    monkeypatch.setattr(metadata, "version", version)
    assert rdma.nccl(image) == (2, 20, 5)


#: By the kernel's order; ib0 is the network for training.
HAVE = {"lo": "127.0.0.1", "eth0": "10.0.0.1", "ib0": "10.1.0.1", "ib1": "10.2.0.1"}


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({}, "eth0"),
        ({"NCCL_SOCKET_IFNAME": "ib0"}, "ib0"),
        ({"NCCL_SOCKET_IFNAME": "ib"}, "ib0"),
        ({"NCCL_SOCKET_IFNAME": "=ib"}, ""),
        ({"NCCL_SOCKET_IFNAME": "^eth,ib0"}, "ib1"),
        ({"NCCL_SOCKET_IFNAME": "^=eth"}, "eth0"),
        ({"NCCL_SOCKET_IFNAME": "ib7", "GLOO_SOCKET_IFNAME": "ib1"}, ""),
        ({"GLOO_SOCKET_IFNAME": "ib1"}, "ib1"),
        ({"GLOO_SOCKET_IFNAME": "ib"}, ""),
    ],
)
def test_the_interface_is_the_one_that_nccl_is_told_to_take(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], name: str
) -> None:
    monkeypatch.setattr(network, "interfaces", lambda: HAVE)
    monkeypatch.setattr(network, "own_address", lambda _: "10.0.0.1")

    way = network.way(variables, "10.0.0.2")

    assert (way.name, way.address) == (name, HAVE.get(name, ""))
    assert bool(way.problem) == (not name)
    if not name:
        told = next(f"{variable}={value}" for variable, value in variables.items())
        assert way.problem.startswith(f"{told}: no interface of that name has an IPv4 address here. ip -4")


def test_what_is_told_and_what_is_set_follow_the_interface_that_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "interfaces", lambda: HAVE)
    first = {"SLURM_NODEID": "0", "SLURM_PROCID": "0", "NCCL_SOCKET_IFNAME": "ib0"}

    assert main.main(["--dry-run", "train.py"], {**STEP, **first}) == 0

    told = capsys.readouterr()
    assert " by ib0, " in told.err
    assert "NCCL_SOCKET_IFNAME=ib0 GLOO_SOCKET_IFNAME=ib0 " in told.out


#: Two GPUs near each of two groups of processors, as an NVIDIA driver and the kernel show them.
#: By number of the device file, which is not the order of the bus.
BUS = {2: ("0000:17:00.0", "0-3"), 1: ("0000:3b:00.0", "0-3"), 0: ("0000:ca:00.0", "4-7"), 3: ("0000:e3:00.0", "4-7")}


def gpus(root: Path) -> None:
    for minor, (address, listed) in BUS.items():
        own = root / "proc/driver/nvidia/gpus" / address
        own.mkdir(parents=True)
        (own / "information").write_text(f"Model: \t\t NVIDIA A100\nDevice Minor: \t {minor}\n")
        place = root / "sys/bus/pci/devices" / address
        place.mkdir(parents=True)
        (place / "local_cpulist").write_text(f"{listed}\n")


@pytest.mark.parametrize(
    ("visible", "reachable", "allowed", "near"),
    [
        (None, {0, 1, 2, 3}, range(8), [{0, 1, 2, 3}, {0, 1, 2, 3}, {4, 5, 6, 7}, {4, 5, 6, 7}]),
        # Slurm counts the granted ones from nought.
        ("0,1", {0, 1}, range(8), [{0, 1, 2, 3}, {4, 5, 6, 7}]),
        ("1,0", {0, 1}, (0, 1, 4, 5), [{4, 5}, {0, 1}]),
        # Nothing is to be chosen, or nothing can be.
        ("0,1", {1, 2}, range(4), []),
        ("0,1", {0, 1}, range(4), []),
        ("GPU-5f1c", {0}, range(8), []),
        ("0,5", {0, 1}, range(8), []),
    ],
)
def test_each_worker_stays_near_its_gpu(
    tmp_path: Path, visible: str | None, reachable: set[int], allowed: Any, near: list[set[int]]
) -> None:
    gpus(tmp_path)

    assert numa.near(visible, set(allowed), tmp_path, reachable) == near


def test_a_machine_without_nvidias_driver_binds_nobody(tmp_path: Path) -> None:
    assert numa.near("0", {0, 1}, tmp_path) == []


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ("gpu01 slots=4\n# spare\n\ngpu02 slots=2\n", ""),
        ("gpu01\n", ""),
        (
            "gpu01 slots=4\nmanager slots=1\n",
            "hosts:2: manager is no node of this job. Fix: name gpu01, gpu02; or leave",
        ),
        ("gpu01 slots=8\n", "hosts:1: 8 slots for 4 granted GPUs of a node. Fix: slots=4; or more"),
        (None, "hosts: No such file or directory. Fix: leave the list of hosts out"),
    ],
)
@pytest.mark.parametrize("option", ["--hostfile", "-H", "--hostfile="])
def test_a_list_of_hosts_is_of_this_job(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    listed: str | None, said: str, option: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    if listed is not None:
        (tmp_path / "hosts").write_text(listed)
    own = [f"{option}hosts"] if option.endswith("=") else [option, "hosts"]

    code, variables, told = dry(capsys, "--env", "ssh", "deepspeed", *own, "train.py")

    assert code == (2 if said else 0)
    assert said in told
    if not said:
        meets = f"--master_addr 10.0.0.1 --master_port {variables['MASTER_PORT']}"
        assert told == f"deepspeed {meets} {' '.join(own)} train.py"
    else:
        assert len(told.splitlines()) == 1


def test_deepspeed_by_ssh_is_told_of_the_jobs_nodes_and_of_what_the_user_says_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, variables, told = dry(capsys, "--env", "ssh", "deepspeed", "--master_port=7", "train.py")
    _, _, other = dry(capsys, "--env", "ssh", "mpirun", "-H", "gpu01,gpu02", "train")

    assert told == "deepspeed --hostfile DIRECTORY/hosts --master_addr 10.0.0.1 --master_port=7 train.py"
    assert "MASTER_PORT" in variables
    assert other == "mpirun -H gpu01,gpu02 train"


@pytest.mark.parametrize(
    ("words", "file"),
    [
        ("deepspeed -Hmine train.py -H 768", "mine"),
        ("deepspeed --module --hostfile mine package", "mine"),
        ("deepspeed --num_gpus 2 --launcher_args -p --hostfile mine train.py", "mine"),
        ("mpirun --allow-run-as-root -np 2 --hostfile mine python3 train.py --hostfile other", "mine"),
        ("mpirun -np 2 python3 train.py --hostfile other", None),
        ("mpirun -H a,b --machinefile=mine ./train", "mine"),
        ("bash train.sh --hostfile other", None),
        ("train.py --hostfile other", None),
    ],
)
def test_the_list_of_hosts_is_the_launchers_own(words: str, file: str | None) -> None:
    assert hostfile.host_file(words.split()) == file


@pytest.mark.parametrize(("task", "node"), [(0, "a"), (1, "a"), (2, "b"), (3, "b"), (4, "c")])
def test_a_task_that_says_nothing_is_known_by_its_node(task: int, node: str) -> None:
    own = {**STEP, "SLURM_STEP_NODELIST": "a,b,c", "SLURM_STEP_TASKS_PER_NODE": "2(x2),1"}

    assert step.Step(own).node_of(task) == node
