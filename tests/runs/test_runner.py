"""Running Ansible: what it is given, what is kept of it, and what is left of it. Each test here is a known trap."""

from __future__ import annotations

import json
import os
import pty
import signal
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ansible_runs import (
    HOLD,
    INVENTORY,
    processes_of,
    run,
    stages_in,
    start,
    until_held,
    write_inventory,
    write_playbook,
)
from waiting import PATIENCE, until

from provision.errors import ExitCode
from provision.events.exit import exit_code
from provision.events.fold import RunReport
from provision.runner import journal, playbooks
from provision.runner.journal_lock import lock
from provision.runner.process import Stop, kill_marked
from provision.runner.recover import recover
from provision.runner.secret import offered
from provision.ssh.target import Target

#: By a module that is started once on each machine; ansible.builtin.copy takes three starts of Python.
TOUCH = """
    - name: Write
      ansible.builtin.lineinfile:
        path: "{{ inventory_dir }}/made-{{ inventory_hostname }}"
        line: a
        create: true
        mode: "0644"
"""


def everything_under(directory: Path) -> str:
    return "".join(
        f"{path.name}\n{path.read_text(errors='replace')}" for path in directory.rglob("*") if path.is_file()
    )


def test_a_run_reports_each_machine_and_leaves_a_record_that_is_small_and_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        report, record = run(write_playbook(tmp_path / "try.yml", TOUCH))
    finally:
        os.umask(before)

    assert report.ok
    assert {host: counts.changed for host, counts in report.hosts.items()} == {"head": 1, "node1": 1, "node2": 1}
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in record.directory.rglob("*")}
    assert files == dict.fromkeys(("run.json", "journal.jsonl", "ansible.log"), 0o600)
    assert "PLAY RECAP" in (record.directory / "ansible.log").read_text()
    results = [entry for entry in journal.entries(record.directory) if entry["event"] == "result"]
    assert {(entry["host"], entry["task"], entry["changed"]) for entry in results} == {
        (host, "Write", True) for host in ("head", "node1", "node2")
    }


def test_only_listed_environment_reaches_ansible_and_host_keys_are_always_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "hunter2-token")
    monkeypatch.setenv("ANSIBLE_HOST_KEY_CHECKING", "False")
    monkeypatch.setenv("ANSIBLE_CALLBACK_PLUGINS", str(tmp_path))
    (tmp_path / "ansible.cfg").write_text("[defaults]\nhost_key_checking = false\nforks = 1\n")
    monkeypatch.chdir(tmp_path)
    tasks = """
    - name: Keep the environment
      ansible.builtin.shell: (tr '\\0' '\\n' < /proc/$PPID/environ; env) > {{ inventory_dir }}/environment
      run_once: true
    - name: Keep the settings
      ansible.builtin.copy:
        content: "{{ lookup('config', 'HOST_KEY_CHECKING') }} {{ lookup('config', 'DEFAULT_FORKS') }}"
        dest: "{{ inventory_dir }}/settings"
        mode: "0600"
      run_once: true
    """

    report, record = run(write_playbook(tmp_path / "try.yml", tasks))

    assert report.ok, report.failures
    environment = (tmp_path / "environment").read_text()
    assert "ANSIBLE_HOST_KEY_CHECKING=True" in environment
    assert "hunter2" not in environment
    assert str(tmp_path) not in [line.partition("=")[2] for line in environment.splitlines() if "CALLBACK" in line]
    assert (tmp_path / "settings").read_text() == "True 20"
    assert "hunter2" not in everything_under(record.directory)


SECRETS = """
    - name: Use a secret
      ansible.builtin.copy: {content: "{{ canary }}", dest: "{{ inventory_dir }}/secret", mode: "0600"}
      no_log: true
      run_once: true
    - name: Use two, one after another
      ansible.builtin.command: /bin/false {{ item }}
      loop: ["{{ canary }}", "{{ ansible_become_password | default('') }}"]
      no_log: true
      run_once: true
      failed_when: false
    - name: Fail over one
      ansible.builtin.command: /bin/sh -c "echo {{ canary }} >&2; exit 3"
      no_log: true
      run_once: true
"""


# With more words there is more to hide.
@pytest.mark.parametrize("verbosity", [pytest.param(0, marks=pytest.mark.night), 3])
def test_no_secret_is_in_the_record_an_argument_or_the_journal(tmp_path: Path, verbosity: int) -> None:
    playbook = write_playbook(tmp_path / "try.yml", SECRETS)
    seen: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    line = path.read_bytes()
                except OSError:
                    continue
                # The module's own command is the playbook's doing; what is ours are the options of ansible-playbook.
                if b"ansible-playbook" in line:
                    seen.add(line.decode(errors="replace"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    report, record = run(
        playbook,
        extra_vars={"canary": "CANARY-extra"},
        become_password="CANARY-become",
        vault_password="CANARY-vault",
        diff=True,
        verbosity=verbosity,
    )
    over.set()
    watcher.join()

    assert (tmp_path / "secret").read_text() == "CANARY-extra"
    assert "hidden" in next(iter(report.failures)).reason
    assert "CANARY" not in everything_under(record.directory)
    assert "CANARY" not in repr(report)
    assert seen
    assert not any("CANARY" in line for line in seen)


def test_a_secret_that_nobody_reads_leaves_no_file_and_no_waiting_thread(tmp_path: Path) -> None:
    threads = threading.active_count()

    with offered(tmp_path / "become", "CANARY") as path:
        assert stat.S_ISFIFO(path.stat().st_mode)

    assert list(tmp_path.iterdir()) == []
    assert threading.active_count() == threads


def test_variables_of_one_run_are_unknown_to_the_next(tmp_path: Path) -> None:
    tasks = """
    - name: Tell
      cluster_report: {status: {told: "{{ leftover | default('nothing') }}"}}
    """
    playbook = write_playbook(tmp_path / "try.yml", tasks, hosts="head")

    first, _ = run(playbook, extra_vars={"leftover": "something"})
    second, _ = run(playbook)

    assert [report.data["cluster_status"] for report in (first, second)] == [{"told": "something"}, {"told": "nothing"}]


def test_a_limit_is_taken_by_name_even_when_it_is_too_long_for_a_command_line(tmp_path: Path) -> None:
    playbook = write_playbook(tmp_path / "try.yml", TOUCH)
    many = INVENTORY.replace("[slurm_compute]\n", "[slurm_compute]\n" + "".join(f"n{i:04}\n" for i in range(400)))
    wanted = {f"n{i:04}" for i in range(400)} | {"node2"}

    short, _ = run(playbook, limit=["node2"])
    long, record = run(playbook, text=many, limit=wanted, tags=["nothing"])

    assert set(short.hosts) == {"node2"}
    assert long.rc == 0
    assert "Could not match" not in (record.directory / "ansible.log").read_text()


BROKEN = {
    "a module that does not exist": ("- name: x\n  nosuch_module: {a: b}\n", ExitCode.BUG),
    "bad YAML": ("- name: [\n", ExitCode.BUG),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_playbook_that_does_not_parse_is_not_success_and_shows_what_ansible_said(tmp_path: Path, kind: str) -> None:
    tasks, expected = BROKEN[kind]

    report, _ = run(write_playbook(tmp_path / "try.yml", tasks))

    assert not report.hosts
    assert exit_code("provision", report, root=str(tmp_path)) is expected
    assert any("try.yml" in message for message in report.messages)


def test_a_run_that_reaches_no_machine_is_not_success(tmp_path: Path) -> None:
    report, _ = run(write_playbook(tmp_path / "try.yml", TOUCH, hosts="nobody"))

    assert report.rc == 0
    assert exit_code("provision", report) is ExitCode.BAD_REQUEST


# A task that ignores every polite signal, as apt does in the middle of a package.
STUBBORN = """
    - name: Hold on
      ansible.builtin.shell: |
        trap '' INT TERM HUP
        touch {{ inventory_dir }}/held-{{ inventory_hostname }}
        sleep 3600; sleep 3600
"""


MANY = """
    - name: Judge everything
      cluster_check:
        results: "{{ [one] * 5000 }}"
      vars:
        one: {id: gpu.count, verdict: pass, observed: "{{ 'x' * 300 }}"}
        cluster_check_collect: true
      run_once: true
"""


def test_no_result_is_too_large_to_be_counted(tmp_path: Path) -> None:
    report, _ = run(write_playbook(tmp_path / "try.yml", MANY))

    assert len(report.checks) == 5000, report.failures


@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(one, marks=pytest.mark.night) for one in (signal.SIGTERM, signal.SIGHUP))]
)
def test_a_signal_ends_the_run_and_leaves_no_process(tmp_path: Path, number: int) -> None:
    stages_in(tmp_path, base=STUBBORN)
    inventory = write_inventory(tmp_path)
    process = start(tmp_path, ["provision", str(inventory), "base", "--json"])
    until_held(process, tmp_path, 3)

    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)

    expected = 130 if number == signal.SIGINT else 143
    assert process.returncode == expected, err
    assert json.loads(out)["exit_code"] == expected
    state = journal.state_directory(inventory)
    assert processes_of(state) == []
    [record] = journal.runs(state)
    assert record.facts["outcome"] == "interrupted"
    with lock(state, record):
        pass


def test_who_sits_at_a_terminal_is_told_what_runs_before_a_second_interrupt_ends_it(tmp_path: Path) -> None:
    stages_in(tmp_path, base=HOLD)
    inventory, ours_theirs, said = write_inventory(tmp_path), pty.openpty(), tmp_path / "said"
    with said.open("w", encoding="utf-8") as told:
        process = start(tmp_path, ["provision", str(inventory), "base"], stdin=ours_theirs[1], stderr=told)
    until_held(process, tmp_path)

    process.send_signal(signal.SIGINT)
    until(lambda: "Not stopped. Now: base: Hold on" in said.read_text(encoding="utf-8"), "what runs now")
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)

    assert process.returncode == 130, said.read_text(encoding="utf-8")
    for one in ours_theirs:
        os.close(one)


class Killed(NamedTuple):
    """A provision that was killed, and what it has left running."""

    site: Path
    state: Path
    left: list[int]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    here = tmp_path_factory.mktemp("killed")
    nothing = "- meta: noop\n"
    stages_in(here, base=STUBBORN, munge=TOUCH, status=nothing, preflight=nothing, verify=nothing, discover=nothing)
    state = journal.state_directory(write_inventory(here))
    process = start(here, ["provision", "inventory.ini", "base"])
    try:
        until_held(process, here, 3)
        process.kill()
        process.communicate()
        yield Killed(here, state, processes_of(state))
    finally:
        for record in journal.runs(state):
            kill_marked(record.id)


# Before the test of the next provision, which ends what they leave alone.
@pytest.mark.parametrize(
    # One that asks no machine, and one that does; the others take the same way.
    "reading",
    ["status", "plan", *(pytest.param(name, marks=pytest.mark.night) for name in ("preflight", "verify", "discover"))],
)
def test_a_command_that_only_reads_ends_nothing_of_a_run_that_was_killed(killed: Killed, reading: str) -> None:
    assert killed.left, "nothing was left behind, so nothing is tested"

    words = {"plan": ["preflight"], "discover": ["--check"]}.get(reading, [])
    start(killed.site, [reading, "inventory.ini", *words]).communicate(timeout=PATIENCE)

    assert set(killed.left) <= set(processes_of(killed.state))
    [dead] = [run for run in journal.runs(killed.state) if run.facts["command"] == "provision"]
    assert not dead.ended


def test_what_a_killed_run_has_left_is_ended_by_the_next_one_which_says_so(killed: Killed) -> None:
    assert killed.left, "nothing was left behind, so nothing is tested"
    [dead] = [run for run in journal.runs(killed.state) if run.facts["command"] == "provision"]
    kept = [path.name for path in (dead.directory / "ansible" / "job_events").iterdir()]
    assert not [name for name in kept if not name.endswith("-partial.json")], "every event is kept in a file"

    again = start(killed.site, ["provision", "inventory.ini", "munge"])
    _, err = again.communicate(timeout=PATIENCE)

    assert again.returncode == 0, err
    assert "never finished" in err
    assert processes_of(killed.state) == []
    ended = [run.facts["outcome"] for run in journal.runs(killed.state) if run.facts["command"] == "provision"]
    assert ended == ["killed", "done"]


def test_a_run_is_done_with_when_each_of_its_machines_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = journal.prepare(tmp_path / journal.NAME)
    begun = journal.begin(state, "provision", hosts=["node1", "node2"])
    begun._held = os.close(begun._held) if begun._held is not None else None  # as the kernel does for one that died
    targets = [Target(name=name, address=name) for name in ("node1", "node2", "node3")]
    asked: list[list[str]] = []

    def sweep(machines: list[Target], *_: object, **__: object) -> dict[str, int]:
        asked.append([target.name for target in machines])
        return {name: 0 for name in asked[-1] if name != "node2" or len(asked) == 3}

    monkeypatch.setattr(playbooks, "sweep", sweep)

    told = [recover(state, targets) for _ in range(4)]

    assert asked == [["node1", "node2"], ["node2"], ["node2"]]
    assert ["node2 did not answer" in line for lines in told for line in lines] == [True, True, False]
    assert told[3] == []
    assert [run.facts["outcome"] for run in journal.runs(state)] == ["killed"]


def test_a_stop_that_comes_before_ansible_has_started_is_not_forgotten(tmp_path: Path) -> None:
    playbook = write_playbook(tmp_path / "try.yml", STUBBORN)
    inventory = write_inventory(tmp_path)
    record = journal.begin(journal.prepare(journal.state_directory(inventory)), "provision")
    original = Stop.watching

    @contextmanager
    def at_once(self: Stop) -> Iterator[None]:
        self.request(signal.SIGTERM)
        with original(self):
            assert self._thread is not None
            self._thread.join()
            yield

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stop, "watching", at_once)
        report = playbooks.run([playbook], inventory=inventory, record=record)

    assert report.stopped_by == signal.SIGTERM
    assert processes_of(journal.state_directory(inventory)) == []


def test_an_error_in_our_own_code_does_not_leave_ansible_running(tmp_path: Path) -> None:
    playbook = write_playbook(tmp_path / "try.yml", STUBBORN)
    inventory = write_inventory(tmp_path)
    record = journal.begin(journal.prepare(journal.state_directory(inventory)), "provision")

    def broken(_: RunReport, event: Mapping[str, Any]) -> None:
        if event.get("event") == "playbook_on_task_start":
            until(lambda: list(tmp_path.glob("held-*")))
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        playbooks.run([playbook], inventory=inventory, record=record, on_event=broken)

    assert processes_of(journal.state_directory(inventory)) == []
