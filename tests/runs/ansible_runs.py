"""Small playbooks on this computer, so that a real run of Ansible takes a second."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from waiting import PATIENCE, until

from provision import content
from provision.events.fold import RunReport
from provision.runner import journal, playbooks
from provision.runner.process import marked

PYTHON = Path("/usr/bin/python3")

INVENTORY = f"""\
[slurm_controller]
head ansible_host=192.0.2.1

[slurm_compute]
node1 ansible_host=192.0.2.11
node2 ansible_host=192.0.2.12

[slurm_compute:vars]
node_cpus=4
node_real_memory=4000

[all:vars]
cluster_name=small
cluster_simulated=gpu
slurm_conf_cgroup_v1_allowed=true
ansible_connection=local
ansible_become=false
ansible_python_interpreter={PYTHON}
"""

#: By a module that is started once on each machine; ansible.builtin.copy takes three starts of Python.
CHANGE = """
    - name: Write
      ansible.builtin.lineinfile:
        path: "{{ inventory_dir }}/made-{{ inventory_hostname }}"
        line: "{{ inventory_hostname }}"
        create: true
        mode: "0644"
"""

CHECKS = """
    - name: Compare the modes
      cluster_check:
        id: munge.key_mode
        observed: "{{ '0644' if inventory_hostname == 'node2' else '0400' }}"
        expected: "0400"
        cause: someone changed it
        fix: clusterctl provision munge
      vars:
        cluster_check_collect: true
    - name: End badly where a check did
      cluster_check:
        conclude: true
"""

#: Of what comes before a verify is killed all is well.
PASSES = CHECKS.replace("0644", "0400").partition("    - name: End badly")[0]

STATUS = """
    - name: Report the cluster's state
      ansible.builtin.set_fact:
        cluster_status: {}
      run_once: true
"""

HOLD = """
    - name: Hold on
      ansible.builtin.shell: touch {{ inventory_dir }}/held; sleep 3600
      run_once: true
"""

#: How every playbook of ours begins a play: the mark makes its processes recognisable on any machine.
PLAY = """\
- name: {name}
  hosts: {hosts}
  gather_facts: false
  environment: {{CLUSTERCTL_RUN: "{{{{ clusterctl_run | default('ansible-playbook') }}}}"}}
  tasks:
"""


def write_playbook(path: Path, tasks: str, *, name: str = "Try", hosts: str = "all") -> Path:
    """Write a playbook of one play around ``tasks``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = PLAY.format(name=name, hosts=hosts) + textwrap.indent(textwrap.dedent(tasks), "    ")
    path.write_text(text, encoding="utf-8")
    return path


def write_inventory(directory: Path, text: str = INVENTORY) -> Path:
    """Write an inventory of three machines that are all this computer."""
    path = directory / "inventory.ini"
    path.write_text(text, encoding="utf-8")
    return path


def run(playbook: Path, *, text: str = INVENTORY, **options: Any) -> tuple[RunReport, journal.Run]:
    """Run a playbook beside which the inventory and its record are written."""
    inventory = write_inventory(playbook.parent, text)
    record = journal.begin(journal.prepare(journal.state_directory(inventory)), "provision")
    report = playbooks.run([playbook], inventory=inventory, record=record, options=playbooks.Options(**options))
    record.finish("done")
    return report, record


#: Starts clusterctl with the playbooks of another directory, and everything else as it is.
LAUNCH = (
    "import sys, provision.cli.flow; from pathlib import Path; from provision import content;"
    "content.ROOT = Path(sys.argv.pop(1)); from provision.cli.main import main; main()"
)


def start(root: Path, arguments: Sequence[str], **more: Any) -> subprocess.Popen[str]:
    """Start clusterctl as a process of its own, with the playbooks under ``root``."""
    command = [sys.executable, "-c", LAUNCH, str(root), *arguments]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, cwd=root, **(pipes | more))


def command(root: Path, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    process = start(root, arguments, **more)
    out, err = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def on_a_terminal(root: Path, arguments: Sequence[str], columns: int) -> tuple[int, str]:
    """Run clusterctl on a terminal; return its exit code and all that it has drawn."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "LINES": "24", "TERM": "xterm", "NO_COLOR": "1"}
    process = start(root, arguments, stderr=theirs, env=environment)
    os.close(theirs)
    drawn = b""
    # A terminal holds 4 KiB: a program waits for its reader. Reading ends with an error when nobody writes any more.
    with suppress(OSError):
        while part := os.read(ours, 4096):
            drawn += part
    os.close(ours)
    process.communicate(timeout=PATIENCE)
    return process.returncode, drawn.decode()


def until_held(process: subprocess.Popen[str], root: Path, machines: int = 1) -> None:
    """Wait until a process's run is in a task that holds on so many machines, which each note ``held``."""

    def held() -> bool:
        assert process.poll() is None, process.communicate()
        return len(list(root.glob("held*"))) == machines

    until(held, "the task that holds")


def processes_of(state: Path) -> list[int]:
    """Return the processes on this computer that belong to any run on record."""
    return [pid for run in journal.runs(state) for pid in marked(run.id)]


def stages_in(root: Path, **stages: str) -> Path:
    """Write ``playbooks/`` with one stage per argument, and a site.yml that imports them in order."""
    for name, tasks in stages.items():
        write_playbook(root / "playbooks" / f"{name}.yml", tasks, name=f"Stage {name}")
    site = "".join(f"- ansible.builtin.import_playbook: {name}.yml\n" for name in stages if name != "verify")
    (root / "playbooks" / "site.yml").write_text(site, encoding="utf-8")
    site_defaults(root)
    content.stages.cache_clear()
    return root


def lease_kept_in(library: Path, place: Path) -> None:
    """Have made-up controllers keep the cluster's lease in a file of a test, not in this computer's."""
    module = (content.ROOT / "plugins/modules/cluster_lease.py").read_text(encoding="utf-8")
    (library / "cluster_lease.py").write_text(module.replace("lease_file.PATH", repr(str(place))), encoding="utf-8")


def site_defaults(root: Path) -> None:
    """Give a place of playbooks the defaults of the site's variables, which the package reads beside them."""
    place = root / "roles/cluster/defaults"
    place.mkdir(parents=True, exist_ok=True)
    shutil.copy(content.ROOT / "roles/cluster/defaults/main.yml", place)
