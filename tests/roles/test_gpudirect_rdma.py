"""What the role's filters make of values as Ansible itself hands them over."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from provision import content
from provision.ansible_env import clean_environment

MACHINE = {
    "gpu": {
        "gpus": [{"address": "0000:1b:00.0", "architecture": "ampere", "product": "NVIDIA A100", "consumer": False}],
        "kernel": {"running": "6.1.0-28-amd64"},
        "module": {"loaded": "580.95.05", "open": False},
    },
    "rdma": {"adapters": []},
}
PLAY = """
- hosts: localhost
  gather_facts: false
  vars:
    settings: {nccl: "", release: "", legacy_allowed: false, required: false}
  tasks:
    - ansible.builtin.set_fact:
        found: {machine: MACHINE}
    - ansible.builtin.assert:
        that: found.machine | gpudirect_checks(settings, true) | map(attribute="verdict") | unique == ["skip"]
        fail_msg: "{{ found.machine | gpudirect_checks(settings, true) | to_json }}"
"""


def test_a_gpu_is_read_from_what_ansible_hands_to_a_filter(tmp_path: Path) -> None:
    play = tmp_path / "play.yml"
    play.write_text(PLAY.replace("MACHINE", json.dumps(MACHINE)))
    environment = {
        **clean_environment(),
        "ANSIBLE_CONFIG": str(content.ROOT / "ansible.cfg"),
        "ANSIBLE_FILTER_PLUGINS": str(content.ROOT / "roles/gpudirect_rdma/filter_plugins"),
    }
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", "-c", "local", str(play)]

    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    assert done.returncode == 0, done.stdout
