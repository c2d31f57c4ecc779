"""The values that roles share, as Ansible evaluates them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from provision import content

PLAY = """\
- hosts: all
  gather_facts: false
  connection: local
  roles: [probe]
"""
ASK = "- ansible.builtin.debug: msg={{ [cluster_simulated_words, cluster_real_gpus, cluster_controller] }}\n"


#: What a machine's variables are, which words are simulated by them, and whether its GPUs are real.
CASES: dict[str, tuple[dict[str, object], list[str], bool]] = {
    "head": ({}, [], True),
    "empty": ({"cluster_simulated": ""}, [], True),
    "word": ({"cluster_simulated": "gpu"}, ["gpu"], False),
    "words": ({"cluster_simulated": "rdma, gpu"}, ["rdma", "gpu"], False),
    "list": ({"cluster_simulated": ["gpu"]}, ["gpu"], False),
    "other": ({"cluster_simulated": ["rdma"], "node_gres": ["gpu:a40:4"]}, ["rdma"], True),
    "none": ({"node_gres": ""}, [], False),
}


def test_what_is_simulated_is_a_list_however_it_is_written(tmp_path: Path) -> None:
    role = tmp_path / "roles/probe"
    for name, text in {"tasks": ASK, "meta": "dependencies: [{role: cluster}]\n"}.items():
        (role / name).mkdir(parents=True)
        (role / name / "main.yml").write_text(text, encoding="utf-8")
    (tmp_path / "play.yml").write_text(PLAY, encoding="utf-8")
    hosts = {name: {"node_gres": "gpu:a40:4", **declared} for name, (declared, _, _) in CASES.items()}
    controller = {"head": hosts.pop("head")}
    inventory = {"slurm_controller": {"hosts": controller}, "slurm_compute": {"hosts": hosts}}
    (tmp_path / "inventory.json").write_text(json.dumps(inventory), encoding="utf-8")
    environment = {**os.environ, "ANSIBLE_ROLES_PATH": f"{tmp_path}/roles:{content.ROOT}/roles"}
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
    assert {name: result["msg"] for name, result in task["hosts"].items()} == {
        name: [words, real, "head"] for name, (_, words, real) in CASES.items()
    }
