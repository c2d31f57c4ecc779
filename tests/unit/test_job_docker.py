"""The machines' own Docker in jobs: what is refused, what is judged, and what holds a container to its job."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from provision import content
from provision.judge import job_docker
from provision.model.checks import Check

IMAGE = content.ROOT / "roles/slurm_image/files/image"
sys.path.insert(0, str(IMAGE))
ENGINE: dict[str, Any] = runpy.run_path(str(IMAGE / "docker_engine.py"))
sys.path.remove(str(IMAGE))

GROUP = [{"name": "dockerjobs", "gid": 3100}]
SOCKET: dict[str, Any] = {"job_docker": "socket", "job_docker_group": "dockerjobs", "cluster_groups": GROUP}
NET: dict[str, Any] = {"name": "test-net", "subnet": "10.77.0.0/24"}


WANTS: dict[str, Any] = {
    "group": "dockerjobs", "gid": 3100, "networks": [NET], "runtime": "podman", "manages": True,
    "address": "10.0.0.1", "manager": "10.0.0.1:2377",
}  # fmt: skip
SWARM: dict[str, Any] = {
    "LocalNodeState": "active", "ControlAvailable": True, "NodeAddr": "10.0.0.1",
    "RemoteManagers": [{"Addr": "10.0.0.1:2377"}],
}  # fmt: skip
THERE: dict[str, Any] = {
    "Name": "test-net", "Attachable": True, "IPAM": {"Config": [{"Subnet": "10.77.0.0/24"}]}, "Options": {},
}  # fmt: skip


def judged(wants: dict[str, Any] | None = None, **answers: Any) -> dict[str, Check]:
    """Return the checks of a machine on which all is well but for these answers."""
    given = {"docker_socket": "660 3100\n", "swarm": SWARM, "overlays": [THERE]} | answers
    commands = {
        name: said if isinstance(said, dict) and "rc" in said
        else {"rc": 0, "text": said if isinstance(said, str) else json.dumps(said)}
        for name, said in given.items() if said is not None
    }  # fmt: skip
    found = job_docker.checks({"commands": commands}, WANTS | (wants or {}))
    assert tuple(check.id for check in found) == (*job_docker.BEFORE.ids, *job_docker.SUBJECT.ids)
    return {check.id.partition(".")[2]: check for check in found}


def test_a_machine_as_declared_passes_and_says_what_it_risks() -> None:
    found = judged()

    assert [str(check.verdict) for check in found.values()] == ["warn", "skip", "pass", "pass", "pass"]
    assert "is root on this machine" in found["risk"].observed


@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        ("pyxis", "runs as root in slurmd and slurmstepd"),
        ("apptainer", "makes user namespaces of its own in jobs"),
        ("podman", ""),
        ("none", ""),
        ("", ""),
    ],
)
def test_what_a_sites_own_runtime_of_containers_risks_is_said(runtime: str, words: str) -> None:
    found = judged({"runtime": runtime})["runtime"]

    assert str(found.verdict) == ("warn" if words else "skip")
    assert words in found.observed


def test_nothing_is_judged_where_nothing_is_chosen() -> None:
    off = {"group": "", "gid": 0, "networks": []}
    found = judged(off, docker_socket=None, swarm=None, overlays=None)
    assert {str(check.verdict) for check in found.values()} == {"skip"}


@pytest.mark.parametrize(
    ("answers", "name", "words"),
    [
        ({"docker_socket": "666 3100"}, "socket", "666 3100"),
        ({"docker_socket": "660 103"}, "socket", "660 103"),
        ({"docker_socket": {"rc": 1, "text": "Cannot connect to the Docker daemon"}}, "socket", "Cannot connect"),
        ({"swarm": SWARM | {"LocalNodeState": "inactive"}}, "swarm", "inactive"),
        ({"swarm": SWARM | {"ControlAvailable": False}}, "swarm", "no manager"),
        ({"swarm": SWARM | {"RemoteManagers": [{"Addr": "10.9.9.9:2377"}]}}, "swarm", "10.9.9.9:2377"),
        ({"swarm": SWARM | {"NodeAddr": "192.168.0.1"}}, "swarm", "192.168.0.1"),
        ({"swarm": {"rc": 127, "text": "sh: docker: not found"}}, "swarm", "no swarm"),
        ({"swarm": "[[["}, "swarm", "no swarm"),
        ({"overlays": []}, "overlay_networks", "test-net is absent"),
        ({"overlays": [THERE | {"Attachable": False}]}, "overlay_networks", "not attachable"),
        ({"overlays": [THERE | {"IPAM": None}]}, "overlay_networks", "no subnet"),
        ({"overlays": [THERE | {"Options": {"encrypted": ""}}]}, "overlay_networks", "is encrypted"),
    ],
)
def test_what_is_otherwise_fails_with_what_was_found(answers: dict[str, Any], name: str, words: str) -> None:
    check = judged(**answers)[name]

    assert str(check.verdict) == "fail"
    assert words in check.observed


def test_another_swarm_is_not_left_by_itself() -> None:
    other = SWARM | {"RemoteManagers": [{"Addr": "10.9.9.9:2377"}]}

    assert "docker swarm leave --force" in judged(swarm=other)["swarm"].fix


def test_what_was_not_answered_is_unknown() -> None:
    late = {"rc": None, "text": "did not answer in 10 s"}
    found = judged(docker_socket=late, swarm=late, overlays=late)

    assert [str(check.verdict) for check in found.values()] == ["warn", "skip", *["unknown"] * 3]


#: Of a job with the second and the third of a node's four GPUs.
JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "1,2", "SLURM_MEM_PER_NODE": "512", "RANK": "0", "HOME": "/home/ada"}


def told(*words: str, known: dict[str, tuple[str, ...]] | None = None) -> tuple[list[str], list[str]]:
    return ENGINE["words"]("run", words, JOB, [3, 1], known or {})  # type: ignore[no-any-return]


def test_a_container_of_the_machines_docker_has_what_slurm_gave_its_job() -> None:
    words, lines = told(
        "--rm", "--gpus", "all", "--network", "test-net", "-v", "/data:/data", "img", "sh", "-c", "true"
    )

    assert words[:4] == ["run", "--label=clusterctl.job=7", "--cpuset-cpus=1,3", "--memory=512m"]
    assert [word for word in words if word.startswith("--device")] == ["--device=/dev/nvidia1", "--device=/dev/nvidia2"]
    assert "--env=RANK" in words
    assert "--env=HOME" not in words
    assert words[-7:] == ["--rm", "--network=test-net", "--volume=/data:/data", "img", "sh", "-c", "true"]
    assert lines == []


def test_nvidias_gpus_are_named_by_their_own_names() -> None:
    known = {"GPU-a": ("/dev/nvidia1",), "GPU-b": ("/dev/nvidia2",)}

    assert '--gpus="device=GPU-a,GPU-b"' in told("--gpus", "all", "img", known=known)[0]
    assert not [word for word in told("img", known=known)[0] if "GPU-" in word]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is laid out for the job on its node; slurmd's image has two programs for containers."""
    own = tmp_path / "in_container"
    own.mkdir()
    for name in ("scontrol", "torchrun-slurm"):
        (own / name).write_text(f"#!/bin/sh\necho {name}\n")
        (own / name).chmod(0o755)
    of_job = tmp_path / "jobs/7/runtime"
    of_job.mkdir(parents=True)
    monkeypatch.setattr(sys.modules["job_container"], "IN_CONTAINER", own)
    monkeypatch.setattr(sys.modules["job_container"], "hosts", lambda nodes: [f"{nodes[:-5]}{n}" for n in (1, 2)])
    monkeypatch.setitem(ENGINE["words"].__globals__, "OF_JOBS", tmp_path / "jobs")
    return of_job


def test_a_container_of_the_machines_docker_has_our_programs_from_where_the_machine_sees_them(job: Path) -> None:
    words = told("img")[0]

    place = job / "in_container"
    assert [word for word in words if word.startswith("--volume")] == [
        f"--volume={place}/{name}:/usr/local/bin/{name}:ro" for name in ("scontrol", "torchrun-slurm")
    ]
    assert (place / "torchrun-slurm").stat().st_mode & 0o777 == 0o755
    assert sorted(path.name for path in place.iterdir()) == ["scontrol", "torchrun-slurm"]

    # A node that has no more room for them says so.
    (place / "scontrol").unlink()
    (job.parent.parent.parent / "in_container/scontrol").unlink()
    (job.parent.parent.parent / "in_container/scontrol").symlink_to("nowhere")
    with pytest.raises(Exception, match=r"in_container: No such file") as refused:
        told("img")
    assert type(refused.value).__name__ == "RefusedError"


def test_a_container_of_the_machines_docker_knows_the_jobs_nodes_and_the_sites_directories(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = [("HF_HOME", str(tmp_path), True), ("PIP_NO_INDEX", "1", False)]
    monkeypatch.setattr(sys.modules["site_environment"], "lines", lambda *_: site)
    monkeypatch.setattr(
        sys.modules[__name__], "JOB", JOB | {"SLURM_STEP_NODELIST": "gpu[1-2]", "PIP_NO_INDEX": "1", "HF_HOME": "/x"}
    )
    mount = f"{tmp_path}:{tmp_path}"

    words = told("img")[0]
    assert {"--env=HF_HOME", "--env=PIP_NO_INDEX", "--env=CLUSTERCTL_STEP_HOSTS=gpu1 gpu2", mount} <= set(words)
    # Docker would refuse two mounts at one place.
    assert mount not in told("-v", f"/mine:{tmp_path}", "img")[0]
    assert mount not in told("--mount", f"type=bind,src=/mine,dst={tmp_path}", "img")[0]


def test_adapters_are_asked_for_where_a_node_has_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "infiniband"
    monkeypatch.setattr(sys.modules["job_container"], "INFINIBAND", str(place))

    words, lines = told("--device", str(place), "img")
    assert f"--device={place}" not in words
    assert lines == [f"--device {place} is left out: this node has no RDMA adapter"]

    place.mkdir()
    (place / "uverbs0").touch()
    assert f"--device={place}" in told("--device", str(place), "img")[0]


def test_a_requeue_that_could_not_be_asked_for_is_refused_before_anything_starts() -> None:
    with pytest.raises(Exception, match="no way leads from a container of the node's own Docker") as refused:
        told("img", "torchrun-slurm", "--requeue-on=node-failure", "train.py")
    assert "srun --container-image" in refused.value.args[1]


@pytest.mark.parametrize("option", ["--memory=64g", "--cpuset-cpus=0-63", "--cgroup-parent=/", "--privileged"])
def test_what_would_take_more_than_the_job_has_is_left_out_and_said(option: str) -> None:
    words, lines = told(option, "img")

    assert option not in words
    assert len(lines) == 1


@pytest.mark.parametrize("words", [("--gpus", "3", "img"), ("--device", "/dev/nvidia0", "img")])
def test_gpus_of_others_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(Exception, match=r"GPU|granted") as refused:
        told(*words)
    assert type(refused.value).__name__ == "RefusedError"


@pytest.mark.parametrize("command", ["swarm", "service", "stack", "compose", "update"])
def test_what_nothing_would_hold_to_the_job_is_refused(command: str) -> None:
    with pytest.raises(Exception, match="not to be had in a job"):
        ENGINE["main"](command, [], JOB)


def test_everything_else_is_dockers_own() -> None:
    assert ENGINE["main"]("ps", ["-a"], JOB) == (["ps", "-a"], [])


@pytest.mark.parametrize(
    ("environment", "size"),
    [({"SLURM_MEM_PER_NODE": "0"}, 0), ({"SLURM_MEM_PER_CPU": "100", "SLURM_CPUS_ON_NODE": "4"}, 400), ({}, 0)],
)
def test_the_memory_is_the_jobs(environment: dict[str, str], size: int) -> None:
    assert ENGINE["memory"](environment) == size
