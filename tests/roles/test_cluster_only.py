"""Machines that an inventory holds for other purposes: no stage touches them, and no other machine learns of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from provision import content
from provision.ansible_env import clean_environment

INVENTORY = {
    "slurm_controller": {"hosts": {"head": {"ansible_host": "10.0.0.1"}}},
    "slurm_compute": {"hosts": {"node1": {"ansible_host": "10.0.0.2"}}},
    "slurm_login": {"hosts": {"login1": {"ansible_host": "10.0.0.3"}}},
    # Ansible reads such a name from YAML; on machines it would be a second line of /etc/hosts.
    "web": {"hosts": {"web1\n10.0.0.66 mirror.site": {"ansible_host": "10.0.0.9"}, "web2": {}}},
    "all": {"vars": {"ansible_connection": "local", "cluster_name": "lab"}},
}

TELL = """
- name: Tell
  hosts: head
  gather_facts: false
  vars_files: ["{defaults}"]
  tasks:
    - name: Tell
      ansible.builtin.debug: {{msg: "known: {{{{ cluster_hosts | to_json }}}}"}}
"""


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "inventory.yml"
    path.write_text(json.dumps(INVENTORY))
    return path


def ansible(inventory: Path, playbook: Path, *words: str) -> str:
    program = Path(sys.executable).parent / "ansible-playbook"
    command = [str(program), "-i", str(inventory), str(playbook), *words]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Could not match" not in done.stderr
    return done.stdout


def test_no_stage_touches_a_machine_outside_the_clusters_groups(inventory: Path) -> None:
    told = ansible(inventory, content.ROOT / "playbooks/site.yml", "--list-hosts")

    assert "login1" in told
    assert "web" not in told


def test_every_machine_learns_the_names_of_the_cluster_and_no_others(inventory: Path, tmp_path: Path) -> None:
    playbook = tmp_path / "tell.yml"
    playbook.write_text(TELL.format(defaults=content.ROOT / "roles/cluster/defaults/main.yml"))

    told = ansible(inventory, playbook)

    assert '[\\"head\\", \\"node1\\", \\"login1\\"]' in told, told
