"""The role hardware_facts on this computer, without SSH: what it records, when, and what it leaves alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader

from provision import content
from provision.ansible_env import clean_environment

INVENTORY = """\
[slurm_controller]
head ansible_host=192.0.2.1
[all:vars]
cluster_name=small
[slurm_compute]
node1 ansible_connection=local ansible_become=false ansible_python_interpreter={python}
"""

#: Prints what later stages would see.
SHOW = """
- name: Show what later stages see
  hosts: slurm_compute
  gather_facts: false
  tasks:
    - name: Show
      ansible.builtin.copy:
        content: "{{ {'cpus': hostvars['node1'].node_cpus, 'memory': hostvars['node1'].node_real_memory} | to_json }}"
        dest: "{{ inventory_dir }}/seen.json"
        mode: "0600"
      check_mode: false
"""


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    file = tmp_path / "inventory.ini"
    file.write_text(INVENTORY.format(python=sys.executable))
    return file


def discover(inventory: Path, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    show = inventory.parent / "show.yml"
    show.write_text(SHOW)
    playbook = Path(sys.executable).parent / "ansible-playbook"
    command = [str(playbook), "-i", str(inventory), str(content.playbook("discover")), str(show), *words]
    environment = {**clean_environment(), "ANSIBLE_CONFIG": str(content.ROOT / "ansible.cfg")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def changed(done: subprocess.CompletedProcess[str], task: str) -> bool:
    after = done.stdout.split(f"TASK [hardware_facts : {task}]", 1)[1]
    return "\nchanged: [node1]" in after.split("\nTASK [", 1)[0]


RECORD = "Record what the inventory leaves open"


def test_undeclared_hardware_is_recorded_once_and_then_is_inventory(inventory: Path) -> None:
    first = discover(inventory)
    recorded = inventory.parent / "host_vars/node1.yml"
    text = recorded.read_text()
    second = discover(inventory)

    assert changed(first, RECORD)
    # A machine that is declared is not even asked.
    assert "TASK [hardware_facts" not in second.stdout
    assert recorded.read_text() == text
    seen = yaml.safe_load((inventory.parent / "seen.json").read_text())
    assert seen["cpus"] == DataLoader().load_from_file(str(recorded))["node_cpus"] > 0


def test_check_mode_records_nothing_and_still_knows_the_values(inventory: Path) -> None:
    done = discover(inventory, "--check", "--diff")

    assert changed(done, RECORD)
    assert "+node_cpus:" in done.stdout
    assert not (inventory.parent / "host_vars").exists()
    assert yaml.safe_load((inventory.parent / "seen.json").read_text())["memory"] > 0


def test_declared_values_are_not_recorded_and_a_file_of_theirs_is_left_alone(inventory: Path) -> None:
    theirs = inventory.parent / "host_vars/node1.yml"
    theirs.parent.mkdir()
    theirs.write_text("---\nnode_real_memory: 50 # mine\n")

    done = discover(inventory)

    assert theirs.read_text() == "---\nnode_real_memory: 50 # mine\n"
    assert not changed(done, RECORD)
    assert "left alone" in done.stdout + done.stderr
    seen = yaml.safe_load((inventory.parent / "seen.json").read_text())
    assert seen["memory"] == 50
    assert seen["cpus"] > 0


def test_a_machine_that_contradicts_its_inventory_is_not_half_recorded(inventory: Path) -> None:
    inventory.write_text(inventory.read_text().rstrip() + " node_real_memory=99999999 node_cpus=1 node_gres=\n")

    done = discover(inventory, check=False)

    assert not changed(done, RECORD)
    assert not (inventory.parent / "host_vars").exists()


def test_an_inventory_that_cannot_be_written_to_is_named(inventory: Path) -> None:
    (inventory.parent / "host_vars").write_text("a file where a directory should be")

    done = discover(inventory, check=False)

    assert done.returncode == 2
    assert "host_vars" in done.stdout
    assert "Fix:" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
