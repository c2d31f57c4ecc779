"""Stages whose machines answer what is replayed: a role runs where a check of its own fails, and nowhere else."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from ansible_runs import PYTHON, lease_kept_in, run
from test_observe import GOOD, LEFT_THERE, REPLAY, ROOT

from provision import content

sys.path.insert(0, str(content.ROOT / "tests/unit"))
import driver_machines
from test_facts import READY

#: Each machine is this computer, and is known to the replay by its interpreter.
INVENTORY = """\
[slurm_controller]
head
[slurm_compute]
node1 nvidia_containers_install=true nvidia_driver_install=false
node2 cuda_toolkit_versions='["12.8"]'
[slurm_login]
login
[all:vars]
cluster_name=small
cluster_simulated=gpu
ansible_connection=local
ansible_become=false
ansible_python_interpreter={place}/{{{{ inventory_hostname }}}}-python
ansible_python3_interpreter={place}/{{{{ inventory_hostname }}}}-python
"""
NOTE = """---
- name: Note that it ran
  ansible.builtin.shell: echo {role} $MACHINE >>{place}/log
  changed_when: true
"""
PROFILE = (content.ROOT / "roles/cuda_toolkit/templates/profile.sh.j2").read_text(encoding="utf-8")


def stage(
    name: str, place: Path, roles: dict[str, tuple[str, ...]], **answers: list[dict[str, Any]]
) -> tuple[list[str], set[tuple[str, str]]]:
    """Run a stage with these answers; return which of the roles, of which nothing but a note is left, ran where, and
    which task has failed where.
    """
    for playbook in ("observe", "lease", "again", "prove", "release", name):
        shutil.copy(content.playbook(playbook), place)
    (place / "library").mkdir()
    (place / "library/machine_facts.py").write_text(REPLAY.format(place=str(place)), encoding="utf-8")
    lease_kept_in(place / "library", place / "lease")
    for role, parts in roles.items():
        (tasks := place / "roles" / role / "tasks").mkdir(parents=True)
        for part in parts:
            (tasks / f"{part}.yml").write_text(NOTE.format(role=f"{role}/{part}", place=place), encoding="utf-8")
    for host in ("head", "node1", "node2", "login"):
        told = [{**ready(host), **answer} for answer in answers.get(host, [GOOD])]
        (place / f"{host}.json").write_text(json.dumps(told), encoding="utf-8")
        python = place / f"{host}-python"
        python.write_text(f'#!/bin/sh\nexport MACHINE={host}\nexec {PYTHON} "$@"\n', encoding="utf-8")
        python.chmod(0o755)
    report = run(place / f"{name}.yml", text=INVENTORY.format(place=place))[0]
    log = (place / "log").read_text(encoding="utf-8").splitlines() if (place / "log").exists() else []
    return log, {(failure.task.name, host) for failure, hosts in report.failures.items() for host in hosts}


def ready(host: str) -> dict[str, Any]:
    """What a machine says of itself that preflight has nothing against."""
    paths = ("/", "/var/lib/docker", "/var/lib/clusterctl", "/var/cache/clusterctl")
    return {
        **READY,
        "hostname": host,
        "addresses": {host: ["192.0.2.9"]},
        "kernel": "6.1.0-28-amd64",
        "lock": {"holder": None, "waited": 0},
        "firewall": {"problem": "", "filtered": False, "stopped": []},
        "disks": {path: {"free": 90000, "device": 1, "used": True} for path in paths},
    }


def node(directory: Path, *, held: bool) -> dict[str, Any]:
    """A node with GPUs, their driver, and the toolkit that node2 asks for; nothing gives GPUs to containers."""
    machine, _ = driver_machines.machine("row01_reload_is_enough", directory)
    there = {**ROOT, "kind": "file", "mode": "0644", "sha256": hashlib.sha256(PROFILE.encode()).hexdigest()}
    told = "/usr/local/cuda-12.8 12.8\ndefault /usr/local/cuda-12.8\n"
    without = '== spec\n== driver\n== files\n== packages\n== order\nbasic.target\n== engine\n{"ServerVersion": "27"}\n'
    lists = [f"/etc/apt/sources.list.d/{name}.list" for name in ("nvidia-docker", "libnvidia-container")]
    absent = {key: {"kind": "absent"} for key in [*LEFT_THERE["nvidia_containers.files"], *lists]}
    paths = {"/etc/profile.d/cuda.sh": there, **absent}
    return {
        **copy.deepcopy(GOOD),
        **machine,
        "commands": {"toolkits": {"rc": 0, "text": told}, "gpu_containers": {"rc": 0, "text": without}},
        "state": {**GOOD["state"], "paths": paths, "packages": {"cuda-toolkit-12-8": {"version": "1", "held": held}}},
    }


def test_a_role_of_stage_gpu_runs_where_its_own_check_fails_and_what_rests_on_the_driver_is_asked_again(
    tmp_path: Path,
) -> None:
    roles = {
        "nvidia_driver": ("sort", "begin", "main", "through", "return"),
        "nvidia_mig": ("main", "return"),
        "cuda_toolkit": ("main",),
        "nvidia_containers": ("main",),
    }
    good, later = node(tmp_path / "a", held=True), node(tmp_path / "b", held=False)
    # There is no Slurm yet, so that no node is drained.
    head = {**GOOD, "commands": {"drained": {"rc": 1, "text": "Error: No such container: slurmctld"}}}

    log, failed = stage("gpu", tmp_path, roles, head=[head], node1=[good], node2=[good, later])

    # On node2 the driver has something to do, the toolkit only since; node1 lacks what gives GPUs to containers.
    assert log == ["nvidia_driver/sort node2", "cuda_toolkit/main node2", "nvidia_containers/main node1"]
    assert failed == set()


def test_stage_gpu_leaves_a_node_alone_of_which_the_controller_does_not_say_whether_it_is_drained(
    tmp_path: Path,
) -> None:
    roles = {"nvidia_driver": ("sort", "begin", "main", "through", "return"), "nvidia_containers": ("main",)}
    head = {**GOOD, "commands": {"drained": {"rc": 124, "text": ""}}}
    good = node(tmp_path / "a", held=True)

    log, failed = stage("gpu", tmp_path, roles, head=[head], node1=[good], node2=[good])

    # node1 gets no driver, so that no run would give it back.
    assert log == ["nvidia_containers/main node1"]
    assert ("Ask the machine and judge its answer", "node2") in failed


def test_a_stage_alone_leaves_the_machine_as_it_is_that_preflight_refuses_and_goes_on_with_the_others(
    tmp_path: Path,
) -> None:
    roles = {"nvidia_driver": ("sort", "begin", "main", "through", "return"), "nvidia_containers": ("main",)}
    head = {**GOOD, "commands": {"drained": {"rc": 1, "text": "Error: No such container: slurmctld"}}}
    good, new = node(tmp_path / "a", held=True), node(tmp_path / "b", held=False) | {"kernel": "6.18.5"}

    log, failed = stage("gpu", tmp_path, roles, head=[head], node1=[good], node2=[new])

    assert log == ["nvidia_containers/main node1"]
    assert failed == {("Ask the machine and judge its answer", "node2")}
    # The stage has nothing for a login host: it is asked nothing.
    assert {path.stem for path in tmp_path.glob("*.asked")} == {"head", "node1", "node2"}
