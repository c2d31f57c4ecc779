"""Ansible's own connections to a real OpenSSH server: what our settings make of them, whatever the user's say."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from sshd import ADDRESS, Sshd, make_key, running
from waiting import PATIENCE, until

from provision import content
from provision.ansible_env import clean_environment
from provision.events.fold import RunReport
from provision.runner import journal, playbooks
from provision.runner.process import marked

PLAY = """
- name: Try
  hosts: all
  gather_facts: false
  tasks:
    - name: See what came along
      ansible.builtin.raw: echo "agent=$SSH_AUTH_SOCK."
      register: told
    - name: Tell
      ansible.builtin.debug: {var: told.stdout}
"""

#: What a user may have in ~/.ssh/config for other purposes. It is given as a file, which counts as much as that one.
CAREFREE = """\
Host *
    {strict} no
    ForwardAgent yes
    IdentitiesOnly yes
    UserKnownHostsFile {known_hosts}
    GlobalKnownHostsFile /dev/null
"""


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running(tmp_path_factory.mktemp("sshd")) as server:
        yield server


def inventory(directory: Path, sshd: Sshd, known_hosts: Path) -> Path:
    config = directory / "ssh_config"
    config.write_text(CAREFREE.format(strict="StrictHostKeyChecking", known_hosts=known_hosts))
    words = [f"node1 ansible_host={ADDRESS} ansible_port={sshd.port} ansible_user={sshd.user}"]
    words += [f"ansible_ssh_private_key_file={sshd.client_key} ansible_ssh_common_args='-F {config}'"]
    (directory / "inventory.ini").write_text(" ".join([*words, f"ansible_python_interpreter={sys.executable}"]) + "\n")
    (directory / "try.yml").write_text(PLAY)
    return directory / "inventory.ini"


def ansible(path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "ansible-playbook"
    with tempfile.TemporaryDirectory(prefix="cp-", ignore_cleanup_errors=True) as sockets:
        return subprocess.run(
            [str(program), "-i", str(path), str(path.with_name("try.yml"))],
            env={**clean_environment(), "ANSIBLE_SSH_CONTROL_PATH_DIR": sockets, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )


@pytest.mark.parametrize("known", ["changed", "nothing"])
def test_ansible_refuses_a_key_that_changed_or_is_unknown_whatever_the_users_configuration_says(
    sshd: Sshd, tmp_path: Path, known: str
) -> None:
    kind, blob, *_ = make_key(tmp_path / "other").with_suffix(".pub").read_text().split()
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(f"[{ADDRESS}]:{sshd.port} {kind} {blob}\n" if known == "changed" else "")
    before = sshd.log.read_text().count("Accepted")

    done = ansible(inventory(tmp_path, sshd, known_hosts))

    assert "UNREACHABLE" in done.stdout, done.stdout + done.stderr
    assert "Host key verification failed" in done.stdout
    assert sshd.log.read_text().count("Accepted") == before


def test_no_machine_gets_the_agent_of_whoever_connects(sshd: Sshd, tmp_path: Path) -> None:
    told = subprocess.run(["ssh-agent", "-s"], capture_output=True, text=True, check=True).stdout
    socket = told.partition("SSH_AUTH_SOCK=")[2].partition(";")[0]
    pid = told.partition("SSH_AGENT_PID=")[2].partition(";")[0]
    try:
        done = ansible(inventory(tmp_path, sshd, sshd.known_hosts), SSH_AUTH_SOCK=socket)
    finally:
        subprocess.run(["kill", pid], check=True)

    assert "agent=." in done.stdout, done.stdout + done.stderr


def test_a_runs_connections_end_with_it(sshd: Sshd, tmp_path: Path) -> None:
    path = inventory(tmp_path, sshd, sshd.known_hosts)
    record = journal.begin(journal.prepare(tmp_path / ".clusterctl"), "provision")

    report = playbooks.run([path.with_name("try.yml")], inventory=path, record=record)

    assert report.ok, report.failures
    until(lambda: marked(record.id) == [], "the end of its connections")


LONG = """
- name: Work
  hosts: all
  gather_facts: false
  tasks:
    - name: Take long
      command_followed:
        argv: [sh, -c, "echo clusterctl-told: ended A >&2; echo clusterctl-told: going 1 of 2 >&2; sleep {seconds}"]
"""


@pytest.mark.slow
def test_how_far_a_program_is_and_what_is_waited_for_come_while_it_runs(sshd: Sshd, tmp_path: Path) -> None:
    path = inventory(tmp_path, sshd, sshd.known_hosts)
    path.with_name("try.yml").write_text(LONG.format(seconds=11))
    record = journal.begin(journal.prepare(tmp_path / ".clusterctl"), "provision")
    events: list[str] = []

    def note(report: RunReport, event: Mapping[str, Any]) -> None:
        hosts = event.get("event_data", {}).get("hosts", "")
        events.append(" ".join(map(str, (event["event"], *hosts, event.get("stdout", "")))).strip())

    report = playbooks.run([path.with_name("try.yml")], inventory=path, record=record, on_event=note)

    assert report.ok, report.failures
    at = [events.index(event) for event in ("verbose ended: node1: A", "verbose going: node1: 1 of 2", "waiting node1")]
    assert at == sorted(at)
    assert at[-1] < next(number for number, event in enumerate(events) if event.startswith("runner_on_ok"))


def test_without_clusterctl_the_same_lines_are_printed(sshd: Sshd, tmp_path: Path) -> None:
    path = inventory(tmp_path, sshd, sshd.known_hosts)
    path.with_name("try.yml").write_text(LONG.format(seconds=0))

    done = ansible(path, ANSIBLE_CALLBACK_PLUGINS=str(content.ROOT / "playbooks" / "callback_plugins"))

    assert "\nended: node1: A\n" in done.stdout, done.stdout + done.stderr


def test_connections_are_strict_by_the_configuration_alone() -> None:
    [line] = [line for line in (content.ROOT / "ansible.cfg").read_text().splitlines() if line.startswith("ssh_args")]

    for option in (
        *("StrictHostKeyChecking=yes", "ForwardAgent=no", "ForwardX11=no", "PermitLocalCommand=no"),
        *("ClearAllForwardings=yes", "GSSAPIDelegateCredentials=no", "ControlPersist=60s"),
    ):
        assert f"-o {option} " in line
