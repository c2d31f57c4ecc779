"""Commands from end to end on this computer: what they print, what they leave, how they end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.parsing.vault import VaultLib, VaultSecret
from ansible_runs import (
    CHECKS,
    HOLD,
    INVENTORY,
    LAUNCH,
    PASSES,
    STATUS,
    command,
    on_a_terminal,
    stages_in,
    start,
    until_held,
    write_inventory,
)
from waiting import PATIENCE
from worker import free_port

from provision.runner import journal
from provision.runner.process import kill_marked

DECRYPT = """
    - name: Use what is encrypted
      ansible.builtin.lineinfile:
        path: "{{ inventory_dir }}/made-{{ inventory_hostname }}"
        line: "{{ container_images_username }}"
        create: true
        mode: "0644"
      run_once: true
"""


def test_an_encrypted_inventory_is_provisioned_with_its_password(site: Path) -> None:
    stages_in(site, discover="- meta: noop\n", preflight="- meta: noop\n", base=DECRYPT, verify=CHECKS)
    secret = site / "group_vars/all.yml"
    secret.parent.mkdir()
    # As ansible-vault does, which would be another start of Ansible.
    vault = VaultLib([("default", VaultSecret(b"open sesame"))])
    secret.write_bytes(vault.encrypt("container_images_username: robot\n"))
    process = start(site, ["provision", "base", "--ask-vault-password"], stdin=subprocess.PIPE)

    _, err = process.communicate("open sesame\n", timeout=PATIENCE)

    assert process.returncode == 0, err
    assert (site / "made-head").read_text() == "robot\n"


def test_a_limit_in_slurms_words_works_on_those_machines_only(site: Path) -> None:
    done = command(site, "provision", "--limit", "node[1-2]", "--json")

    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in site.glob("made-*")) == ["made-node1", "made-node2"]
    assert set(json.loads(done.stdout)["hosts"]) >= {"node1", "node2"}


def test_a_machine_that_is_down_costs_little_and_the_others_go_on(site: Path) -> None:
    down = f"node2 ansible_connection=ssh ansible_host=127.0.0.1 ansible_port={free_port()}"
    write_inventory(site, INVENTORY.replace("node2 ansible_host=192.0.2.12", down))

    done = command(site, "provision", "--json")

    document = json.loads(done.stdout)
    assert done.returncode == 5, done.stderr
    assert sorted(path.name for path in site.glob("made-*")) == ["made-head", "made-node1"]
    assert document["hosts"]["node2"]["unreachable"] == 1
    assert document["unreachable"][0]["task"] == "access.port"
    assert "refuses connections" in document["unreachable"][0]["reason"]


@pytest.mark.parametrize("what", ["the command", pytest.param("Ansible", marks=pytest.mark.slow)])
def test_a_verify_that_is_killed_is_no_pass_and_the_status_says_so(site: Path, what: str) -> None:
    stages_in(site, verify=PASSES + HOLD, status=STATUS)
    judging = start(site, ["verify", "inventory.ini", "--json"])
    until_held(judging, site)
    [record] = [run for run in journal.runs(site / ".clusterctl") if run.facts["command"] == "verify"]

    if what == "Ansible":
        kill_marked(record.id)
    else:
        judging.kill()
    out, err = judging.communicate(timeout=PATIENCE)
    status = json.loads(command(site, "status", "inventory.ini", "--json").stdout)

    if what == "Ansible":
        assert (judging.returncode, json.loads(out)["verdict"]) == (8, "unknown"), err
        assert json.loads(out)["counts"]["never_ran"] > 0
    else:
        assert (judging.returncode, out) == (-signal.SIGKILL, "")
    assert (status["last_verdict"]["id"], status["last_verdict"]["verdict"]) == (record.id, "unknown")


# Both are printed where a reader who has left is noticed.
@pytest.mark.parametrize("flag", ["--all", pytest.param("--json", marks=pytest.mark.night)])
def test_a_verdict_keeps_its_exit_code_when_the_reader_leaves_early(site: Path, flag: str) -> None:
    script = f'"$0" -c "$1" "$PWD" verify inventory.ini {flag} | head -n 1; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(
        ["bash", "-c", script, sys.executable, LAUNCH], cwd=site, capture_output=True, text=True, check=False
    )

    assert done.returncode == 8, done.stderr
    assert "Broken" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_failing_task_is_reported_by_machine_and_ends_with_4(site: Path) -> None:
    stages_in(site, base="- name: Break\n  ansible.builtin.command: /bin/sh -c 'echo no space >&2; exit 7'\n")

    done = command(site, "provision", "base")

    assert done.returncode == 4
    assert "node[1-2]" in done.stdout
    assert done.stdout.count("no space (exit code 7)") == 1


def test_the_wrong_request_changes_nothing_and_leaves_no_record(site: Path) -> None:
    for arguments in (["bas"], ["--limit", "nobody"], ["--extra-vars", "x"]):
        done = command(site, "provision", "inventory.ini", *arguments)

        assert done.returncode == 2, done.stderr
        assert "Fix: " in done.stderr
        assert "Traceback" not in done.stderr
    assert not list(site.glob("made-*"))


def test_a_state_directory_that_others_may_write_is_refused(site: Path) -> None:
    (site / ".clusterctl").mkdir(mode=0o700)
    (site / ".clusterctl").chmod(0o777)

    done = command(site, "provision")

    assert done.returncode == 2
    assert "chmod 700" in done.stderr
    assert not list(site.glob("made-*"))


@pytest.mark.parametrize("columns", [20, pytest.param(100, marks=pytest.mark.night)])
def test_progress_on_a_terminal_is_one_line_that_never_wraps(site: Path, columns: int) -> None:
    slow = "- name: A task with quite a long name for so small a terminal\n  ansible.builtin.command: sleep 1\n"
    slow += "  run_once: true\n"
    stages_in(site, base=slow)
    code, written = on_a_terminal(site, ["provision", "inventory.ini", "base"], columns)

    assert code == 0
    drawn = re.split(r"[\r\n]+", re.sub(r"\x1b\[(\?25[lh]|[0-9;]*[mKA])", "", written))
    assert len(drawn) > 3
    assert max(map(len, drawn)) <= columns
    # The last drawing is taken away again: one line down, and back up to clear it.
    assert written.count("\n") == 1
    assert written.endswith("\x1b[1A\x1b[2K")
    assert any("A task w" in line for line in drawn)


def test_a_bug_during_a_run_is_on_record_beside_its_journal(site: Path) -> None:
    broken = LAUNCH.replace(
        "from provision.cli.main", "import provision.events.fold as e; del e.RunReport._stats; from provision.cli.main"
    )

    done = subprocess.run(
        [sys.executable, "-c", broken, str(site), "provision", "inventory.ini", "base"],
        cwd=site,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1, done.stderr
    [run] = journal.runs(site / ".clusterctl")
    assert run.facts["outcome"] == "crashed"
    assert "_stats" in (run.directory / "traceback.txt").read_text()
    assert str(run.directory) in done.stderr
