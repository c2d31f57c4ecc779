"""One question to each machine, judged in its worker, by the real Ansible; the machines' answers are replayed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ansible_runs import INVENTORY, PLAY, run

from provision import content
from provision.events.fold import RunReport

#: Answers with what was recorded for the machine, and notes that it was asked.
REPLAY = """\
#!/usr/bin/python3
# WANT_JSON
import json, os, pathlib, sys
asked = json.load(open(sys.argv[1]))
host = os.environ["MACHINE"]
place = pathlib.Path({place!r})
with (place / (host + ".asked")).open("a") as log:
    log.write(json.dumps(asked) + chr(10))
answers = json.loads((place / (host + ".json")).read_text())
answer = answers.pop(0) if len(answers) > 1 else answers[0]
(place / (host + ".json")).write_text(json.dumps(answers))
print(json.dumps({{"changed": False, "machine": answer}}))
"""

OBSERVED = """\
    - name: Ask
      observe: {roles: [munge]}
      changed_when: false
      environment: {MACHINE: "{{ inventory_hostname }}"}
"""

#: What a role's play looks like; its task stands for the role.
ACTING = """\
- name: Act
  hosts: "{{ query('pending', 'munge') or '!all' }}"
  gather_facts: false
  tasks:
    - name: Act
      ansible.builtin.debug:
      changed_when: true
"""

TEXT = (content.ROOT / "roles/munge/templates/munge.service.conf.j2").read_text(encoding="utf-8")
ROOT = {"owner": "root", "group": "root", "uid": 0, "gid": 0, "age": 900.0}
DROP_IN = "/etc/systemd/system/munge.service.d/clusterctl.conf"
RUNNING = {"load": "loaded", "active": "active", "sub": "running", "enabled": "enabled", "reload": False}
GOOD: dict[str, Any] = {
    "os": {"id": "debian", "version": "12", "name": "Debian"},
    "munge": {"salt": "00", "fingerprint": "ab", "mode": "0400", "owner": "munge:munge"},
    "state": {
        "packages": {name: {"version": "1", "held": False} for name in ("munge", "openssl")},
        "paths": {
            "/etc/munge/munge.key": {**ROOT, "kind": "file", "mode": "0400"},
            "/etc/systemd/system/munge.service.d": {**ROOT, "kind": "directory", "mode": "0755"},
            DROP_IN: {
                **ROOT, "kind": "file", "mode": "0644", "sha256": hashlib.sha256(TEXT.encode()).hexdigest()
            },
        },
        "services": {"munge": {**RUNNING, "age": 100.0, "loaded_age": 200.0}},
        "manager": {},
    },
}  # fmt: skip
MASKED = {**GOOD, "state": {**GOOD["state"], "services": {"munge": {**RUNNING, "load": "masked"} | {
    "age": 1.0, "loaded_age": 1.0}}}}  # fmt: skip
SILENT = {**GOOD, "state": {**GOOD["state"], "services": None}}


#: What each machine answers, one answer after the other; the controller and the first node are as they should be.
ANSWERS: dict[str, list[dict[str, Any]]] = {
    "head": [GOOD],
    "good": [GOOD],
    "masked": [MASKED],
    "other": [{**GOOD, "munge": {**GOOD["munge"], "fingerprint": "cd"}}],
    "slow": [SILENT, GOOD],
    "slow-too": [SILENT, GOOD],
    "silent": [SILENT],
    "nothing": [{}],
    "empty": [{"state": {}}],
    "list": [{**GOOD, "state": {"paths": []}}],
}
COMPUTE = "".join(f"{name} ansible_host=192.0.2.{20 + number}\n" for number, name in enumerate(ANSWERS) if number)


class Observed(NamedTuple):
    """A run of the observation, with the role's play after it, and where the machines note what they were asked."""

    report: RunReport
    directory: Path

    def asked(self, host: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.directory / f"{host}.asked").read_text().splitlines()]

    def pending(self) -> list[tuple[str, str, str]]:
        return sorted((one.check.host, one.check.id, one.check.observed) for one in self.report.pending)


def observed(directory: Path, *names: str, check: bool = False, then: str = "act", collecting: str = "") -> Observed:
    """Observe these machines, or all of them; one of them may collect, as for a verdict."""
    (directory / "library").mkdir()
    (directory / "library/machine_facts.py").write_text(REPLAY.format(place=str(directory)), encoding="utf-8")
    for host, answers in ANSWERS.items():
        (directory / f"{host}.json").write_text(json.dumps(answers), encoding="utf-8")
    task = OBSERVED.replace("[munge]", f"[munge], then: {then}")
    first = PLAY.format(name="Observe the controller", hosts="slurm_controller") + task
    others = PLAY.format(name="Observe the machines", hosts="slurm_compute") + task
    (directory / "try.yml").write_text(first + others + ACTING, encoding="utf-8")
    text = INVENTORY.replace("node1 ansible_host=192.0.2.11\nnode2 ansible_host=192.0.2.12\n", COMPUTE)
    if collecting:
        text = text.replace(f"\n{collecting} ", f"\n{collecting} cluster_check_collect=true ")
    return Observed(run(directory / "try.yml", text=text, check=check, limit=names or None)[0], directory)


def asked(directory: Path, host: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / f"{host}.asked").read_text().splitlines()]


@pytest.fixture(scope="module")
def acted(tmp_path_factory: pytest.TempPathFactory) -> Observed:
    return observed(tmp_path_factory.mktemp("acted"), *(ANSWERS.keys() - {"slow-too"}))


def test_a_machine_on_which_nothing_is_to_be_done_costs_one_task(acted: Observed) -> None:
    for host in ("head", "good"):
        assert (acted.report.hosts[host].tasks, acted.report.hosts[host].changed) == (1, 0)
        assert len(acted.asked(host)) == 1
        assert host not in {name for name, _, _ in acted.pending()}


def test_a_role_runs_only_where_one_of_its_checks_fails(acted: Observed) -> None:
    assert ("masked", "munge.services", "munge is masked") in acted.pending()
    assert {one.stage for one in acted.report.pending} == {"munge"}
    assert {host for host, _, _ in acted.pending()} == {"masked", "other"}
    assert {task.name: hosts for task, hosts in acted.report.changes.items()} == {"Act": {"masked", "other"}}


def test_nodes_are_compared_with_what_the_controller_has_said_in_this_run(acted: Observed) -> None:
    assert [name for host, name, _ in acted.pending() if host == "other"] == ["munge.key"]
    assert acted.asked("other")[0]["munge"]["salt"] == "00"


def test_what_is_not_answered_is_asked_once_more_with_patience_and_then_ends_that_machine(acted: Observed) -> None:
    assert [question["patience"] for question in acted.asked("slow")] == [1, 5]
    assert "slow" not in acted.report.failed_hosts
    assert "silent" in acted.report.failed_hosts
    assert [(check.id, check.verdict) for check in acted.report.checks if check.host == "silent" and not check.ok] == [
        ("munge.services", "unknown")
    ]


@pytest.fixture(scope="module")
def proven(tmp_path_factory: pytest.TempPathFactory) -> Observed:
    """A run that proves what roles have done, one machine of which is asked for a verdict."""
    names = ("head", "good", "masked", "slow", "silent", "slow-too")
    return observed(tmp_path_factory.mktemp("proven"), *names, then="prove", collecting="slow-too")


def test_a_machine_that_is_slow_after_a_roles_work_is_asked_once_more_before_that_counts_as_failed(
    proven: Observed,
) -> None:
    assert [question["patience"] for question in proven.asked("slow")] == [1, 5]
    assert {"masked", "silent"} <= proven.report.failed_hosts
    assert not {"slow", "good"} & proven.report.failed_hosts
    # What has failed is certain.
    assert len(proven.asked("masked")) == len(proven.asked("good")) == 1


def test_a_verdict_asks_once_and_says_what_was_not_answered(proven: Observed) -> None:
    assert [question["patience"] for question in proven.asked("slow-too")] == [1]
    bad = [check for check in proven.report.checks if check.host == "slow-too" and not check.ok]
    assert [(check.id, check.verdict) for check in bad] == [("munge.services", "unknown")]


def test_an_answer_that_is_none_fails_that_machine_alone(acted: Observed) -> None:
    assert acted.report.failed_hosts == {"silent", "nothing", "empty", "list"}


def test_in_check_mode_no_role_runs(tmp_path: Path) -> None:
    planned = observed(tmp_path, "head", "good", "masked", "other", check=True)

    assert [(host, name) for host, name, _ in planned.pending()] == [
        ("masked", "munge.services"),
        ("other", "munge.key"),
    ]
    assert planned.report.changes_pending
    assert not planned.report.changes


SHARED = """\
    - name: Ask the controller
      observe: {roles: [container_images], then: share}
      changed_when: false
      delegate_to: head
      delegate_facts: true
      environment: {MACHINE: head}
    - name: Say what is known of it
      ansible.builtin.assert:
        that: "hostvars['head'].ansible_facts.cluster_shared == {'registry': true, 'authority': 'PEM', 'munge': told}"
      vars: {told: {salt: "00", fingerprint: ab}}
"""


WRITTEN = """\
    - name: Write the file as the role does
      ansible.builtin.template:
        src: ROOT/roles/munge/templates/munge.service.conf.j2
        dest: PLACE/written
        mode: "0644"
"""


class Alone(NamedTuple):
    """A run of node1 alone: it asks the controller, and writes a file."""

    report: RunReport
    directory: Path


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    here = tmp_path_factory.mktemp("alone")
    (here / "library").mkdir()
    (here / "library/machine_facts.py").write_text(REPLAY.format(place=str(here)), encoding="utf-8")
    told = {**GOOD, "registry": {"status": 200, "certificates": {"authority": "PEM", "problem": ""}}}
    (here / "head.json").write_text(json.dumps([told]), encoding="utf-8")
    written = WRITTEN.replace("ROOT", str(content.ROOT)).replace("PLACE", str(here))
    (here / "try.yml").write_text(PLAY.format(name="Ask, and write", hosts="node1") + SHARED + written)
    return Alone(run(here / "try.yml")[0], here)


def test_a_controller_outside_the_run_is_asked_what_a_controller_is_asked(alone: Alone) -> None:
    assert alone.report.ok, alone.report.failures
    # The registry's certificates are on the controller alone: the question is not that of node1.
    (question,) = asked(alone.directory, "head")
    assert question["registry"]["certificates"]["host"] == "head"
    # All that rests on its answer would be unknown of every node, where it was slow.
    assert question["patience"] == 5


def test_the_text_that_is_compared_is_the_text_that_the_role_writes(alone: Alone) -> None:
    written = (alone.directory / "written").read_bytes()
    assert hashlib.sha256(written).hexdigest() == GOOD["state"]["paths"][DROP_IN]["sha256"]


GPUS = """\
    - name: Ask
      observe: {roles: [nvidia_mig, cuda_toolkit, nvidia_containers]}
      changed_when: false
      environment: {MACHINE: "{{ inventory_hostname }}"}
"""
#: What a site asks for on node1 alone, and all that the roles leave there for it.
ASKED_FOR = """
    nvidia_mig_layout: "{{ ['0:1g.5gb'] if inventory_hostname == 'node1' else '' }}"
    cuda_toolkit_versions: "{{ ['12.8'] if inventory_hostname == 'node1' else [] }}"
    cuda_toolkit_repository: file:///srv/packages
    nvidia_containers_install: "{{ inventory_hostname == 'node1' }}"
"""
LEFT_THERE = {
    "nvidia_mig.files": {
        "/etc/nvidia-mig.json",
        "/usr/local/sbin/nvidia-mig",
        "/etc/systemd/system/nvidia-mig.service",
    },
    "cuda_toolkit.files": {"/etc/apt/sources.list.d/clusterctl-cuda.list", "/etc/profile.d/cuda.sh"},
    "nvidia_containers.files": {
        "/etc/systemd/system/docker.service.d",
        "/usr/share/keyrings/nvidia-container-toolkit-keyring.asc",
        "/etc/apt/sources.list.d/nvidia-container-toolkit.list",
        "/usr/local/sbin/clusterctl-gpus",
        "/etc/default/clusterctl-gpus",
        "/etc/systemd/system/clusterctl-gpus.service",
        "/etc/systemd/system/docker.service.d/clusterctl-gpus.conf",
    },
}


def without_what_gpus_need(tmp_path: Path, then: str) -> RunReport:
    """Observe two nodes; on both is nothing of what a site asks for on the first."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library/machine_facts.py").write_text(REPLAY.format(place=str(tmp_path)), encoding="utf-8")
    # The lists of other keys are as they should be: absent. Of the rest nothing is there, and no package is held.
    paths = {path: {"kind": "absent"} for left in LEFT_THERE.values() for path in left}
    for name in ("nvidia-docker", "libnvidia-container"):
        paths[f"/etc/apt/sources.list.d/{name}.list"] = {"kind": "absent"}
    packages = {"cuda-toolkit-12-8": {"version": "12.8.1-1", "held": False}}
    told = '== spec\n== driver\n== files\n== packages\n== order\nbasic.target\n== engine\n{"ServerVersion": "27"}\n'
    texts = {"mig": "No MIG-enabled devices found.\n", "toolkits": "default \n", "gpu_containers": told}
    commands = {name: {"rc": 0, "text": text} for name, text in texts.items()}
    answer = {**GOOD, "commands": commands, "state": {**GOOD["state"], "paths": paths, "packages": packages}}
    for host in ("node1", "node2"):
        (tmp_path / f"{host}.json").write_text(json.dumps([answer]), encoding="utf-8")
    collect = "    cluster_check_collect: true\n" if then == "prove" else ""
    variables = f"  vars:{ASKED_FOR}{collect}  tasks:\n"
    play = PLAY.format(name="Observe", hosts="slurm_compute").replace("  tasks:\n", variables)
    (tmp_path / "try.yml").write_text(play + GPUS.replace("]}", f"], then: {then}}}"), encoding="utf-8")
    return run(tmp_path / "try.yml")[0]


def names_what_is_absent(found: Mapping[str, str]) -> None:
    assert found["cuda_toolkit.packages"] == "not held: cuda-toolkit-12-8"
    for name, left in LEFT_THERE.items():
        shown, _, more = found[name].partition("; and ")
        assert shown.count("is absent") + int(more.partition(" ")[0] or 0) == len(left)


@pytest.fixture(scope="module")
def lacking(tmp_path_factory: pytest.TempPathFactory) -> RunReport:
    return without_what_gpus_need(tmp_path_factory.mktemp("lacking"), "act")


def test_what_the_gpu_roles_leave_is_repaired_where_it_is_asked_for_and_nowhere_else(lacking: RunReport) -> None:
    report = lacking

    assert report.ok, report.failures
    names_what_is_absent({one.check.id: one.check.observed for one in report.pending if one.check.host == "node1"})
    assert {one.check.host for one in report.pending} == {"node1"}


def test_what_the_gpu_roles_leave_is_missed_by_verify_where_plan_would_change_it(
    tmp_path: Path, lacking: RunReport
) -> None:
    planned = lacking.pending
    told = without_what_gpus_need(tmp_path, "prove").checks

    missed = [check for check in told if not check.ok]
    names_what_is_absent({check.id: check.observed for check in missed})
    # The same, each once, with the same words; and what passes is told as well.
    assert sorted(missed, key=str) == sorted((one.check for one in planned if not one.check.ok), key=str)
    assert ("nvidia_mig.files", "node2", "pass") in [(check.id, check.host, check.verdict) for check in told]
