"""A machine whose Python answers what it likes harms itself, and neither the other machines nor the control node."""

from __future__ import annotations

import json
import multiprocessing
import re
import resource
import subprocess
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sshd
from ansible_runs import PYTHON, run

from provision.events.fold import RunReport
from provision.runner import journal

HONEST = ("head", "node1")

#: Variables of all machines: each is this computer, over a real SSH server.
VARIABLES = """
[all:vars]
cluster_name=small
node_cpus=1
ansible_host={host}
ansible_port={port}
ansible_user={user}
ansible_ssh_private_key_file={key}
ansible_ssh_common_args={options}
"""

#: A proof: a machine is asked by our own action, which reads the answer as input, and its answer is judged.
PROOF = """
    - name: Ask and judge
      ansible.builtin.import_role: {name: hardware_facts, tasks_from: verify}
"""

#: Any other module, whose answer only Ansible reads.
MODULE = """
    - name: Ask
      ansible.builtin.stat: {path: /}
      register: asked
      failed_when: false
      timeout: 60
    - name: Say how the machine is reached from now on
      ansible.builtin.debug: {msg: "reached by {{ ansible_connection | default('ssh') }}: {{ inventory_hostname }}"}
"""

GOOD: dict[str, Any] = {"cpus": 1, "sockets": 1, "cores_per_socket": 1, "threads_per_core": 1, "regular": True}
GOOD |= {"real_memory": 1, "cgroup_version": 2, "gres": "", "gpu_count": 0, "gpu_source": "", "gpu_addresses": []}
GOOD |= {"gpus_on_bus": 0, "bus_gpus": [], "bus_gres": ""}


def facts(**hardware: Any) -> dict[str, Any]:
    """Return what an honest module answers, changed."""
    return {"changed": False, "machine": {"python": "3.11.2", "hardware": {**GOOD, **hardware}}}


def says(document: Any) -> str:
    return f"cat <<'END'\n{document if isinstance(document, str) else json.dumps(document)}\nEND\n"


MANY = "printf '{{\"machine\": ['; yes '[],' | head -c {}; echo '0]}}'"

EVIL = {
    "no JSON at all": "echo 'Segmentation fault'; exit 139",
    "nothing": "exit 0",
    "exit code 255, as ssh itself": "echo gone >&2; exit 255",
    "a list": says([1, 2]),
    "an answer without facts": says({"changed": False}),
    "facts of the wrong types": says(facts(cpus="4; reboot", gpu_addresses={"a": 1}, real_memory=[])),
    "a machine that is a text": says({"changed": False, "machine": "{{ 7 * 6 }}"}),
    "numbers without measure": says('{"machine": {"hardware": {"cpus": 1e999, "real_memory": ' + "9" * 5000 + "}}}"),
    "keys that are there twice": says('{"machine": {"python": "3"}, "machine": {"hardware": [], "hardware": 1}}'),
    "depth": "printf '{\"machine\": '; head -c 200000 /dev/zero | tr '\\0' '['; echo",
    "depth that ends": says('{"machine": ' + '{"a":' * 900 + "1" + "}" * 900 + "}"),
    "templates": says(facts(gres="{{ lookup('pipe', 'touch PLACE/owned') }}", cpus="{{ 1 }}")),
    "control characters": says(facts(gres="gpu:a:1\x1b]0;owned\x07\r\nverdict: pass\x9b2J", cpus="\x1b[2J")),
    "facts for Ansible": says(
        {"changed": False, "ansible_facts": {"ansible_connection": "local", "cluster_checks_bad": [], "hostname": 7}}
    ),
    "checks about others": says(
        {"changed": False, "cluster_checks": [{"id": "munge.key", "host": "node2", "verdict": "fail", "fix": "sh"}]}
    ),
    "a host of its own": says({"changed": True, "add_host": {"host_name": "evil", "groups": ["slurm_compute"]}}),
    "a gigabyte": "exec head -c 1000000000 /dev/zero",
    "no end": "exec yes '{\"machine\":'",
    "errors without end": "exec yes >&2",
    "millions of values": MANY.format(6_000_000),
}
#: What Ansible itself reads costs it 12 s for each million: here, enough of them to see that it goes on. As many as are
#: let through are read by our own action, and at night by Ansible, too.
FEWER = {"millions of values": MANY.format(600_000)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Sshd]:
    with sshd.running(tmp_path_factory.mktemp("sshd")) as running:
        yield running
    # What never ends by itself would outlive the tests: on a real machine it is that machine's own.
    subprocess.run(
        ["pkill", "--signal", "KILL", "--full", f"{tmp_path_factory.getbasetemp()}/.*/python[0-9]+"], check=False
    )


def ask(server: sshd.Sshd, directory: Path, answers: dict[str, str], tasks: str) -> tuple[RunReport, journal.Run]:
    """Ask honest machines and, for each answer, one (``evil0``, ...) whose Python gives it."""
    lines = ["[slurm_controller]", "head", "[slurm_compute]", "node1"]
    for number, answer in enumerate(answers.values()):
        fake = directory / f"python{number}"
        fake.write_text(f"#!/bin/sh\n{answer.replace('PLACE', str(directory))}")
        fake.chmod(0o755)
        lines.append(f"evil{number} ansible_python_interpreter={fake}")
    lines += ["[honest]", *HONEST, "[honest:vars]", f"ansible_python_interpreter={PYTHON}"]
    where = {"host": sshd.ADDRESS, "port": server.port, "user": server.user, "key": server.client_key}
    playbook = directory / "ask.yml"
    environment = 'environment: {CLUSTERCTL_RUN: "{{ clusterctl_run }}"}\n  vars: {cluster_check_collect: true}'
    playbook.write_text(f"- name: Ask\n  hosts: all\n  gather_facts: false\n  {environment}\n  tasks:\n{tasks}")
    text = "\n".join(lines) + VARIABLES.format(**where, options=sshd.options(server.known_hosts))
    return run(playbook, text=text)


@dataclass(frozen=True)
class Asked:
    """A run over all evil machines, and what it left."""

    report: RunReport
    log: str
    directory: Path
    #: KiB of the largest of all its processes, Ansible's workers among them.
    memory: int

    def why(self, kind: str) -> str:
        """Return why the machine that answers so did not pass; empty where it did."""
        host = f"evil{list(EVIL).index(kind)}"
        groups = (*self.report.failures.items(), *self.report.unreachable.items())
        return "; ".join(failure.reason for failure, hosts in groups if host in hosts)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((PROOF, EVIL), id="proof"),
        pytest.param((MODULE, EVIL | FEWER), id="module", marks=pytest.mark.slow),
        pytest.param((MODULE, EVIL), id="module-all", marks=pytest.mark.night),
    ],
)
def asked(request: pytest.FixtureRequest, server: sshd.Sshd, tmp_path_factory: pytest.TempPathFactory) -> Asked:
    directory = tmp_path_factory.mktemp("asked")
    tasks, answers = request.param
    # In a process of its own, which has waited for nothing else.
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as apart:
        return apart.submit(measured, server, directory, answers, tasks).result()


def measured(server: sshd.Sshd, directory: Path, answers: dict[str, str], tasks: str) -> Asked:
    """Ask all of them; what this process has waited for until then counts as the run's memory."""
    report, record = ask(server, directory, answers, tasks)
    log = (record.directory / "ansible.log").read_text(encoding="utf-8")
    return Asked(report, log, directory, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)


def test_the_run_ends_and_honest_machines_do_not_notice(asked: Asked) -> None:
    assert asked.report.finished
    assert set(asked.report.hosts) == {*HONEST, *(f"evil{number}" for number in range(len(EVIL)))}
    assert {asked.report.hosts[host].ok for host in HONEST} == {2}
    assert not {*HONEST} & (asked.report.failed_hosts | asked.report.unreachable_hosts)
    assert {check.host for check in asked.report.checks} <= {*HONEST}


def test_the_control_node_runs_nothing_of_it_and_its_memory_and_terminal_are_untouched(asked: Asked) -> None:
    assert list(asked.directory.glob("owned*")) == []
    assert "reached by local" not in asked.log
    assert re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f]", asked.log) == []
    assert 0 < asked.memory < 768 * 1024


@pytest.mark.parametrize("kind", EVIL)
def test_an_answer_that_is_no_facts_is_its_machines_failure(kind: str, asked: Asked) -> None:
    if "reached by" not in asked.log:
        assert asked.why(kind)
    if kind in ("a gigabyte", "no end", "errors without end"):
        assert "more than 8 MiB" in asked.why(kind)


def test_a_python_that_never_answers_costs_its_machine_the_tasks_limit(server: sshd.Sshd, tmp_path: Path) -> None:
    tasks = """
    - name: Ask
      machine_facts: {gather: [hardware]}
      # Honest machines have time enough on a busy computer, too.
      timeout: "{{ 4 if inventory_hostname == 'evil0' else 600 }}"
    """
    report, _ = ask(server, tmp_path, {"hangs": "printf '{\"machine\":'; exec sleep 3600"}, tasks)

    ((failure, hosts),) = report.failures.items()
    assert ("Timed out after 4 second" in failure.reason, hosts) == (True, {"evil0"})
    assert report.finished
