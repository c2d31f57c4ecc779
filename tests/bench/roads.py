"""The roads that a run can take over many machines, from a play without a task to a naive observation.

Each is a playbook, so that the difference between two of them is the price of what only one of them does. The module is
``machine_facts`` with everything that travels with it; the machines answer with a recorded text.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.fleet import Fleet
from bench.processor import Cost, measure

from provision.ansible_env import clean_environment
from provision.content import ROOT

PLAY = """\
- name: {name}
  hosts: slurm_controller:slurm_compute
  gather_facts: {gather}
  become: true
  tasks:
"""

#: One task of each kind, as YAML below ``tasks:``.
SKIPPED = "    - {name: Skip, ansible.builtin.ping: , when: false}\n"
FORKED = "    - {name: Say, ansible.builtin.debug: {msg: nothing}}\n"
STOCK = "    - {name: Ask, ansible.builtin.ping: }\n"
JUDGED = "    - {name: Judge, bench_judged: }\n"
GROUPED = "    - {name: Group, ansible.builtin.group_by: {key: pending}}\n"

#: What the judging road's action hands back: what one machine's checks are about to be.
ACTION = '''\
"""Run machine_facts and judge its answer in the worker; hand back the ids of what passed."""

from ansible.plugins.action import ActionBase

from provision.model.checks import Subject
from provision.model.facts import facts_from


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        asked = {"gather": ["hardware", "system"]}
        for _ in range(self._task.args.get("times", 1)):
            answer = self._execute_module(module_name="machine_facts", module_args=dict(asked), task_vars=task_vars)
        facts = facts_from(answer["machine"], asked["gather"])
        if self._task.args.get("whole"):
            return {**result, "changed": False, "machine": dict(facts)}
        return {**result, "changed": False, "passed": [f"subject.name_{number}" for number in range(60)]}
'''


@dataclass(frozen=True)
class Road:
    """A playbook's tasks, how its machines differ from the fleet's, and ANSIBLE_* settings of its own."""

    name: str
    tasks: str = ""
    gather: bool = False
    variables: Mapping[str, object] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


#: The parts of which the others consist.
PARTS = (
    Road("a play without a task"),
    Road("ten tasks that are skipped", SKIPPED * 10),
    Road("a forked task without a connection", FORKED),
    Road("one stock module over ssh", STOCK),
    Road("four stock modules over ssh", STOCK * 4),
)
JUDGING = Road("observed once, judged in the worker", JUDGED)
#: How the answer to "one task a machine" can differ.
CHOICES = (
    Road("observed, all facts handed back", "    - {name: Judge, bench_judged: {whole: true}}\n"),
    Road("observed, asked twice in the task", "    - {name: Judge, bench_judged: {times: 2}}\n"),
    Road("observed, Python looked for", JUDGED, variables={"ansible_python_interpreter": None}),
    Road("observed, without a master", JUDGED, settings={"ANSIBLE_SSH_ARGS": "-o ControlMaster=no"}),
    Road("observed, key exchange of curve25519", JUDGED, variables={"kex": "curve25519-sha256"}),
)
NAIVE = Road("facts gathered, observed, a group_by a role", JUDGED + GROUPED * 8, gather=True)


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


def write(directory: Path, road: Road) -> Path:
    """Write a road's playbook as the one stage of a ``site.yml``, and return the path of that."""
    playbooks = directory / "playbooks"
    (playbooks / "action_plugins").mkdir(parents=True, exist_ok=True)
    (playbooks / "action_plugins" / "bench_judged.py").write_text(ACTION, encoding="utf-8")
    text = PLAY.format(name=road.name.capitalize(), gather=str(road.gather).lower()) + (road.tasks or "    []\n")
    (playbooks / "only.yml").write_text(text, encoding="utf-8")
    # The defaults of the site's variables, which clusterctl reads beside the playbooks.
    shutil.copytree(ROOT / "roles/cluster/defaults", directory / "roles/cluster/defaults", dirs_exist_ok=True)
    site = playbooks / "site.yml"
    site.write_text("- ansible.builtin.import_playbook: only.yml\n", encoding="utf-8")
    return site


def inventory(fleet: Fleet, road: Road, count: int) -> Path:
    """Write the inventory of ``count`` machines as a road wants it."""
    changes = dict(road.variables)
    if kex := changes.pop("kex", None):
        changes["ansible_ssh_common_args"] = f"{fleet.variables()['ansible_ssh_common_args']} -o KexAlgorithms={kex}"
    return fleet.write(count, **changes)


def plain(fleet: Fleet, road: Road, count: int) -> Cost:
    """Return what ``ansible-playbook`` costs for a road over ``count`` machines."""
    program = str(Path(sys.executable).parent / "ansible-playbook")
    site = write(fleet.directory, road)
    environment = {**clean_environment(), **road.settings}
    return measure([program, "-i", str(inventory(fleet, road, count)), str(site)], env=environment)[0]


#: Starts clusterctl with the playbooks of another directory, and everything else as it is.
LAUNCH = (
    "import sys, provision.cli.flow; from pathlib import Path; from provision import content;"
    "content.ROOT = Path(sys.argv.pop(1)); from provision.cli.main import main; main()"
)


def ours(fleet: Fleet, road: Road, count: int, *words: str) -> Cost:
    """Return what ``clusterctl provision`` costs for a road over ``count`` machines."""
    write(fleet.directory, road)
    command: Sequence[str] = [sys.executable, "-c", LAUNCH, str(fleet.directory), "provision"]
    return measure([*command, str(inventory(fleet, road, count)), *words])[0]
