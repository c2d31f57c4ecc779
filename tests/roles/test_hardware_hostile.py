"""Machines that answer maliciously when they are asked for their hardware: each fails alone, and nothing of it runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from provision import content
from provision.ansible_env import clean_environment
from provision.inventory import loader
from provision.inventory.declared import cluster_from

GOOD: dict[str, Any] = {
    **{"cpus": 4, "sockets": 1, "cores_per_socket": 4, "threads_per_core": 1, "regular": True, "real_memory": 8000},
    **{"cgroup_version": 2, "gres": "gpu:a40:1", "gpu_count": 1, "gpu_source": "nvidia-smi", "gpu_addresses": []},
    **{"gpus_on_bus": 1, "bus_gpus": [], "bus_gres": "", "rdma_ports": 0},
}

#: What machines answer, beside what is good of it. RUN is a template that runs a command on the control node.
HOSTILE: dict[str, dict[str, Any]] = {
    "template": {"gres": "RUN"},
    "statement": {"gres": "{% set x = cycler.__init__.__globals__.os.system('touch CANARY') %}"},
    "quotes": {"gres": 'gpu:a40:1"\nansible_connection: local\nx: "'},
    "many": {"gres": "gpu:a40:9999999", "gpu_count": 9999999},
    "other": {"gres": "nothing:x:1"},
    "long": {"gres": "gpu:" + "a" * 100_000 + ":1"},
    "list": {"gres": ["gpu:a40:1", {"RUN": 1}]},
    "cpus": {"cpus": 70_000, "cores_per_socket": 70_000},
    "memory": {"real_memory": 10**17},
    "negative": {"real_memory": -1},
    "words": {"cpus": "RUN"},
    "cgroups": {"cgroup_version": 7},
    "ports": {"rdma_ports": 10**12},
    "kinds": {"gpu_count": 0, "bus_gres": "gpu:a40:1", "bus_gpus": ["RUN", 7]},
    "product": {
        "gpu_count": 0,
        "bus_gres": "gpu:a40:1",
        "bus_gpus": [{"address": "RUN", "id": "10de:2235\nx: 1", "product": "RUN"}],
    },
    "below": {"real_memory": 1},  # possible by itself, but the site reserves more for the system
}

#: What is recorded, because only a comment holds it; nothing of it may be more than that.
CLEANED: dict[str, dict[str, Any]] = {
    "bell": {"gpu_source": "nvidia\x07smi\x1b[2J\x85\u2028node_cpus: 1\n\rRUN # x"},
}

MODULE = """#!/usr/bin/python
import json, os
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule({"gather": {"type": "list"}}, supports_check_mode=True)
with open(os.environ["ANSWER"]) as file:
    module.exit_json(changed=False, machine={"hardware": json.load(file), "clock": {"begun": 1.0, "ended": 1.0}})
"""

USE = """
- name: Use what is inventory now
  hosts: slurm_compute
  gather_facts: false
  tasks:
    - name: Use
      ansible.builtin.debug: {msg: "{{ node_gres | default(none) }} {{ hostvars[inventory_hostname] | string }}"}
"""


def ansible(directory: Path, playbook: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "ansible-playbook"
    library = f"{directory / 'library'}{os.pathsep}{content.ROOT / 'plugins/modules'}"
    environment = {**clean_environment(), "ANSIBLE_LIBRARY": library}
    command = [str(program), "-i", str(directory / "inventory.ini"), str(playbook)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=300)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An inventory of machines of which each answers what its file holds; all of them are this computer."""
    tmp_path = tmp_path_factory.mktemp("site")
    canary = tmp_path / "CANARY"
    (tmp_path / "library").mkdir()
    (tmp_path / "library/machine_facts.py").write_text(MODULE)
    machines = {"good": {}, **HOSTILE, **CLEANED}
    for name, answer in machines.items():
        text = json.dumps({**GOOD, **answer}).replace("RUN", "{{ lookup('pipe', 'touch CANARY') }}")
        (tmp_path / f"{name}.json").write_text(text.replace("CANARY", str(canary)))
        python = tmp_path / f"{name}.python"
        python.write_text(f'#!/bin/sh\nANSWER={tmp_path}/{name}.json exec {sys.executable} "$@"\n')
        python.chmod(0o755)
    lines = [f"{name} ansible_python_interpreter={tmp_path}/{name}.python" for name in machines]
    inventory = ["[slurm_controller]", "head", "[slurm_compute]", *lines, "[all:vars]", "cluster_name=lab"]
    variables = ["ansible_connection=local", "ansible_become=false", "node_mem_spec_limit=500"]
    (tmp_path / "inventory.ini").write_text("\n".join([*inventory, *variables]) + "\n")
    return tmp_path


@pytest.fixture(scope="module")
def done(site: Path) -> subprocess.CompletedProcess[str]:
    """All of them have been asked."""
    return ansible(site, content.playbook("discover"))


def test_what_a_machine_says_of_itself_runs_nothing_and_fails_that_machine_alone(
    site: Path, done: subprocess.CompletedProcess[str]
) -> None:
    (site / "use.yml").write_text(USE)
    used = ansible(site, site / "use.yml")

    assert not (site / "CANARY").exists(), "a machine's answer ran as code on the control node"
    assert "Traceback" not in done.stdout + done.stderr
    written = {path.name.removesuffix(".yml") for path in (site / "host_vars").iterdir()}
    assert written == {"good", *CLEANED}
    for name in HOSTILE:
        assert f"fatal: [{name}]" in done.stdout, name
    for name in ("good", *CLEANED):
        assert f"fatal: [{name}]" not in done.stdout, name
    assert used.returncode == 0, used.stdout + used.stderr


@pytest.mark.usefixtures("done")
def test_an_inventory_with_hostile_machines_is_read_by_every_later_command(site: Path) -> None:
    inventory = loader.load(site / "inventory.ini")
    cluster = cluster_from(inventory.groups, inventory.hostvars)

    assert sorted(cluster.undeclared) == sorted(HOSTILE)
