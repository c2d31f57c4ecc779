"""The role hardware_facts on this computer, without SSH: what it records, when, and what it leaves alone."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader

from provision import content
from provision.ansible_env import clean_environment

#: All are this computer: one is not declared at all, one in a file of its owner's, one as what it is not.
INVENTORY = """\
[slurm_controller]
head ansible_host=192.0.2.1
[all:vars]
cluster_name=small
[slurm_compute]
node1
theirs
other node_real_memory=99999999 node_cpus=1 node_gres=
[slurm_compute:vars]
ansible_connection=local
ansible_become=false
ansible_python_interpreter={python}
"""

#: Shows what later stages would see. In one playbook, because a machine that fails ends a row of them.
SHOW = """
- ansible.builtin.import_playbook: {discover}
- name: Show what later stages see
  hosts: slurm_compute
  gather_facts: false
  tasks:
    - name: Show
      ansible.builtin.copy:
        content: "{{{{ {{'cpus': node_cpus, 'memory': node_real_memory}} | to_json }}}}"
        dest: "{{{{ inventory_dir }}}}/seen-{{{{ inventory_hostname }}}}.json"
        mode: "0600"
      check_mode: false
"""


def inventory_in(directory: Path) -> Path:
    file = directory / "inventory.ini"
    file.write_text(INVENTORY.format(python=sys.executable))
    return file


def discover(inventory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    show = inventory.parent / "show.yml"
    show.write_text(SHOW.format(discover=content.playbook("discover")))
    playbook = Path(sys.executable).parent / "ansible-playbook"
    command = [str(playbook), "-i", str(inventory), str(show), *words]
    environment = {**clean_environment(), "ANSIBLE_CONFIG": str(content.ROOT / "ansible.cfg")}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


RECORD = "Record what the inventory leaves out"
DECLARED_BY_HAND = "---\nnode_real_memory: 5000 # mine\n"


def changed(done: subprocess.CompletedProcess[str], host: str, task: str = RECORD) -> bool:
    after = done.stdout.split(f"TASK [hardware_facts : {task}]", 1)[1]
    return f"\nchanged: [{host}]" in after.split("\nTASK [", 1)[0]


def asked(done: subprocess.CompletedProcess[str]) -> set[str]:
    """Return the machines on which the role did anything."""
    parts = [part.partition("\nTASK [")[0] for part in done.stdout.split("TASK [hardware_facts : ")[1:]]
    return set(re.findall(r"^(?:ok|changed|failed|fatal): \[(\w+)\]", "\n".join(parts), re.MULTILINE))


@dataclass(frozen=True)
class Discovered:
    """An inventory after a run in check mode of node1, a run, and one more of node1, and what each of them printed."""

    directory: Path
    planned: subprocess.CompletedProcess[str]
    #: What was recorded and seen by the run in check mode; all files of host_vars after the run.
    planned_files: list[str]
    planned_memory: int
    first: subprocess.CompletedProcess[str]
    recorded: dict[str, str]
    second: subprocess.CompletedProcess[str]

    def seen(self, host: str) -> dict[str, int]:
        found: dict[str, int] = yaml.safe_load((self.directory / f"seen-{host}.json").read_text())
        return found


def recorded_in(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (directory / "host_vars").iterdir()}


@pytest.fixture(scope="module")
def discovered(tmp_path_factory: pytest.TempPathFactory) -> Discovered:
    directory = tmp_path_factory.mktemp("site")
    inventory = inventory_in(directory)
    (directory / "host_vars").mkdir()
    (directory / "host_vars/theirs.yml").write_text(DECLARED_BY_HAND)
    planned = discover(inventory, "--check", "--diff", "--limit", "node1")
    files = sorted(recorded_in(directory))
    memory = yaml.safe_load((directory / "seen-node1.json").read_text())["memory"]
    first = discover(inventory)
    recorded = recorded_in(directory)
    return Discovered(directory, planned, files, memory, first, recorded, discover(inventory, "--limit", "node1"))


def test_undeclared_hardware_is_recorded_once_and_then_is_inventory(discovered: Discovered) -> None:
    assert changed(discovered.first, "node1")
    # A machine that is declared is not even asked.
    assert asked(discovered.first) == {"node1", "theirs", "other"}
    assert asked(discovered.second) == set()
    assert discovered.second.returncode == 0, discovered.second.stdout
    assert recorded_in(discovered.directory) == discovered.recorded
    recorded = DataLoader().load_from_file(str(discovered.directory / "host_vars/node1.yml"))
    assert discovered.seen("node1")["cpus"] == recorded["node_cpus"] > 0


def test_check_mode_records_nothing_and_still_knows_the_values(discovered: Discovered) -> None:
    assert changed(discovered.planned, "node1")
    assert "+node_cpus:" in discovered.planned.stdout
    assert discovered.planned_files == ["theirs.yml"]
    assert discovered.planned_memory > 0


def test_declared_values_are_not_recorded_and_a_file_of_theirs_is_left_alone(discovered: Discovered) -> None:
    assert discovered.recorded["theirs.yml"] == DECLARED_BY_HAND
    assert not changed(discovered.first, "theirs")
    assert "left alone" in discovered.first.stdout + discovered.first.stderr
    assert discovered.seen("theirs")["memory"] == 5000
    assert discovered.seen("theirs")["cpus"] > 0


def test_a_machine_that_contradicts_its_inventory_is_not_half_recorded(discovered: Discovered) -> None:
    assert not changed(discovered.first, "other")
    assert sorted(discovered.recorded) == ["node1.yml", "theirs.yml"]


def test_an_inventory_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "host_vars").write_text("a file where a directory should be")

    done = discover(inventory_in(tmp_path), "--limit", "node1")

    assert done.returncode == 2
    assert "host_vars" in done.stdout
    assert "Fix:" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
