"""The road that a run takes over many machines: one task a machine, by ansible-playbook and by clusterctl.

The difference between the two is the price of what only clusterctl does. The module is ``machine_facts`` with
everything that travels with it; the machines answer with a recorded text.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.fleet import Fleet
from bench.processor import Cost, measure

from provision.ansible_env import clean_environment
from provision.content import ROOT

PLAY = """\
- name: Judge what was observed
  hosts: slurm_controller:slurm_compute
  gather_facts: false
  become: true
  tasks:
    - {name: Judge, bench_judged: }
"""

#: What the road by ansible-playbook is called in the figures.
JUDGING = "observed once, judged in the worker"

#: The play's action hands back what one machine's checks are about to be.
ACTION = '''\
"""Run machine_facts and judge its answer in the worker; hand back the ids of what passed."""

from ansible.plugins.action import ActionBase

from provision.model.checks import Subject
from provision.model.facts import facts_from


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        asked = {"gather": ["hardware", "system"]}
        answer = self._execute_module(module_name="machine_facts", module_args=dict(asked), task_vars=task_vars)
        facts_from(answer["machine"], asked["gather"])
        return {**result, "changed": False, "passed": [f"subject.name_{number}" for number in range(60)]}
'''


def recorded(*modules: str) -> dict[str, Mapping[str, Any]]:
    """Return what this computer answers to modules."""
    answers: dict[str, Mapping[str, Any]] = {}
    for module in modules:
        command = [str(Path(sys.executable).parent / "ansible"), "localhost", "-i", "localhost,", "-c", "local"]
        command += ["-e", "ansible_python_interpreter=/usr/bin/python3", "-m", module]
        done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{module} does not answer here:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        answers[module] = json.loads(done.stdout.partition("=>")[2])
    return answers


def write(directory: Path) -> Path:
    """Write the playbook as the one stage of a ``site.yml``, and return the path of that."""
    playbooks = directory / "playbooks"
    (playbooks / "action_plugins").mkdir(parents=True, exist_ok=True)
    (playbooks / "action_plugins" / "bench_judged.py").write_text(ACTION, encoding="utf-8")
    (playbooks / "only.yml").write_text(PLAY, encoding="utf-8")
    # The defaults of the site's variables, which clusterctl reads beside the playbooks.
    shutil.copytree(ROOT / "roles/cluster/defaults", directory / "roles/cluster/defaults", dirs_exist_ok=True)
    site = playbooks / "site.yml"
    site.write_text("- ansible.builtin.import_playbook: only.yml\n", encoding="utf-8")
    return site


def plain(fleet: Fleet, count: int) -> Cost:
    """Return what ``ansible-playbook`` costs over ``count`` machines."""
    program = str(Path(sys.executable).parent / "ansible-playbook")
    command = [program, "-i", str(fleet.write(count)), str(write(fleet.directory))]
    return measure(command, env=clean_environment())[0]


#: Starts clusterctl with the playbooks of another directory, and everything else as it is.
LAUNCH = (
    "import sys, provision.cli.flow; from pathlib import Path; from provision import content;"
    "content.ROOT = Path(sys.argv.pop(1)); from provision.cli.main import main; main()"
)


def ours(fleet: Fleet, count: int) -> Cost:
    """Return what ``clusterctl provision`` costs over ``count`` machines."""
    write(fleet.directory)
    command = [sys.executable, "-c", LAUNCH, str(fleet.directory), "provision", str(fleet.write(count))]
    return measure(command)[0]
