"""What pyxis's options mean for Podman, what is refused of them, and what a task in a container finds around it."""

from __future__ import annotations

import errno
import fcntl
import functools
import itertools
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

from provision import content

IMAGE = content.ROOT / "roles/slurm_image/files/image"
DIGEST = "@sha256:" + "a" * 64
STEP = {"JOB": "7", "STEP": "0", "COMMAND": "python"}


def loaded(name: str, path: Path) -> Any:
    """Return a program of the image as a module."""
    spec = spec_from_loader(name, SourceFileLoader(name, str(path)))
    assert spec is not None
    module = module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def task() -> Iterator[types.ModuleType]:
    """container_task, with what it imports."""
    before, modules = list(sys.path), set(sys.modules)
    module = loaded("container_task", IMAGE / "container_task")
    yield module
    sys.path[:] = before
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("given", "podmans"),
    [
        ("ubuntu:24.04", "ubuntu:24.04"),
        ("nvcr.io#nvidia/pytorch:23.10-py3", "nvcr.io/nvidia/pytorch:23.10-py3"),
        ("docker://nvcr.io#nvidia/pytorch", "nvcr.io/nvidia/pytorch"),
        ("ada@registry:5000#team/train:1", "registry:5000/team/train:1"),
        ("ada@ubuntu", "ubuntu"),
        (f"head:5000/clusterctl/ddp{DIGEST}", f"head:5000/clusterctl/ddp{DIGEST}"),
        ("sha256:" + "b" * 64, "sha256:" + "b" * 64),
    ],
)
def test_images_are_named_as_in_pyxis(task: Any, given: str, podmans: str) -> None:
    assert sys.modules["container_options"].reference(given) == podmans


def test_a_pipe_is_no_archive_and_is_never_waited_for(task: Any, tmp_path: Path) -> None:
    module = sys.modules["container_podman"]
    os.mkfifo(tmp_path / "image.tar")
    held = os.open(tmp_path / "image.tar", os.O_RDWR)
    os.write(held, b"12345678")
    try:
        for given in (tmp_path / "image.tar", tmp_path):
            with pytest.raises(module.ContainerError, match="is no file"):
                module.image({"IMAGE": str(given), "JOB": "1"}, {})
    finally:
        os.close(held)


@pytest.mark.parametrize("given", ["", "a b", "-v", "a;b", "#", "x" * 300, "../x\n"])
def test_what_is_no_name_of_an_image_is_refused(task: Any, given: str) -> None:
    with pytest.raises(task.ContainerError, match="is no name of an image"):
        sys.modules["container_options"].reference(given)


def test_mounts_are_written_as_in_pyxis(task: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a dir").mkdir()
    text = f"./a dir:/data:ro+rprivate+x-create=dir,{tmp_path},.:../inside,tmpfs:/t:size=1m+ro"

    words, places = sys.modules["container_options"].mounts(text, {})

    assert places == ["/data", str(tmp_path), "/inside", "/t"]
    assert words == [
        *("--volume", f"{tmp_path}/a dir:/data:ro,rprivate", "--volume", f"{tmp_path}:{tmp_path}"),
        *("--volume", f"{tmp_path}:/inside", "--tmpfs", "/t:size=1m,ro"),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is no mount"), (":", "is no mount"), ("/tmp:", "is no mount"), ("/tmp,", "is no mount"),
        ("tmp:/x", "'tmp' is no path"), ("/tmp:x", "no place in the container"), ("/tmp:/x:rx", "no flag 'rx'"),
        ("/:/x", "the whole of a machine"), ("/tmp:/", "the whole of a machine"), ("/tmp:/x/..", "the whole"),
        ("/no/such:/x", "/no/such is not there"),
        # The same places as docker in jobs refuses, however they are written.
        ("//:/x", "the whole of a machine"), ("/tmp://", "the whole of a machine"), ("tmpfs://", "the whole"),
        ("/proc/self/root:/x", "the whole"), ("/dev:/x", "/dev is the node's"), ("//proc:/x", "/proc is the node's"),
        ("/run:/x", "/run is the node's"), ("/var/run/docker.sock:/s", "no engine's socket"),
        ("/dev/nvidia0:/dev/nvidia0", "was not granted a GPU"),
    ],
)  # fmt: skip
def test_mounts_that_cannot_be_are_refused(task: Any, text: str, says: str) -> None:
    with pytest.raises(task.ContainerError, match=says) as refused:
        sys.modules["container_options"].mounts(text, {})

    assert (refused.value.code, bool(refused.value.fix)) == (125, True)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "step-7.0"), ({"NAME": "mine"}, "job-mine"), ({"NAME": "mine:exec"}, "job-mine"),
        ({"NAME": "7.3"}, "step-7.3"),
    ],
)  # fmt: skip
def test_a_container_is_known_by_its_name_or_its_step(task: Any, options: dict[str, str], name: str) -> None:
    assert task.named({**STEP, **options}) == name


@pytest.mark.parametrize("name", ["", "a b", "../x", "/tmp/x", "mine:no_exec", "x" * 65, ":exec"])
def test_a_name_that_could_be_a_path_or_an_option_is_refused(task: Any, name: str) -> None:
    with pytest.raises(task.ContainerError):
        task.named({**STEP, "NAME": name})


def test_a_home_is_mounted_where_it_is_asked_for_and_the_jobs_tmp_always(
    task: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = sys.modules["container_options"].settings
    monkeypatch.setattr(sys.modules["container_options"], "SPOOL", f"{tmp_path}/none")
    home = {"HOME": str(tmp_path)}

    def volumes(**options: str) -> list[str]:
        words = settings({**STEP, **options}, home)
        return [word for option, word in itertools.pairwise(words) if option == "--volume"]

    assert volumes() == volumes(MOUNT_HOME="no") == ["/tmp:/tmp"]
    assert volumes(MOUNT_HOME="1") == ["/tmp:/tmp", f"{tmp_path}:{tmp_path}"]
    assert volumes(MOUNT_HOME="yes", REMAP_ROOT="yes") == ["/tmp:/tmp", f"{tmp_path}:/root"]
    assert volumes(MOUNTS=f"{tmp_path}:/tmp") == [f"{tmp_path}:/tmp"]
    home["PMIX_SERVER_TMPDIR"] = f"{tmp_path}/pmix.7.0/"
    assert volumes() == ["/tmp:/tmp", f"{tmp_path}:{tmp_path}"]
    del home["PMIX_SERVER_TMPDIR"]
    # A later step may ask for it, in a container that this one has named.
    monkeypatch.setattr(sys.modules["container_options"], "SPOOL", str(tmp_path))
    assert volumes() == ["/tmp:/tmp", f"{tmp_path}:{tmp_path}"]
    monkeypatch.setattr(sys.modules["container_options"], "SPOOL", f"{tmp_path}/none")
    assert (
        volumes(STEP="batch", COMMAND="/var/spool/job/script")[-1] == "/var/spool/job/script:/var/spool/job/script:ro"
    )


def test_the_file_for_a_trainings_figures_is_there_in_a_container(
    task: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = sys.modules["container_options"]
    monkeypatch.setattr(options, "OF_JOBS", str(tmp_path))
    file = tmp_path / STEP["JOB"] / "training"
    assert str(file) not in " ".join(options.settings(STEP, {}))
    file.parent.mkdir()
    file.touch()

    words = options.settings(STEP, {})

    assert words[words.index(f"{file}:{file}") - 1] == "--volume"


def test_the_sites_directories_are_mounted_where_nobody_has_mounted_something_else(
    task: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = sys.modules["container_options"]
    site = f"{tmp_path}/models"
    Path(site).mkdir()
    told = [("HF_HOME", site, True), ("HF_HUB_OFFLINE", "1", False), ("PIP_FIND_LINKS", "/nowhere", True)]
    monkeypatch.setattr(options.site_environment, "lines", lambda *_: told)

    assert options.settings(STEP, {})[2:] == ["--volume", f"{site}:{site}"]
    assert options.settings({**STEP, "MOUNTS": f"{tmp_path}:{site}"}, {})[:2] == ["--volume", f"{tmp_path}:{site}"]
    assert f"{site}:{site}" not in options.settings({**STEP, "MOUNTS": f"{tmp_path}:{site}"}, {})


def test_gpus_are_given_by_nvidias_description_of_them(task: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    container_options = sys.modules["container_options"]
    container_options.devices({"SLURM_STEP_GPUS": "0"})
    known = {"0": ("/dev/nvidia0",), "1": ("/dev/nvidia1",), "other": ("/dev/nvidia9",)}
    monkeypatch.setattr(sys.modules["granted_gpus"], "described", lambda: known)

    assert container_options.devices({"SLURM_STEP_GPUS": "1"}) == ["--device=nvidia.com/gpu=1"]
    assert container_options.devices({"CUDA_VISIBLE_DEVICES": "MIG-7"}) == ["--device=nvidia.com/gpu=MIG-7"]
    assert container_options.devices({"SLURM_STEP_GPUS": "3"}) == ["--device=/dev/nvidia3"]
    assert container_options.devices({}) == []


def test_tasks_with_a_gpu_each_share_a_container_that_has_those_of_all(
    task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first task makes it, and knows its own GPU alone (--gpus-per-task, --gpu-bind)."""
    container_options = sys.modules["container_options"]
    container_options.devices({"SLURM_STEP_GPUS": "0"})
    monkeypatch.setattr(sys.modules["granted_gpus"], "described", dict)
    monkeypatch.setattr(sys.modules["granted_gpus"], "of_job", lambda job: ["1", "2"] if job == "7" else [])
    monkeypatch.setattr(sys.modules["granted_gpus"], "there", lambda *_: dict.fromkeys("0123", True))
    first = {"SLURM_STEP_GPUS": "2", "CUDA_VISIBLE_DEVICES": "2"}

    words = container_options.settings(STEP, first)

    assert words[-2:] == ["--device=/dev/nvidia1", "--device=/dev/nvidia2"]
    # Of a job that began before its GPUs were written down.
    assert container_options.settings({**STEP, "JOB": "8"}, first)[-1] == "--device=/dev/nvidia2"


@pytest.mark.parametrize(
    ("step", "visible", "job", "inside"),
    [
        ("0", "0", "0,1", "0"), ("1", "1", "0,1", "1"),  # --gpus-per-task, single:1
        ("2", "2", "1,2", "1"), ("1", "1", "1,2", "0"), ("2", "2", "", "0"), ("1,3", "3,1", "1,2,3", "2,0"),
        ("9,10", "9,10", "8,9,10", "1,2"), ("1", "GPU-1", "0,1", "GPU-1"),
    ],
)  # fmt: skip
def test_each_task_names_its_own_gpu_among_those_of_the_container(
    task: Any, monkeypatch: pytest.MonkeyPatch, step: str, visible: str, job: str, inside: str
) -> None:
    options = sys.modules["container_options"]
    options.devices({"SLURM_STEP_GPUS": "0"})
    monkeypatch.setattr(sys.modules["granted_gpus"], "of_job", lambda _: job.split(",") if job else [])
    monkeypatch.setattr(task, "CONTROLLERS", "/nosuch")
    environment = {"SLURM_STEP_GPUS": step, "CUDA_VISIBLE_DEVICES": visible}

    assert task.visible(environment, "7") == inside


def test_where_a_control_group_confines_a_task_slurm_has_counted_already(
    task: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(task, "CONTROLLERS", str(tmp_path))

    assert task.visible({"SLURM_STEP_GPUS": "1", "CUDA_VISIBLE_DEVICES": "0"}, "7") == "0"


def test_who_enters_a_jobs_container_counts_its_gpus_as_its_tasks_do(
    task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list(sys.path)
    enter = loaded("container_enter", IMAGE / "container_enter")
    monkeypatch.setattr(sys, "path", before)
    monkeypatch.setattr(enter, "kept", lambda _: {"step-7.0": os.getpid()})
    monkeypatch.setattr(enter, "running", lambda _: [])
    monkeypatch.setattr(enter, "of_machine", lambda _: [])
    monkeypatch.setattr(enter, "task", lambda: task)
    monkeypatch.setattr(task, "join", lambda *_: None)
    monkeypatch.setattr(task, "visible", lambda found, job: f"{found['CUDA_VISIBLE_DEVICES']} of {job}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    became: list[Any] = []
    monkeypatch.setattr(os, "execvpe", lambda *words: became.extend(words))
    monkeypatch.setattr(sys.modules["container_podman"], "variables", lambda _: {})

    enter.main("7", ["nvidia-smi"])

    assert became[:2] == ["nvidia-smi", ["nvidia-smi"]]
    assert became[2]["CUDA_VISIBLE_DEVICES"] == "1 of 7"


def test_a_command_is_run_in_one_container_after_the_other_and_ends_as_the_first_that_failed(
    task: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    before = list(sys.path)
    enter = loaded("container_enter", IMAGE / "container_enter")
    monkeypatch.setattr(sys, "path", before)
    said = [["sh", "-c", f"echo {code}; exit {code}"] for code in (0, 4, 5)]

    code = enter.each([functools.partial(enter.become, words, dict(os.environ)) for words in said])

    assert (code, capfd.readouterr().out.split()) == (4, ["0", "4", "5"])
    assert enter.each([functools.partial(enter.become, ["sh", "-c", "kill -9 $$"], dict(os.environ))]) == 137


def test_a_container_of_an_earlier_release_has_no_user_namespace_for_all_tasks(task: Any) -> None:
    podman = sys.modules["container_podman"]
    assert f"enum {{ THEMSELVES = {podman.THEMSELVES} }};" in (IMAGE / "pause.c").read_text(encoding="utf-8")

    with subprocess.Popen(["sleep", "60"]) as earlier:
        try:
            assert podman.themselves(earlier.pid) is None
        finally:
            earlier.kill()


def test_adapters_are_given_where_a_node_has_some(task: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    container_options = sys.modules["container_options"]
    monkeypatch.setattr(container_options, "INFINIBAND", str(tmp_path))
    assert container_options.devices({}) == []

    (tmp_path / "uverbs0").touch()
    assert container_options.devices({}) == ["--device", str(tmp_path)]


@pytest.mark.parametrize(
    ("options", "read_only"),
    [
        ({}, False), ({"WRITABLE": "yes"}, False), ({"WRITABLE": "no"}, True), ({"WRITABLE": "0"}, True),
        ({"READONLY": "1"}, True), ({"READONLY": "0"}, False),
    ],
)  # fmt: skip
def test_a_container_can_be_written_unless_said_otherwise(task: Any, options: dict[str, str], read_only: bool) -> None:
    words = sys.modules["container_options"].settings({**STEP, **options}, {})

    assert ("--read-only" in words) == read_only


def test_the_images_variables_win_but_for_those_that_are_kept(task: Any) -> None:
    job = {"PATH": "/job", "MARK": "job", "LANG": "de_DE", "HOME": "/home/ada", "SLURM_JOB_ID": "7", "TERM": "xterm"}
    image = {"PATH": "/image", "MARK": "image", "OWN": "image", "HOME": "/root", "TERM": "dumb", "container": "podman"}
    image["NONE"] = "image"

    same = {"HOME": "/home/ada", "SLURM_JOB_ID": "7", "OWN": "image", "TERM": "xterm", "NONE": "image"}
    assert task.variables(job, image, []) == {**same, "PATH": "/image", "MARK": "image"}
    kept = task.variables(job, image, ["MARK", "LANG", "NONE"])
    assert kept == {**same, "PATH": "/image", "MARK": "job", "LANG": "de_DE"}


def test_ranks_meet_where_torchrun_slurm_has_them_meet(task: Any) -> None:
    step = {
        "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "2", "SLURM_STEP_NODELIST": "gpu[01-02]", "SLURM_NODEID": "1",
        "SLURM_JOB_NODELIST": "gpu[01-03]", "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "8",
        "SLURM_STEP_TASKS_PER_NODE": "4(x2)", "MASTER_ADDR": "10.0.0.1",
    }  # fmt: skip
    port = str(20000 + (4711 * 31 + 2) % 10000)
    hosts = {"CLUSTERCTL_JOB_HOSTS": "gpu01 gpu02 gpu03", "CLUSTERCTL_STEP_HOSTS": "gpu01 gpu02"}

    found = task.rendezvous(step, True)

    assert found == {**hosts, "RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "MASTER_PORT": port}
    assert task.rendezvous(step, False) == hosts
    del step["MASTER_ADDR"]
    assert task.rendezvous(step, True)["MASTER_ADDR"] == "gpu01", "where it has no address, its name"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, "8 tasks of a node share 2 GPUs, and LOCAL_RANK goes to 7; if each is a rank of a training: "),
        ({"CUDA_VISIBLE_DEVICES": "0"}, ""),  # each its own: --gpus-per-task, --gpu-bind
        ({"CUDA_VISIBLE_DEVICES": ""}, ""),
        ({"SLURM_STEP_TASKS_PER_NODE": "2"}, ""),
        ({"SLURM_PROCID": "1"}, ""),  # said once
    ],
)
def test_tasks_that_are_more_than_the_gpus_are_told_and_started(task: Any, changed: dict[str, str], says: str) -> None:
    step = {
        "SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "gpu01", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "8",
        "SLURM_STEP_TASKS_PER_NODE": "8", "SLURM_GPUS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": "0,1",
    }  # fmt: skip

    said = task.shared_gpus({**step, **changed})

    assert said.startswith(says) if says else said == ""


def test_options_are_taken_out_of_the_environment(task: Any) -> None:
    environment = {"SLURM_CLUSTERCTL_IMAGE": "x", "SLURM_CLUSTERCTL_JOB": "7", "PATH": "/bin"}

    assert task.asked(environment) == {"IMAGE": "x", "JOB": "7"}
    assert environment == {"PATH": "/bin"}


@pytest.mark.parametrize(
    ("said", "does"),
    [
        (
            "Error: initializing source docker://r/x:1: reading manifest 1 in r/x: unauthorized: access denied",
            "docker login REGISTRY",
        ),
        ("Error: pinging container registry r: Get https://r/v2/: dial tcp: lookup r: no such host", "a registry that"),
        ("Error: writing blob: storing blob: no space left on device", "disk for jobs is full"),
        ("Error: x: image not known", "srun podman images"),
        ("Error: something new", "try it: srun podman run"),
        ("", "try it: srun podman run"),
    ],
)
def test_what_podman_says_comes_with_what_to_do(task: Any, said: str, does: str) -> None:
    ran = types.SimpleNamespace(returncode=125, stderr=f"first\n{said}\x1b[2J\n" if said else "", stdout="")

    with pytest.raises(task.ContainerError) as refused:
        sys.modules["container_podman"].done(ran, "--container-image=x")

    assert does in refused.value.fix
    assert "\x1b" not in str(refused.value)
    assert "Error: " not in str(refused.value)


def test_a_name_that_no_image_has_is_told_with_those_that_are_there(
    task: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = sys.modules["container_podman"]
    said = "localhost/pytorch:cluster\nhead:5000/clusterctl/ddp:<none>\nharbor.example/ai/nemo:24.07\n"
    monkeypatch.setattr(module, "podman", lambda *_: types.SimpleNamespace(stdout=said))
    monkeypatch.setattr(module, "LIBRARY", str(tmp_path))
    (tmp_path / "own-images").write_text("#!/bin/sh\necho localhost/mine:1\n")
    (tmp_path / "own-images").chmod(0o755)

    told = str(module.no_image({"IMAGE": "pytorch:2.13"}, dict(os.environ)))

    assert told == "no image pytorch:2.13 here. There are: harbor.example/ai/nemo:24.07, mine:1, pytorch:cluster"
    assert module.ABSENT.search('short-name "pytorch:2.13" did not resolve to an alias and no unqualified-search')


@pytest.mark.parametrize("named", ["python3", "{place}/python3"])
@pytest.mark.parametrize(
    ("begins", "mode", "says"),
    [
        (b"\x7fELF\x02", 0o755, "python3 of app:1 is for another architecture than"),
        (b"print(1)", 0o755, "python3 has no line #! that names its interpreter"),
        (b"", 0o755, "python3 has no line #! that names its interpreter"),
    ],
)
def test_a_program_that_this_machine_cannot_run_is_found_as_it_was_named(
    task: Any, tmp_path: Path, named: str, begins: bytes, mode: int, says: str
) -> None:
    (tmp_path / "python3").write_bytes(begins)
    (tmp_path / "python3").chmod(mode)
    problem = OSError(errno.ENOEXEC, "Exec format error")

    said, _, code = task.no_program(named.format(place=tmp_path), problem, "app:1", f"/nowhere:{tmp_path}")

    assert said.startswith(f"{tmp_path}/{says}")
    assert code == 126


@pytest.mark.parametrize(
    ("begins", "says"),
    [
        # As torchrun-slurm, which is an archive behind its first line.
        (b"#!/usr/bin/env python3\nPK\x03\x04\xff", "no '/usr/bin/env python3', by which {place}/tool is run (#!)"),
        (b"#! /opt/no/python3 -u\n", "no '/opt/no/python3', by which {place}/tool is run (#!)"),
        (b"#!/bin/sh\r\n", "no '/bin/sh\\r', by which {place}/tool is run (#!)"),
        (b"\x7fELF\x02", "{place}/tool, and not the loader that it was linked for"),
        (None, "no tool"),
    ],
)
def test_a_program_that_is_there_is_not_told_as_missing(
    task: Any, tmp_path: Path, begins: bytes | None, says: str
) -> None:
    if begins:
        (tmp_path / "tool").write_bytes(begins)
        (tmp_path / "tool").chmod(0o755)
    problem = FileNotFoundError(errno.ENOENT, "No such file or directory")

    said, _, code = task.no_program("tool", problem, "app:1", f"/nowhere:{tmp_path}")

    assert said == f"app:1 has {says.format(place=tmp_path)}"
    assert code == 127


@pytest.mark.parametrize(
    ("problem", "says"),
    [
        (OSError(28, "No space left on device"), "container: node1: the container could not be entered: [Errno 28]"),
        (ValueError("n[a-b] is no list of nodes"), "container: node1: n[a-b] is no list of nodes; Slurm sets"),
        (None, "container: node1: this node does not know --container-image yet, and nothing was started; tell"),
    ],
)
def test_what_nobody_foresaw_is_one_line_too(
    task: Any,
    problem: OSError | ValueError | None,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(*_: object) -> None:
        assert problem is not None
        raise problem

    monkeypatch.setattr(task, "start", fails)
    monkeypatch.setattr(task.signal, "signal", lambda *_: None)
    monkeypatch.setenv("SLURMD_NODENAME", "node1")
    for name, value in STEP.items() if problem else ():
        monkeypatch.setenv(f"SLURM_CLUSTERCTL_{name}", value)

    with pytest.raises(SystemExit) as ended:
        task.main([])

    assert ended.value.code == 125
    assert capsys.readouterr().err.startswith(says)


def test_the_container_of_a_step_that_begins_or_is_being_removed_is_nobodys_leftover(task: Any, tmp_path: Path) -> None:
    """Podman names its first process before that is the keeper, and many steps begin at once."""
    podman = sys.modules["container_podman"]
    for name in ("step-7.1", "step-7.2", "step-7.3"):
        (tmp_path / f"{name}.pid").write_text("1")

    with (tmp_path / "step-7.2.lock").open("w") as begins:
        fcntl.flock(begins, fcntl.LOCK_EX)
        first = podman.leftovers(str(tmp_path), "step-7.3")
        second = podman.leftovers(str(tmp_path), "step-7.3")

    assert (list(first), list(second)) == (["step-7.1"], [])
    for lock in first.values():
        os.close(lock)
    assert sorted(podman.leftovers(str(tmp_path), "step-7.3")) == ["step-7.1", "step-7.2"]
