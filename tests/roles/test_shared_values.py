"""The values that roles share, as Ansible evaluates them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from provision import content

PLAY = """\
- hosts: all
  gather_facts: false
  connection: local
  vars_files: {files}
  tasks:
    - ansible.builtin.debug: msg={{{{ {asked} }}}}
"""


def evaluated(tmp_path: Path, asked: str, hosts: dict[str, Any], *roles: str) -> dict[str, Any]:
    """Return by machine what an expression is with the defaults of roles; ``head`` is the controller."""
    files = [str(content.ROOT / f"roles/{role}/defaults/main.yml") for role in roles]
    (tmp_path / "play.yml").write_text(PLAY.format(files=json.dumps(files), asked=asked), encoding="utf-8")
    hosts = dict(hosts)
    controller = {"head": hosts.pop("head", {})}
    inventory = {"slurm_controller": {"hosts": controller}, "slurm_compute": {"hosts": hosts}}
    (tmp_path / "inventory.json").write_text(json.dumps(inventory), encoding="utf-8")
    environment = {**os.environ, "ANSIBLE_ROLES_PATH": f"{content.ROOT}/roles"}
    environment |= {
        "ANSIBLE_CONFIG": str(content.ROOT / "ansible.cfg"),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.json",
    }
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "inventory.json", "play.yml"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (task,) = [task for play in json.loads(done.stdout)["plays"] for task in play["tasks"]]
    return {name: result["msg"] for name, result in task["hosts"].items()}


#: What a machine's variables are, which words are simulated by them, and whether its GPUs are real.
CASES: dict[str, tuple[dict[str, object], list[str], bool]] = {
    "head": ({}, [], True),
    "empty": ({"cluster_simulated": ""}, [], True),
    "word": ({"cluster_simulated": "gpu"}, ["gpu"], False),
    "words": ({"cluster_simulated": "rdma, gpu"}, ["rdma", "gpu"], False),
    "list": ({"cluster_simulated": ["gpu"]}, ["gpu"], False),
    "other": ({"cluster_simulated": ["rdma"], "node_gres": ["gpu:a40:4"]}, ["rdma"], True),
    "none": ({"node_gres": ""}, [], False),
    "alike": ({"node_gres": "nogpu:1"}, [], False),
}


def test_what_is_simulated_is_a_list_however_it_is_written(tmp_path: Path) -> None:
    hosts = {name: {"node_gres": "gpu:a40:4", **declared} for name, (declared, _, _) in CASES.items()}

    told = evaluated(tmp_path, "[cluster_simulated_words, cluster_real_gpus, cluster_controller]", hosts, "cluster")

    assert told == {name: [words, real, "head"] for name, (_, words, real) in CASES.items()}


#: What the inventory says of a node, and whether its jobs have a /tmp of their own then.
PRIVATE: dict[str, tuple[dict[str, object], bool]] = {
    "nothing": ({}, True),
    "null": ({"node_private_tmp": None}, True),
    "yes": ({"node_private_tmp": "true"}, True),
    "no": ({"node_private_tmp": "false"}, False),
    "false": ({"node_private_tmp": False, "slurm_conf_parameters": {"NamespaceType": "namespace/tmpfs"}}, False),
    "none": ({"slurm_conf_parameters": {"JobContainerType": None}}, False),
}


def test_a_node_says_for_itself_that_jobs_share_its_tmp(tmp_path: Path) -> None:
    hosts = {name: declared for name, (declared, _) in PRIVATE.items()}

    told = evaluated(tmp_path, "preflight_own_directories", hosts, "cluster", "preflight")

    assert {name: told[name] for name in PRIVATE} == {name: private for name, (_, private) in PRIVATE.items()}
