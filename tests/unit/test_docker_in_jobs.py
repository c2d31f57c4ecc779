"""What Docker's options become in a job: what means something else there, is left out, or is refused."""

from __future__ import annotations

import json
import os
import resource
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from provision import content

IMAGE = content.ROOT / "roles/slurm_image/files/image"
sys.path.insert(0, str(IMAGE))
OPTIONS: dict[str, Any] = runpy.run_path(str(IMAGE / "run_options.py"))
GPUS: dict[str, Any] = vars(sys.modules["granted_gpus"])
DOCKER: dict[str, Any] = runpy.run_path(str(IMAGE / "docker"))
COMPOSE: dict[str, Any] = runpy.run_path(str(IMAGE / "compose.py"))
sys.path.remove(str(IMAGE))
#: Of a job with the second and the third of a node's four GPUs.
JOB = {"SLURM_JOB_GPUS": "1,2", "USER": "ada"}


def run(
    *words: str, known: dict[str, tuple[str, ...]] | None = None, **environment: str
) -> tuple[list[str], list[str], Any]:
    """Return Podman's options, without what every container gets; the lines for the user; and all that was read."""
    read = OPTIONS["Run"]([*words, "img", "sh", "-c", "true"], JOB | environment, known or {})
    told = read.words()
    assert told[-4:] == ["img", "sh", "-c", "true"]
    always = ("--init", "--security-opt=label=disable", "--env=SLURM_JOB_GPUS", "--env=CUDA_VISIBLE_DEVICES=")
    return [word for word in told[:-4] if word not in always], read.told, read


def test_a_container_has_what_the_site_gives_every_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = sys.modules["site_environment"]
    told = [("HF_HOME", str(tmp_path), True), ("PIP_NO_INDEX", "1", False), ("UNSET", "1", False)]
    monkeypatch.setattr(site, "lines", lambda *_: told)
    mount = f"{tmp_path}:{tmp_path}"

    words = run(HF_HOME="/mine", PIP_NO_INDEX="1")[0]
    assert [word for word in words if word.startswith("--env=")] == ["--env=HF_HOME", "--env=PIP_NO_INDEX"]
    assert mount in words
    assert mount not in run("-v", f"/tmp:{tmp_path}:ro")[0]
    assert mount not in run("--mount", f"type=bind,source=/tmp,target={tmp_path}")[0]


@pytest.mark.parametrize("name", ["mine", "mine:1", "team/mine:1", "localhost/mine:1"])
def test_what_is_pushed_without_a_registry_is_said_to_be_kept_already(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = subprocess.CompletedProcess([], 0, stdout="/home/ada/.local/share/clusterctl/images\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)

    assert DOCKER["main"](["push", name]) == 125
    said = capsys.readouterr().err
    assert f"{name} names no registry" in said
    assert "kept in /home/ada/.local/share/clusterctl/images, where all your jobs find it" in said
    assert "docker login REGISTRY" in said


def test_an_image_that_is_here_is_not_pulled_where_no_registry_answers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = {"site:1": 0, "other:1": 1}
    monkeypatch.setitem(DOCKER["pull"].__globals__, "silent", lambda _: "docker.io does not answer from node1")
    monkeypatch.setitem(
        DOCKER["pull"].__globals__, "done", lambda words: subprocess.CompletedProcess(words, codes[words[-1]])
    )

    assert DOCKER["main"](["pull", "site:1"]) == 0
    assert "site:1 is here already; docker.io does not answer from node1" in capsys.readouterr().err
    assert DOCKER["main"](["pull", "other:1"]) == 125


def test_what_is_pushed_to_a_registry_is_podmans(monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, words: became.append(words))

    for name in ("harbor.site/ada/mine:1", "docker.io/ada/mine"):
        DOCKER["main"](["push", name])
    assert [words[-2:] for words in became] == [["push", "harbor.site/ada/mine:1"], ["push", "docker.io/ada/mine"]]


BOTH = "--device=/dev/nvidia1 --device=/dev/nvidia2 --env=CUDA_VISIBLE_DEVICES=0,1"
#: Docker's words, what Podman is told, and a piece of what the user is told.
TABLE = [
    ("--rm -it", "--rm --interactive --tty", ""),
    ("-itd --name=a", "--interactive --tty --detach --name=a", ""),
    ("-itw/x -eA=b", "--interactive --tty --workdir=/x --env=A=b", ""),
    ("--entrypoint= ", "--entrypoint=", ""),
    ("--label --privileged", "--label=--privileged", ""),
    ("--gpus all", BOTH, ""),
    ("--gpus device=1", "--device=/dev/nvidia2 --env=CUDA_VISIBLE_DEVICES=0", ""),
    ('--gpus "device=0,1"', BOTH, ""),
    ('--gpus "device=1","capabilities=utility"', "--device=/dev/nvidia2 --env=CUDA_VISIBLE_DEVICES=0", ""),
    ("--gpus count=1,capabilities=gpu", "--device=/dev/nvidia1 --env=CUDA_VISIBLE_DEVICES=0", ""),
    # As Docker has it: one where nothing is said of the number.
    ("--gpus driver=nvidia,capabilities=utility,compute", "--device=/dev/nvidia1 --env=CUDA_VISIBLE_DEVICES=0", ""),
    ("--device nvidia.com/gpu=1", "--device=/dev/nvidia2 --env=CUDA_VISIBLE_DEVICES=0", ""),
    ("--runtime=nvidia", BOTH, "--runtime nvidia is left out"),
    ("--device /dev/nvidia2", "--device=/dev/nvidia2", ""),
    ("--device /dev/infiniband/uverbs0", "--device=/dev/infiniband/uverbs0", ""),
    ("--privileged", "", "--privileged gives no more"),
    ("--privileged=false", "", ""),
    ("--network host", "--network=host", ""),
    ("--network bridge", "", ""),
    ("--network test-net", "", "--network test-net: the container is on its node's network"),
    ("--network none", "--network=none", ""),
    ("-p 6006:6006", "", "--publish is left out: the container is on its node's network"),
    ("--ipc=host", "--ipc=host", ""),
    ("--shm-size 1g", "", "--shm-size 1g is left out: /dev/shm is the job's"),
    ("--shm-size=1g --ipc=private", "--ipc=private --shm-size=1g", ""),
    ("--pid=host", "", "--pid is left out: a container sees its own processes"),
    ("--memory 4g", "", "--memory is left out: what a job may use is Slurm's to say"),
    ("--security-opt apparmor=unconfined", "", ""),
    ("--security-opt seccomp=unconfined", "--security-opt=seccomp=unconfined", ""),
    ("--add-host api:host-gateway", "--add-host=api:127.0.0.1", ""),
    ("--user 2001:3001", "", "root in the container is you"),
    ("-u ada", "", "root in the container is you"),
    ("-v data:/data", "--volume=data:/data", ""),
    ("-v /tmp:/x:ro", "--volume=/tmp:/x:ro", ""),
    ("--mount type=bind,source=/tmp,target=/x", "--mount=type=bind,source=/tmp,target=/x", ""),
    ("--ulimit nosuch=3", "--ulimit=nosuch=3", ""),
]  # fmt: skip


@pytest.mark.parametrize(("docker", "podman", "says"), TABLE, ids=[row[0] for row in TABLE])
def test_an_option_becomes_what_it_means_in_a_job(
    docker: str, podman: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 2001)
    words, told, _ = run(*([docker.strip()] if docker.endswith(" ") else docker.split()))

    assert words == podman.split()
    assert any(says in line for line in told) if says else told == []


def test_adapters_are_given_where_a_node_has_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["job_container"], "INFINIBAND", str(tmp_path / "infiniband"))
    asked = ("--device", f"{tmp_path}/infiniband")
    words, told, _ = run(*asked)
    assert (words, told) == ([], [f"{' '.join(asked)} is left out: this node has no RDMA adapter"])

    # Podman takes a directory of devices, and refuses one without any.
    (tmp_path / "infiniband").mkdir()
    assert run(*asked)[0] == []

    (tmp_path / "infiniband/uverbs0").touch()
    assert run(*asked)[:2] == ([f"--device={tmp_path}/infiniband"], [])


def test_a_limit_above_the_jobs_own_is_cut_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (100, 4096 if kind == resource.RLIMIT_NOFILE else -1))

    words, told, _ = run("--ulimit", "nofile=1048576", "--ulimit", "nofile=10:20", "--ulimit", "memlock=-1")

    assert words == ["--ulimit=nofile=4096", "--ulimit=nofile=10:20", "--ulimit=memlock=-1"]
    assert told == ["--ulimit nofile=1048576: this job's hard limit is 4096, which it gets"]


def test_process_one_takes_signals_and_is_the_program_only_where_that_is_asked() -> None:
    assert "--init" in OPTIONS["Run"](["img"], JOB, {}).words()
    assert "--init" not in OPTIONS["Run"](["--init=false", "img"], JOB, {}).words()


def test_gpus_have_the_names_of_nvidias_description_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text(
        "kind: nvidia.com/gpu\ndevices:\n"
        "- {name: '0', containerEdits: {deviceNodes: [{path: /dev/nvidia1}]}}\n"
        "- {name: GPU-a, containerEdits: {deviceNodes: [{path: /dev/nvidia1}]}}\n"
        "- {name: GPU-other, containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}}\n"
        "- {name: all, containerEdits: {deviceNodes: [{path: /dev/nvidia1}, {path: /dev/nvidia2}]}}\n"
    )
    (tmp_path / "other.yaml").write_text("- no description\n")
    known = GPUS["described"]([str(tmp_path)])

    # Its number is NVIDIA's count, not the device file's.
    assert run("--gpus", "1", known=known)[0][0] == "--device=nvidia.com/gpu=0"
    # What nvidia-smi tells in the job: not the device file's number, either.
    assert run("--gpus", '"device=GPU-a"', known=known)[0][0] == "--device=nvidia.com/gpu=0"
    with pytest.raises(GPUS["RefusedError"], match="GPU-other is not this job's"):
        run("--gpus", "device=GPU-other", known=known)
    uuids = {"CUDA_VISIBLE_DEVICES": "GPU-a"}
    assert run("--gpus", "all", known=known, **uuids)[0][0] == "--device=nvidia.com/gpu=GPU-a"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes device files, of which a job can open some."""

    def made(files: str, opened: str) -> str:
        for name in files.split():
            path = tmp_path / "dev" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        monkeypatch.setitem(GPUS, "opens", lambda _, file: file.removeprefix("/dev/") in opened.split())
        return str(tmp_path)

    return made


@pytest.mark.parametrize(
    ("counted", "opened", "found"),
    [
        # gres.conf names nvidia2 and nvidia3 alone, or its detection counts in the order of the bus.
        ("0", "nvidia2", ["2"]),
        ("0,1", "nvidia3 nvidia10", ["3", "10"]),
        # Nothing keeps the others away: Slurm's numbers are all there is.
        ("1", "nvidia0 nvidia2 nvidia3 nvidia10", ["1"]),
        ("1", "", ["1"]),
        ("", "nvidia0", []),
    ],
)
def test_granted_is_what_the_job_can_open(machine: Any, counted: str, opened: str, found: list[str]) -> None:
    root = machine("nvidia0 nvidia2 nvidia3 nvidia10 nvidiactl nvidia-uvm", opened)

    assert GPUS["granted"]({"SLURM_STEP_GPUS": counted}, {}, root) == found


def test_parts_of_a_gpu_are_granted_by_their_own_files(machine: Any, tmp_path: Path) -> None:
    part = "nvidia-caps/nvidia-cap"
    files = {"0:0": f"nvidia0 {part}12", "0:1": f"nvidia0 {part}21", "MIG-b": f"nvidia0 {part}21", "1": "nvidia1"}
    devices = [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": f"/dev/{node}"} for node in nodes.split()]}}
        for name, nodes in files.items()
    ]
    (tmp_path / "nvidia.yaml").write_text(json.dumps({"kind": "nvidia.com/gpu", "devices": devices}))
    known = GPUS["described"]([str(tmp_path)])
    root = machine(f"nvidia0 nvidia1 {part}12 {part}21", f"nvidia0 nvidia1 {part}21")

    # Slurm counts the two parts as 0 and 1, and the whole one as 2.
    mine = GPUS["granted"]({"SLURM_STEP_GPUS": "1,2"}, known, root)
    assert mine == ["1", "0:1"]
    assert GPUS["devices"](mine, known) == ["--device=nvidia.com/gpu=1", "--device=nvidia.com/gpu=0:1"]


@pytest.mark.parametrize(
    ("mine", "job", "opened", "minors", "found"),
    [
        # No control group: Slurm's numbers.
        ("0", "0,2", "0 1 2 3", "", "0 2"), ("2", "2", "0 1 2 3", "", "2"), ("2", "", "0 1 2 3", "", "2"),
        # Made-up GPUs nobody can open.
        ("0", "0,2", "", "", "0 2"),
        # The task may open one of the job's: by its number, or by its place on the bus.
        ("0", "0,2", "0", "", "0 2"), ("2", "0,2", "2", "0 1 2 3", "0 2"),
        ("0", "0,1", "2", "2 3 0 1", "2 3"), ("2,3", "0,2,3", "0 1", "2 3 0 1", "0 1 2"),
        # It may open all that the job has (--gres-flags=allow-task-sharing), whatever Slurm's numbers are.
        ("0", "0,1", "2 3", "", "2 3"),
        # Neither agrees, or both do and name others: all, of which the control group lets each task open its own.
        ("0", "0,1", "3", "", "0 1 2 3"), ("0", "0,1", "0", "0 2 1 3", "0 1 2 3"), ("0", "0,7", "0", "", "0 1 2 3"),
    ],
)  # fmt: skip
def test_a_container_of_several_tasks_has_the_gpus_of_the_job(
    machine: Any, tmp_path: Path, mine: str, job: str, opened: str, minors: str, found: str
) -> None:
    root = machine("nvidia0 nvidia1 nvidia2 nvidia3 nvidiactl", " ".join(f"nvidia{one}" for one in opened.split()))
    for place, minor in enumerate(minors.split()):
        told = Path(root, f"proc/driver/nvidia/gpus/0000:0{place}:00.0/information")
        told.parent.mkdir(parents=True)
        told.write_text(f"Model: \t NVIDIA A40\nDevice Minor: \t {minor}\nGPU Excluded:\t No\n")
    task = {"SLURM_STEP_GPUS": mine, "CUDA_VISIBLE_DEVICES": mine}

    assert GPUS["shared"](task, job.split(",") if job else [], {}, root) == found.split()


@pytest.mark.parametrize(("text", "found"), [("0,2\n", ["0", "2"]), ("\n", []), ("GPU-1", []), ("1;x", []), (None, [])])
def test_a_jobs_gpus_are_what_its_prolog_has_written_down(tmp_path: Path, text: str | None, found: list[str]) -> None:
    place = tmp_path / "run/clusterctl/jobs/7/gpus"
    if text is not None:
        place.parent.mkdir(parents=True)
        place.write_text(text)

    assert GPUS["of_job"]("7", str(tmp_path)) == found


def test_a_container_that_asks_for_no_gpu_is_told_that_it_has_none() -> None:
    assert "--env=CUDA_VISIBLE_DEVICES=" in OPTIONS["Run"](["img"], JOB, {}).words()
    assert "--env=CUDA_VISIBLE_DEVICES=" not in OPTIONS["Run"](["img"], {"USER": "ada"}, {}).words()


def test_a_container_knows_its_job_and_what_the_user_says_comes_last() -> None:
    environment = {"NCCL_DEBUG": "INFO", "RANK": "3", "MASTER_ADDR": "node1", "PATH": "/bin", "AWS_SECRET": "x"}
    words, _, _ = run("-e", "RANK=77", **environment)

    assert words == ["--env=MASTER_ADDR", "--env=NCCL_DEBUG", "--env=RANK", "--env=RANK=77"]


@pytest.mark.parametrize(
    ("docker", "problem", "fix"),
    [
        ("--gpus 3", "this job was granted 2", "--gres=gpu:N"),
        ("--gpus device=2", "2 is not this job's", "--gpus all"),
        ("--device /dev/nvidia0", "was not granted that GPU", "--gpus all"),
        ("--device nvidia.com/gpu=2", "2 is not this job's", "--gpus all"),
        ("-v /:/host", "/ is the node's, and no data", "name the directories"),
        ("-v /dev:/dev", "/dev is the node's", "name the directories"),
        ("-v /../:/host:ro", "/ is the node's, and no data", "name the directories"),
        ("--mount type=bind,src=/,dst=/host", "/ is the node's, and no data", "name the directories"),
        ("-v /var/run/docker.sock:/var/run/docker.sock", "no engine's socket", "in the job itself"),
        ("-v //:/host", "/ is the node's", "name the directories"),
        ("-v /proc/self/root:/host", "/ is the node's", "name the directories"),
        ("--mount type=bind,source=//,target=/host", "/ is the node's", "name the directories"),
        ('--mount "type=bind","source=/","target=/host"', "/ is the node's", "name the directories"),
        ("-v //var/run/docker.sock:/s", "no engine's socket", "in the job itself"),
        ("-v /dev/nvidia0:/dev/nvidia0", "was not granted that GPU", "--gpus all"),
        ("--device /dev:/dev", "/dev is the node's", "name the directories"),
        ("--device /dev//nvidia0", "was not granted that GPU", "--gpus all"),
        ("--gpus banana", "'banana' is no number of GPUs", "--gpus all"),
        ("--gpus=", "'' is no number", "--gpus all"),
        ("--gpus 0", "that is none", "leave --gpus out"),
        ("--gpus 0,1", "'1' is nothing that it knows", "device=0,1"),
        ("--gpus number=2", "'number=2' is nothing that it knows", "--gpus 2"),
        ("--gpus device=", "nor can a name be empty", "device=0,1"),
        ("--gpus all,device=0", "cannot go together", "device=0,1"),
        ("-v /nowhere/data:/data", "/nowhere/data is not on", "mkdir -p /nowhere/data"),
        ("--user 1000", "no subordinate numbers", "leave --user out"),
    ],
)
def test_what_cannot_be_had_is_refused_with_what_to_do(
    docker: str, problem: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OPTIONS["Run"].set_user.__globals__, "subordinate", lambda: False)
    with pytest.raises(GPUS["RefusedError"]) as refused:
        run(*docker.split())

    assert problem in refused.value.args[0]
    assert fix in refused.value.args[1]


def test_a_link_is_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "all").symlink_to("/")
    (tmp_path / "gpu").symlink_to("/dev/nvidia0")

    for words, said in ((("-v", f"{tmp_path}/all:/x"), "/ is the"), (("--device", f"{tmp_path}/gpu"), "not granted")):
        with pytest.raises(GPUS["RefusedError"], match=said):
            run(*words)
    (tmp_path / "data").symlink_to(tmp_path)
    assert run("-v", f"{tmp_path}/data:/x")[0] == [f"--volume={tmp_path}/data:/x"]


def test_a_file_of_a_granted_gpu_is_known_by_its_name_too() -> None:
    known = {"GPU-a": ("/dev/nvidia0",), "GPU-b": ("/dev/nvidia3",)}
    refused = sys.modules["node_places"].refused

    assert refused("/dev/nvidia3", JOB | {"CUDA_VISIBLE_DEVICES": "GPU-b"}, known) is None
    assert "that GPU" in refused("/dev/nvidia0", JOB | {"CUDA_VISIBLE_DEVICES": "GPU-b"}, known)[0]
    assert "a GPU" in refused("/dev/nvidiactl", {}, known)[0]


def test_gpus_of_a_job_without_any_are_refused() -> None:
    with pytest.raises(GPUS["RefusedError"], match="was granted no GPU"):
        OPTIONS["Run"](["--gpus", "all", "img"], {"USER": "ada"}, {}).words()


def test_a_number_in_a_container_needs_subordinate_ones(tmp_path: Path) -> None:
    (tmp_path / "subuid").write_text(f"somebody:100000:65536\n{os.getuid()}:200000:65536\n")

    assert OPTIONS["subordinate"](tmp_path / "subuid")
    (tmp_path / "subuid").write_text("somebody:100000:65536\n")
    assert not OPTIONS["subordinate"](tmp_path / "subuid")


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("run --rm img", ("run", ["--rm", "img"])),
        ("container run img", ("run", ["img"])),
        ("--context default -H unix:///x --debug run img", ("run", ["img"])),
        ("--log-level=debug ps -a", ("ps", ["-a"])),
        ("buildx build -t a .", ("build", ["-t", "a", "."])),
        ("image ls", ("image", ["ls"])),
        ("--version", ("--version", [])),
        ("", ("", [])),
    ],
)
def test_dockers_words_before_a_command_and_its_long_names_are_read(words: str, command: tuple[str, list[str]]) -> None:
    assert DOCKER["command_of"](words.split()) == command


@pytest.mark.parametrize(
    "command", ["swarm init", "service ls", "context ls", "update a", "stats", "pause a", "container stats"]
)
def test_a_command_that_is_not_to_be_had_is_refused_in_one_line(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert DOCKER["main"](command.split()) == 125

    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "is not to be had in a job. Fix: " in told


@pytest.mark.parametrize(
    ("image", "registry", "whole"),
    [
        ("python", "docker.io", "docker.io/library/python"),
        ("nvidia/cuda:12", "docker.io", "docker.io/nvidia/cuda:12"),
        ("nvcr.io/nvidia/pytorch:24.05-py3", "nvcr.io", "nvcr.io/nvidia/pytorch:24.05-py3"),
        ("head:5000/a", "head:5000", "head:5000/a"),
        ("localhost/a", "localhost", "localhost/a"),
    ],
)
def test_an_image_without_a_registry_is_dockers(image: str, registry: str, whole: str) -> None:
    assert DOCKER["registry_of"](image) == (registry, whole)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("-t a:1 .", ["a:1"]),
        ("-ta -tb:2 -q --tag=c .", ["a", "b:2", "c"]),
        ("--build-arg=-t .", []),
        ("-f D .", []),
    ],
)
def test_what_a_build_gives_a_name_to_is_kept(words: str, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def run(command: list[str], **_: Any) -> Any:
        ran.append(command)
        return type("Done", (), {"returncode": 0, "stdout": ""})

    monkeypatch.setattr(DOCKER["subprocess"], "run", run)

    assert DOCKER["main"](["build", *words.split()]) == 0
    assert [command[-1] for command in ran if command[0].endswith("own-images")] == names
    assert "--format=docker" in ran[0]


@pytest.mark.parametrize(
    ("words", "said", "names"),
    [
        (
            "load -i a.tar",
            "Loaded image: localhost/a:1\nLoaded image: docker.io/library/b:2\n",
            ["localhost/a:1", "docker.io/library/b:2"],
        ),
        ("image load --input a.tar", "Loaded image(s): localhost/a:1\n", ["localhost/a:1"]),
        ("commit mine done:1", "", ["done:1"]),
        ("container commit --message text mine done:1", "", ["done:1"]),
    ],
)
@pytest.mark.parametrize("code", [0, 125])
def test_what_a_container_or_an_archive_becomes_is_kept_where_it_became_one(
    words: str, said: str, names: list[str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []

    def run(command: list[str], **_: Any) -> Any:
        ran.append(command)
        return type("Done", (), {"returncode": code, "stdout": said})

    monkeypatch.setattr(DOCKER["subprocess"], "run", run)

    assert DOCKER["main"](words.split()) == code
    kept = [command[1:] for command in ran if command[0].endswith("own-images")]
    assert kept == ([["keep", name] for name in names] if code == 0 else [])


@pytest.mark.parametrize(
    ("service", "words"),
    [
        ({}, []),
        ({"gpus": "all"}, ["--gpus=all"]),
        ({"gpus": [{"count": 2}]}, ["--gpus=2"]),
        ([{"capabilities": ["gpu"]}], ["--gpus=all"]),
        ([{"driver": "nvidia", "count": 1, "capabilities": ["gpu", "utility"]}], ["--gpus=1"]),
        ([{"driver": "nvidia", "device_ids": ["0", "1"], "capabilities": ["gpu"]}], ["--gpus=device=0,1"]),
        ([{"driver": "tpu", "capabilities": ["gpu"]}, {"capabilities": ["tpu"]}], []),
    ],
)
def test_a_service_reserves_gpus_as_with_docker(service: Any, words: list[str]) -> None:
    if isinstance(service, list):
        service = {"deploy": {"resources": {"reservations": {"devices": service}}}}
    told: list[str] = []
    COMPOSE["reserved"](service, told)
    assert told == words


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("show hostname g[1-2]", 0, "g1\ng2\n"),
        ("show hostnames", 0, "g1\ng2\n"),
        ("show hostnames g2", 0, "g2\n"),
        ("show hostnames g[3-4]", 1, "is not this job's list"),
        ("show job", 1, "only 'show hostnames'"),
    ],
)
def test_scontrol_in_a_container_knows_the_jobs_nodes(words: str, code: int, says: str) -> None:
    job = {"SLURM_JOB_NODELIST": "g[1-2]", "SLURM_STEP_NODELIST": "g2"}
    names = {"CLUSTERCTL_JOB_HOSTS": "g1 g2", "CLUSTERCTL_STEP_HOSTS": "g2"}
    command = ["sh", str(IMAGE / "scontrol-hostnames"), *words.split()]
    done = subprocess.run(command, env=job | names, capture_output=True, text=True, check=False)

    assert (done.returncode, says in done.stdout + done.stderr) == (code, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("login -u ada registry", "login --authfile=/home/ada/.config/containers/auth.json -u ada registry"),
        ("logout registry", "logout --authfile=/home/ada/.config/containers/auth.json registry"),
        ("login --authfile=x registry", "login --authfile=x registry"),
        ("version --format {{.Server.Version}}", "version --format {{.Client.Version}}"),
        ("ps -a", "ps -a"),
        ("--version", "--version"),
    ],
)
def test_what_is_the_same_is_handed_on(words: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[str] = []
    monkeypatch.setitem(DOCKER["main"].__globals__, "podman", lambda words: handed.extend(words) or 0)
    monkeypatch.setenv("HOME", "/home/ada")

    assert DOCKER["main"](words.split()) == 0
    assert handed == told.split()


@pytest.mark.parametrize("words", ["run --tls-verify=false reg:5000/team/train:1 true", "pull reg:5000/team/train:1"])
def test_a_registry_that_gives_nothing_is_told_with_where_to_log_in(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[list[str]] = []

    def run(command: list[str], **_: Any) -> Any:
        ran.append(command[2:])
        return subprocess.CompletedProcess(command, 125, "", "")

    monkeypatch.setattr(DOCKER["subprocess"], "run", run)
    monkeypatch.setitem(DOCKER["main"].__globals__, "silent", lambda _: "")

    assert DOCKER["main"](words.split()) == 125
    told = capsys.readouterr().err
    assert "reg:5000 does not give reg:5000/team/train:1. Fix: " in told
    assert "srun --pty docker login reg:5000" in told
    tls = ["--tls-verify=false"] if "run" in words else []
    assert ["pull", *tls, "reg:5000/team/train:1"] in ran


@pytest.mark.parametrize("image", ["reg:5000/train:1", "reg:5000/train", "reg:5000/train@sha256:0"])
def test_an_image_that_a_registry_has_not_is_told_with_how_to_see_what_it_has(
    image: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = f'level=fatal msg="Error parsing image name: reading manifest 1 in {image}: manifest unknown"'
    monkeypatch.setattr(
        DOCKER["subprocess"], "run", lambda words, **_: subprocess.CompletedProcess(words, 125, "", said)
    )
    monkeypatch.setitem(DOCKER["main"].__globals__, "silent", lambda _: "")

    assert DOCKER["main"](["run", image]) == 125
    told = capsys.readouterr().err
    assert f"reg:5000 has no {image}. Fix: see what is there: docker search --list-tags reg:5000/train\n" in told
    assert "login" not in told


def test_an_option_without_its_value_is_refused() -> None:
    with pytest.raises(GPUS["RefusedError"], match="--name has no value"):
        OPTIONS["Run"](["--rm", "--name"], JOB, {})


def test_a_network_of_ones_own_is_the_nodes() -> None:
    for words in ("create -d overlay test-net", "rm test-net", "exists test-net"):
        assert DOCKER["main"](["network", *words.split()]) == 0
