"""A machine that preflight refuses is left out, the others go on; what concerns the whole cluster refuses the run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_runs import LAUNCH, PYTHON, site_defaults
from test_observe import MASKED, REPLAY
from waiting import PATIENCE

from provision import content
from provision.ansible_env import clean_environment

sys.path.insert(0, str(content.ROOT / "tests/unit"))
from test_hardware import A40
from test_preflight import READY

#: Each machine is this computer, and is known to the replay by its interpreter.
INVENTORY = """\
[slurm_controller]
head ansible_host=192.0.2.1
[slurm_compute]
node1 ansible_host=192.0.2.11
node2 ansible_host=192.0.2.12
[slurm_compute:vars]
node_cpus=48
node_real_memory=190000
node_gres=gpu:a40:4
[all:vars]
cluster_name=small
ansible_connection=local
ansible_become=false
ansible_python_interpreter={place}/{{{{ inventory_hostname }}}}-python
"""

#: A stage that has something to do on each machine: munge's, whose role is a note that it ran.
ACT = """\
- ansible.builtin.import_playbook: observe.yml
  vars: {__stage_roles: [munge]}
- name: Act
  hosts: "{{ query('pending', 'munge') or '!all' }}"
  gather_facts: false
  tasks:
    - name: Act
      ansible.builtin.lineinfile:
        path: "{{ inventory_dir }}/made-{{ inventory_hostname }}"
        line: made
        create: true
        mode: "0644"
"""


#: Starts clusterctl so that machines are asked for two roles alone: no other's answers are made up here.
ASKED = LAUNCH.replace(
    "from provision.cli.main",
    "from provision.judge import road; road.roles_of = lambda stages: ['preflight', 'munge']; from provision.cli.main",
)
#: A GPU has fallen off the bus.
LESS = {**A40, "gres": "gpu:a40:3", "gpu_count": 3, "gpus_on_bus": 3}


def answer(host: str, **changes: Any) -> dict[str, Any]:
    """Return what a machine answers that is ready, and whose munge is masked; the head runs no jobs."""
    free = {"free": 90000, "device": 1, "used": True}
    paths = ("/", "/var/lib/docker", "/var/lib/clusterctl", "/var/cache/clusterctl")
    own = {"hostname": host, "addresses": {host: ["192.0.2.1"]}, "disks": dict.fromkeys(paths, free)}
    machine = {**READY, **MASKED, **own, "hardware": A40, **changes}
    return {key: value for key, value in machine.items() if key != "hardware" or host != "head"}


def site(place: Path, **answers: dict[str, Any]) -> Path:
    """Write a site of preflight and one stage, whose machines are ready but for these answers."""
    playbooks = place / "playbooks"
    (playbooks / "library").mkdir(parents=True)
    replay = REPLAY.format(place=str(place)).replace("/usr/bin/python3", "/usr/bin/python")
    (playbooks / "library/machine_facts.py").write_text(replay, encoding="utf-8")
    shutil.copytree(content.ROOT / "playbooks/callback_plugins", playbooks / "callback_plugins")
    for name in ("observe", "preflight"):
        shutil.copy(content.playbook(name), playbooks)
    (playbooks / "munge.yml").write_text(ACT, encoding="utf-8")
    imports = "- ansible.builtin.import_playbook: preflight.yml\n  vars: {__observed_roles: [preflight, munge]}\n"
    imports += "- ansible.builtin.import_playbook: munge.yml\n"
    (playbooks / "site.yml").write_text(imports, encoding="utf-8")
    (place / "inventory.ini").write_text(INVENTORY.format(place=place), encoding="utf-8")
    for host in ("head", "node1", "node2"):
        (place / f"{host}.json").write_text(json.dumps([answers.get(host, answer(host))]), encoding="utf-8")
        python = place / f"{host}-python"
        python.write_text(f'#!/bin/sh\nexport MACHINE={host}\nexec {PYTHON} "$@"\n', encoding="utf-8")
        python.chmod(0o755)
    site_defaults(place)
    content.stages.cache_clear()
    return place


def command(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ASKED, str(place), *arguments],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def made(place: Path) -> set[str]:
    return {path.name.removeprefix("made-") for path in place.glob("made-*")}


def failed(place: Path) -> dict[str, list[str]]:
    """Return what the last run's report says of each machine that failed: the checks that did not pass."""
    [record] = sorted((place / ".clusterctl/runs").iterdir())
    report = json.loads((record / "report.json").read_text(encoding="utf-8"))
    assert json.loads((record / "run.json").read_text(encoding="utf-8"))["outcome"] == "failed"
    assert sorted(host for one in report["failures"] for host in one["hosts"]) == sorted(
        host for host, counts in report["hosts"].items() if counts["failed"] == 1
    )
    bad: dict[str, list[str]] = {host: [] for one in report["failures"] for host in one["hosts"]}
    for check in report["checks"]:
        if check["verdict"] == "fail":
            bad[check["host"]].append(check["id"])
    return bad


def test_a_machine_that_preflight_refuses_is_left_out_by_name_and_the_others_go_on(tmp_path: Path) -> None:
    place = site(tmp_path, node2=answer("node2", hardware=LESS))

    done = command(place, "provision")

    assert (done.returncode, made(place)) == (4, {"head", "node1"}), done.stderr
    assert failed(place) == {"node2": ["hardware.gres"]}
    assert "fail     node2  hardware.gres  gpu:a40:3; expected gpu:a40:4 (node_gres)\n         cause: " in done.stdout
    assert "next: repair node2 as described above, then again: clusterctl provision inventory.ini. " in done.stdout


def test_the_controller_goes_on_also_where_every_other_machine_is_refused(tmp_path: Path) -> None:
    nodes = {name: answer(name, hardware=LESS) for name in ("node1", "node2")}
    place = site(tmp_path, **nodes)

    done = command(place, "plan")
    planned = (done.returncode, made(place), "munge.services: munge is masked" in done.stdout)
    shutil.rmtree(place / ".clusterctl")
    done = command(place, "provision")

    assert planned == (4, set(), True)
    assert (done.returncode, made(place)) == (4, {"head"}), done.stderr
    assert failed(place) == {"node1": ["hardware.gres"], "node2": ["hardware.gres"]}


SLURM_OF_ANOTHER = {"saved": "", "controller": "former", "cluster": "small"}


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        # Nothing works without the controller; what is wrong elsewhere is told as well.
        (
            {"head": {"hostname": "other"}, "node2": {"hardware": LESS}},
            {"head": ["preflight.hostname"], "node2": ["hardware.gres"]},
        ),
        # A node's, but jobs of the whole cluster would be lost.
        (
            {"head": {"slurm": {"saved": ""}}, "node1": {"slurm": SLURM_OF_ANOTHER}},
            {"node1": ["preflight.same_cluster"]},
        ),
    ],
)
def test_what_concerns_the_whole_cluster_refuses_the_run_and_names_no_other_machine(
    tmp_path: Path, answers: dict[str, dict[str, Any]], found: dict[str, list[str]]
) -> None:
    place = site(tmp_path, **{host: answer(host, **changes) for host, changes in answers.items()})

    done = command(place, "provision")

    assert (done.returncode, made(place)) == (3, set()), done.stdout + done.stderr
    assert failed(place) == found


@pytest.mark.parametrize(
    ("broken", "changes", "on", "code"),
    [("node2", {"hardware": LESS}, {"head", "node1"}, 2), ("head", {"hostname": "other"}, set(), 3)],
)
def test_ansible_playbook_leaves_out_and_refuses_the_same(
    tmp_path: Path, broken: str, changes: dict[str, Any], on: set[str], code: int
) -> None:
    place = site(tmp_path, **{broken: answer(broken, **changes)})
    program = Path(sys.executable).parent / "ansible-playbook"

    done = subprocess.run(
        [str(program), "-i", "inventory.ini", "playbooks/site.yml"],
        cwd=place,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )

    assert (done.returncode, made(place)) == (code, on), done.stdout
    recap = done.stdout.partition("PLAY RECAP")[2].splitlines()
    assert [line.split()[0] for line in recap if "failed=1" in line] == [broken]
