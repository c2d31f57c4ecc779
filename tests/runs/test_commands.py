"""Commands from end to end on this computer: what they print, what they leave, how they end."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ansible.parsing.vault import VaultLib, VaultSecret
from ansible_runs import INVENTORY, LAUNCH, stages_in, start, until_held, write_inventory
from waiting import PATIENCE
from worker import free_port

from provision.runner import journal
from provision.runner.process import kill_marked

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

DECRYPT = """
    - name: Use what is encrypted
      ansible.builtin.lineinfile:
        path: "{{ inventory_dir }}/made-{{ inventory_hostname }}"
        line: "{{ container_images_username }}"
        create: true
        mode: "0644"
      run_once: true
"""

HOLD = """
    - name: Hold on
      ansible.builtin.shell: touch {{ inventory_dir }}/held; sleep 3600
      run_once: true
"""


def command(root: Path, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    process = start(root, arguments, **more)
    out, err = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    write_inventory(tmp_path)
    stages_in(tmp_path, discover="- meta: noop\n", preflight="- meta: noop\n", base=CHANGE, verify=CHECKS)
    return tmp_path


class Told(NamedTuple):
    """What each command of one site printed, in the order in which they were given."""

    site: Path
    planned: subprocess.CompletedProcess[str]
    #: The files that there were after the plan.
    made: list[Path]
    first: subprocess.CompletedProcess[str]
    second: subprocess.CompletedProcess[str]
    agreed: subprocess.CompletedProcess[str]
    verified: subprocess.CompletedProcess[str]
    shown: subprocess.CompletedProcess[str]
    status: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    here = tmp_path_factory.mktemp("told")
    write_inventory(here)
    nothing = {"discover": "- meta: noop\n", "preflight": "- meta: noop\n"}
    stages_in(here, **nothing, base=CHANGE, verify=CHECKS, status=STATUS)
    planned = command(here, "plan", "--detailed-exitcode")
    return Told(
        site=here,
        planned=planned,
        made=list(here.glob("made-*")),
        first=command(here, "provision", "--json"),
        second=command(here, "provision", "--json"),
        agreed=command(here, "plan", "--detailed-exitcode", "--json"),
        verified=command(here, "verify", "--json", "--junit", "verify.xml"),
        shown=command(here, "verify"),
        status=command(here, "status", "--json"),
    )


def test_a_plan_tells_what_would_change_and_changes_nothing(told: Told) -> None:
    assert told.planned.returncode == 10
    assert "+node1" in told.planned.stdout
    assert "head,node[1-2]" in told.planned.stdout.replace("node[1-2],head", "head,node[1-2]")
    assert told.made == []


def test_a_second_provision_changes_nothing_and_a_plan_agrees(told: Told) -> None:
    three = (told.first, told.second, told.agreed)
    documents = [json.loads(done.stdout) for done in three]
    assert [done.returncode for done in three] == [0, 0, 0], told.first.stderr
    assert [document["changed"] for document in documents] == [3, 0, 0]
    assert documents[2]["pending"] is False
    assert documents[0]["simulated"] == ["gpu"]


def test_progress_in_a_pipe_is_plain_lines_on_standard_error(told: Told) -> None:
    assert "base: Write: changed " in told.first.stderr
    assert "\x1b" not in told.first.stderr + told.first.stdout + told.shown.stderr + told.shown.stdout
    assert "\r" not in told.first.stderr


def test_verify_names_the_guilty_machine_in_its_table_document_and_junit(told: Told) -> None:
    document = json.loads(told.verified.stdout)
    assert told.verified.returncode == told.shown.returncode == 8
    assert document["verdict"] == "fail"
    assert {check["host"]: check["verdict"] for check in document["checks"] if check["id"] == "munge.key_mode"} == {
        "head": "pass",
        "node1": "pass",
        "node2": "fail",
    }
    assert not [check for check in document["checks"] if check["id"].endswith(".failed")]
    suites = ElementTree.parse(told.site / "verify.xml").getroot()  # noqa: S314 - our own
    failures = [case.get("classname") for case in suites.iter("testcase") if case.find("failure") is not None]
    assert failures == ["node2"]
    assert "verdict: fail" in told.shown.stdout
    assert "fix: clusterctl provision munge" in told.shown.stdout


def test_the_status_shows_the_last_run_and_the_last_verdict(told: Told) -> None:
    document = json.loads(told.status.stdout)
    assert told.status.returncode == 0, told.status.stderr
    assert document["last_run"]["outcome"] == "done"
    assert document["last_verdict"]["verdict"] == "fail"


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        (["--ask-vault-password"], "open sesame\n"),
        pytest.param(["--vault-password-file", "word"], "", marks=pytest.mark.night),
        pytest.param(["--vault-id", "a@word"], "", marks=pytest.mark.night),
    ],
)
def test_an_encrypted_inventory_is_provisioned_with_its_password(site: Path, words: list[str], typed: str) -> None:
    stages_in(site, discover="- meta: noop\n", preflight="- meta: noop\n", base=DECRYPT, verify=CHECKS)
    (site / "word").write_text("open sesame\n", encoding="utf-8")
    secret = site / "group_vars/all.yml"
    secret.parent.mkdir()
    # As ansible-vault does, which would be another start of Ansible.
    vault = VaultLib([("default", VaultSecret(b"open sesame"))])
    secret.write_bytes(vault.encrypt("container_images_username: robot\n"))
    process = start(site, ["provision", "base", *words], stdin=subprocess.PIPE)

    _, err = process.communicate(typed, timeout=PATIENCE)

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


class Held(NamedTuple):
    """What other commands printed while a provision held the lock, and what was on record then and afterwards."""

    site: Path
    #: The provision, which was interrupted after all of them.
    first: subprocess.Popen[str]
    #: Runs that had ended before it.
    earlier: dict[str, journal.Run]
    second: subprocess.CompletedProcess[str]
    preflight: subprocess.CompletedProcess[str]
    verified: subprocess.CompletedProcess[str]
    status: subprocess.CompletedProcess[str]
    #: What was alive on record after them, and whether its log was there when all had ended.
    live: list[journal.Run]
    log: bool

    def on_record(self, command: str) -> list[journal.Run]:
        return [run for run in journal.runs(self.site / ".clusterctl") if run.facts["command"] == command]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    here = tmp_path_factory.mktemp("held")
    write_inventory(here)
    stages_in(here, base=HOLD, preflight=CHECKS, status=STATUS, verify=CHANGE)
    state = here / ".clusterctl"
    earlier = {command: journal.begin(journal.prepare(state), command) for command in ("verify", "provision")}
    for run in earlier.values():
        run.finish("done")
    first = start(here, ["provision", "inventory.ini", "base"])
    try:
        until_held(first, here)
        for _ in range(30):  # what each command that only reads leaves behind
            journal.begin(journal.prepare(state), "status", room=journal.LOOKS).finish("done")
        told = {
            "second": command(here, "provision", "inventory.ini", "base"),
            "preflight": command(here, "preflight", "inventory.ini", "--json"),
            "verified": command(here, "verify", "inventory.ini", "--json"),
            "status": command(here, "status", "inventory.ini", "--json"),
        }
        live = [run for run in journal.runs(state) if run.alive]
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=PATIENCE)
        log = all((run.directory / "ansible.log").exists() for run in live)
        yield Held(here, first, earlier, **told, live=live, log=log)
    finally:
        # What a failure has left running.
        for run in journal.runs(state):
            kill_marked(run.id)


def test_a_second_run_is_told_who_holds_the_lock_while_read_only_commands_go_on(held: Held) -> None:
    assert held.second.returncode == 6
    assert f"process {held.first.pid}" in held.second.stderr
    assert f"kill -INT {held.first.pid}" in held.second.stderr
    assert json.loads(held.preflight.stdout)["checks"], held.preflight.stderr
    assert held.first.returncode == 130
    # The one before, and the one that held: the second has left no record.
    assert [run.id for run in held.on_record("provision")] == [held.earlier["provision"].id, held.live[0].id]


def test_verify_beside_a_provision_is_unknown_and_asks_no_machine(held: Held) -> None:
    document = json.loads(held.verified.stdout)
    assert held.verified.returncode == 8, held.verified.stderr
    assert document["verdict"] == "unknown"
    [check] = [check for check in document["checks"] if check["id"] == "run.lock"]
    assert f"process {held.first.pid}" in check["observed"]
    assert not list(held.site.glob("made-*"))
    [kept] = held.on_record("verify")
    assert kept.id == held.earlier["verify"].id, "it replaced the cluster's verdict"


def test_a_provision_waits_for_no_verify_but_is_turned_away_by_name(site: Path) -> None:
    stages_in(site, base=CHANGE, verify=HOLD)
    judging = start(site, ["verify", "inventory.ini"])
    until_held(judging, site)

    done = command(site, "provision", "inventory.ini", "base")
    judging.send_signal(signal.SIGINT)
    judging.communicate(timeout=PATIENCE)

    assert done.returncode == 6, done.stderr
    assert "'verify'" in done.stderr
    assert f"process {judging.pid}" in done.stderr
    assert not list(site.glob("made-*"))


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


def test_many_looks_leave_a_running_provision_and_the_last_run_on_record(held: Held) -> None:
    state = held.site / ".clusterctl"
    [live] = held.live
    assert json.loads(held.status.stdout)["last_run"]["id"] == live.id
    assert {run.facts["command"] for run in journal.runs(state)} == {"provision", "verify"}
    last = held.earlier["provision"]
    assert [run.facts["outcome"] for run in journal.runs(state) if run.id == last.id] == ["done"]
    assert held.log
    assert len(journal.runs(state, journal.LOOKS)) <= journal.KEPT_LOOKS + 1


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


def test_preflight_ends_with_a_code_of_its_own(held: Held) -> None:
    assert held.preflight.returncode == 3


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
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "LINES": "24", "TERM": "xterm", "NO_COLOR": "1"}

    process = start(site, ["provision", "inventory.ini", "base"], stderr=theirs, env=environment)
    process.communicate(timeout=PATIENCE)
    os.close(theirs)
    written = os.read(ours, 65536).decode()

    assert process.returncode == 0
    drawn = re.split(r"[\r\n]+", re.sub(r"\x1b\[(\?25[lh]|[0-9;]*[mKA])", "", written))
    assert len(drawn) > 3
    assert max(map(len, drawn)) <= columns
    # The last drawing is taken away again: one line down, and back up to clear it.
    assert written.count("\n") == 1
    assert written.endswith("\x1b[1A\x1b[2K")
    assert any("A task w" in line for line in drawn)


def test_a_look_has_a_bar_of_its_own_and_no_lines_in_a_pipe(site: Path, told: Told) -> None:
    stages_in(site, status=STATUS)
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "100", "TERM": "xterm"}

    start(site, ["status"], stderr=theirs, env=environment).communicate(timeout=PATIENCE)
    os.close(theirs)
    written = os.read(ours, 65536).decode()

    assert "Report the cluster's state" in written
    assert told.status.stderr == ""


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
