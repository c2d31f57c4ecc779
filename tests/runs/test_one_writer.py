"""Two administrators, each with a directory of their own: one changes the cluster, the other is told who does."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from ansible_runs import lease_kept_in, processes_of, until_held, write_inventory, write_playbook
from test_left_out import ASKED, made, site
from waiting import PATIENCE

from provision import content
from provision.ansible_env import clean_environment
from provision.runner import journal, playbooks

#: A stage that holds on until somebody lets it go on, or fails.
HOLD = """\
- ansible.builtin.import_playbook: observe.yml
  vars: {__stage_roles: [munge]}
- ansible.builtin.import_playbook: lease.yml
- name: Act
  hosts: "{{ query('pending', 'munge') or '!all' }}"
  gather_facts: false
  environment: {CLUSTERCTL_RUN: "{{ clusterctl_run | default('ansible-playbook') }}"}
  tasks:
    - name: Hold on
      ansible.builtin.shell: cd {{ inventory_dir }} && touch held && until [ -e go ]; do sleep 0.1; done && cat go
      run_once: true
    - name: Act
      ansible.builtin.file: {path: "{{ inventory_dir }}/made-{{ inventory_hostname }}", state: touch, mode: "0644"}
- ansible.builtin.import_playbook: release.yml
"""
VERIFY = """\
- ansible.builtin.import_playbook: observe.yml
  vars: {__stage_roles: [munge], __observed_then: prove, cluster_check_collect: true}
"""


class Office(NamedTuple):
    """Two directories of two administrators, and the file of the controller of both."""

    ada: Path
    bob: Path
    lease: Path

    def holder(self) -> str:
        return str(json.loads(self.lease.read_text() or "{}").get("user", ""))


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    lease = tmp_path / "lease"
    for name in ("ada", "bob"):
        place = site(tmp_path / name)
        for playbook in ("lease", "node", "release"):
            shutil.copy(content.playbook(playbook), place / "playbooks")
        (tasks := place / "playbooks/roles/slurm_service/tasks").mkdir(parents=True)
        for part in ("node", "status"):
            (tasks / f"{part}.yml").write_text("- {name: Ask nobody, ansible.builtin.debug: }\n", encoding="utf-8")
        (place / "playbooks/munge.yml").write_text(HOLD, encoding="utf-8")
        (place / "playbooks/verify.yml").write_text(VERIFY, encoding="utf-8")
        library = place / "playbooks/library"
        lease_kept_in(library, lease)
        # The rest of what a machine says is replayed; this is as it is.
        told = f"""there = pathlib.Path({str(lease)!r})
if asked["lease"] and there.exists():
    answer["lease"] = {{"text": there.read_text(), "age": 60.0}}
print("""
        replay = (library / "machine_facts.py").read_text(encoding="utf-8")
        (library / "machine_facts.py").write_text(replay.replace("print(", told), encoding="utf-8")
    yield Office(tmp_path / "ada", tmp_path / "bob", lease)
    for name in ("ada", "bob"):
        for pid in processes_of(tmp_path / name / ".clusterctl"):
            os.kill(pid, signal.SIGKILL)


def begin(place: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words, cwd=place, env=named(place), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def named(place: Path) -> Mapping[str, str]:
    """Return the environment of the one whose directory this is."""
    return {**clean_environment(), "LOGNAME": place.name, "USER": place.name}


def clusterctl(place: Path, *words: str) -> subprocess.Popen[str]:
    return begin(place, sys.executable, "-c", ASKED, str(place), *words)


def plain(place: Path, playbook: str, *words: str) -> subprocess.Popen[str]:
    program = Path(sys.executable).parent / "ansible-playbook"
    return begin(place, str(program), "-i", "inventory.ini", f"playbooks/{playbook}.yml", *words)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out + err


def test_one_changes_the_cluster_and_the_other_is_told_who_it_is_through_both_doors(office: Office) -> None:
    first = clusterctl(office.ada, "provision", "munge")
    until_held(first, office.ada)
    assert office.holder() == "ada"

    refused = ended(clusterctl(office.bob, "provision"))
    told = rf"cluster small is being changed by ada@\S+ \('clusterctl provision munge' in {office.ada}, run \S+, since "
    assert refused[0] == 6, refused
    assert re.search(told, refused[1])
    assert "-e cluster_lease_take=true" in refused[1]
    by_ansible = ended(plain(office.bob, "site"))
    assert by_ansible[0] == 6, by_ansible
    assert re.search(told, by_ansible[1])
    # What only reads goes on; a verdict on what is half changed is none.
    assert ended(clusterctl(office.bob, "plan"))[0] == 0
    code, said = ended(clusterctl(office.bob, "verify"))
    assert (code, bool(re.search(told, said)), "verdict: unknown" in said) == (8, True, True), said
    assert ended(plain(office.bob, "verify"))[0] == 6
    assert not list((office.bob / ".clusterctl/runs").iterdir())
    assert made(office.bob) == set()

    (office.ada / "go").touch()
    assert ended(first)[0] == 0
    assert office.holder() == ""
    # By Ansible alone, too, whose last play lets others in.
    (office.bob / "go").touch()
    assert ended(plain(office.bob, "munge"))[0] == 0
    assert (made(office.bob), office.holder()) == ({"head", "node1", "node2"}, "")


def test_between_the_stages_of_a_run_nobody_is_let_in(tmp_path: Path) -> None:
    said = [f"- ansible.builtin.assert: {{that: __goes_on is {word}}}\n" for word in ("true", "false")]
    paths = [write_playbook(tmp_path / f"{number}.yml", tasks) for number, tasks in enumerate(said)]
    inventory = write_inventory(tmp_path)
    record = journal.begin(journal.prepare(journal.state_directory(inventory)), "provision")

    report = playbooks.run(paths, inventory=inventory, record=record)

    assert (report.finished, report.failed_hosts) == (True, set())


def test_a_node_is_resumed_by_nobody_while_another_run_works_on_it_and_drained_at_any_time(office: Office) -> None:
    held = {"user": "ada", "host": "laptop", "process": "other:1:2:3", "bound": 7200}
    office.lease.write_text(json.dumps(held), encoding="utf-8")

    refused = ended(clusterctl(office.bob, "node", "resume", "node1"))
    drained = ended(clusterctl(office.bob, "node", "drain", "node1", "--reason", "fans"))
    office.lease.write_text("", encoding="utf-8")
    resumed = ended(clusterctl(office.bob, "node", "resume", "node1"))

    assert (refused[0], "ada@laptop" in refused[1]) == (6, True), refused
    assert (drained[0], resumed[0], office.holder()) == (0, 0, ""), (drained, resumed)


def test_what_a_run_holds_that_was_stopped_failed_or_killed_keeps_nobody(office: Office) -> None:
    stopped = clusterctl(office.ada, "provision")
    until_held(stopped, office.ada)
    stopped.send_signal(signal.SIGINT)
    assert ended(stopped)[0] == 130
    assert office.holder() == ""

    (office.ada / "go").mkdir()
    assert ended(clusterctl(office.ada, "provision"))[0] == 4
    assert office.holder() == ""

    (office.ada / "go").rmdir()
    (office.ada / "held").unlink()
    killed = plain(office.ada, "munge")
    until_held(killed, office.ada)
    killed.kill()
    killed.wait()
    assert office.holder() == "ada"
    (office.bob / "go").touch()
    assert ended(clusterctl(office.bob, "provision"))[0] == 0
    assert (made(office.bob), office.holder()) == ({"head", "node1", "node2"}, "")
    # What the killed run has left on the machine ends.
    (office.ada / "go").touch()


def test_a_lease_of_a_computer_that_is_gone_is_taken_by_who_says_so(office: Office) -> None:
    gone = {"user": "ada", "host": "laptop", "process": "other:1:2:3", "bound": 7200}
    office.lease.write_text(json.dumps(gone), encoding="utf-8")
    (office.bob / "go").touch()

    refused = ended(clusterctl(office.bob, "provision"))
    taken = ended(clusterctl(office.bob, "provision", "-e", "cluster_lease_take=true"))

    assert (refused[0], "ada@laptop" in refused[1]) == (6, True), refused
    assert (taken[0], office.holder()) == (0, ""), taken
