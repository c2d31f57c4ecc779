"""When slurmctld is to take up its files, and what is left when it does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from machines import act, plugin

from provision.model.checks import check_from

action = plugin("roles/slurm_service/action_plugins/slurmctld_refresh.py")
module = plugin("roles/slurm_service/library/slurmctld_refresh.py")
running = module.slurm_running

OLD = {"slurm.conf": "ClusterName=a\n", "gres.conf": ""}
NEW = {**OLD, "slurm.conf": "ClusterName=a\nMessageTimeout=30\n"}


@pytest.mark.parametrize(
    ("boot", "files", "last_written", "known", "expected"),
    [
        pytest.param(100, OLD, 90.0, (100, OLD), False, id="nothing has changed"),
        pytest.param(100, NEW, 120.0, (100, OLD), True, id="a file has changed"),
        pytest.param(100, OLD, 120.0, (100, OLD), False, id="written again with the same text"),
        pytest.param(100, {"slurm.conf": ""}, 90.0, (100, OLD), True, id="a file is gone"),
        pytest.param(150, NEW, 120.0, (100, OLD), False, id="it was started anew and has read the change"),
        pytest.param(150, NEW, 160.0, (100, OLD), True, id="changed after it was started anew"),
        pytest.param(150, NEW, 150.4, (100, OLD), True, id="changed in the second of its start"),
        pytest.param(150, OLD, 120.0, (None, {}), False, id="nothing is remembered, and it is younger than its files"),
        pytest.param(150, OLD, 170.0, (None, {}), True, id="nothing is remembered, and its files are younger"),
    ],
)
def test_it_is_reconfigured_when_it_may_run_with_other_files(
    boot: int, files: dict[str, str], last_written: float, known: tuple[Any, Any], expected: bool
) -> None:
    now = running.Running(boot, files, "", last_written)

    assert running.needed(now, running.Running(*known, "", 0)) is expected


@pytest.mark.parametrize(
    ("boot", "names", "written", "expected"),
    [
        pytest.param(100, "10.0.0.1 head", 90, False, id="the addresses of before"),
        pytest.param(100, "10.0.0.9 head", 120, True, id="another address"),
        pytest.param(150, "10.0.0.9 head", 120, False, id="it was started anew and has read them"),
        pytest.param(150, "10.0.0.9 head", 160, True, id="changed after it was started anew"),
    ],
)
def test_it_is_reconfigured_when_it_may_know_other_addresses(
    boot: int, names: str, written: int, expected: bool
) -> None:
    known = running.Running(100, OLD, "10.0.0.1 head", 0)

    assert running.needed(running.Running(boot, OLD, names, written), known) is expected


def test_the_hosts_file_that_the_engine_writes_in_the_second_of_a_start_is_no_later_one() -> None:
    since, names = running.hosts("100\n10.0.0.1 head\n")

    assert not running.needed(running.Running(100, OLD, names, max(90, since)), running.Running(None, {}, "", 0))


def test_where_the_containers_hosts_file_cannot_be_asked_nothing_is_known_of_it() -> None:
    block = "# BEGIN\n10.0.0.1\thead\n# END"

    assert running.hosts(f"1700000000\n{block}\n") == (1699999999, block)
    assert running.hosts("") == running.hosts("stat: cannot statx") == (0, "")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"boot": "x", "files": {}}', '{"boot": 1}', '{"boot": 1, "files": []}']
)
def test_a_record_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    record = tmp_path / "running.json"
    record.write_text(text)

    assert running.remembered(record) == (None, {}, "", 0)
    assert running.remembered(tmp_path / "missing") == (None, {}, "", 0)


def test_the_files_of_before_come_back_and_what_was_new_goes(tmp_path: Path) -> None:
    for name, text in {**NEW, "topology.conf": "x"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "slurmdbd.conf").write_text("StoragePass=secret")

    module.put_back(tmp_path, OLD)

    assert running.read(tmp_path) == OLD
    assert (tmp_path / "slurmdbd.conf").exists(), "it is slurmdbd's"
    assert (tmp_path / "slurm.conf").stat().st_mode & 0o777 == 0o644


def test_the_cause_is_what_slurmctld_calls_an_error_and_is_harmless_to_print() -> None:
    log = "slurmctld: started\nslurmctld: error: Parsing \x1b[31merror\x07\nslurmctld: fatal: no\n" + "x" * 999

    assert module.cause(log) == "slurmctld: error: Parsing ?[31merror?; slurmctld: fatal: no"
    assert module.cause("only\nlines\n") == "only; lines"


def test_the_cause_is_not_what_the_old_slurmctld_logs_as_it_goes_on() -> None:
    # slurmctld 24.11.5 in a lab, with MaxTime=40000000.
    log = """\
slurmctld: Attempting to reconfigure
slurmctld: error: Bad value "40000000" for MaxTime
slurmctld: error: If using PrologFlags=Contain for pam_slurm_adopt, proctrack/cgroup is required. If not using \
pam_slurm_adopt, please ignore error.
slurmctld: fatal: Unable to process configuration file
slurmctld: Resuming operation, reconfigure failed.
slurmctld: error: slurm_persist_conn_open: No response to persist_init
slurmctld: error: Sending PersistInit msg: Resource temporarily unavailable
slurmctld: Running as primary controller
"""

    assert module.cause(log) == (
        'slurmctld: error: Bad value "40000000" for MaxTime; slurmctld: fatal: Unable to process configuration file'
    )


def test_a_log_without_anything_has_no_cause() -> None:
    assert module.cause("") == ""


def node(name: str, *state: str) -> dict[str, Any]:
    """Return the part of ``scontrol show node --json`` that is read."""
    return {"name": name, "state": list(state), "reason": "", "reason_set_by_user": ""}


class EndedError(Exception):
    """The module has ended."""


class Machine:
    """A controller whose slurmctld takes up or refuses what is in the directory, as slurmctld says it does."""

    def __init__(self, folder: Path, running: dict[str, str], *, refuses: bool = False, answers: bool = True) -> None:
        self.folder, self.boot, self.reconfigured = folder, 1000, 0
        self.refuses, self.answers = refuses, answers
        #: What it says of its nodes, by the configuration that it runs with; node1 is up with either.
        self.nodes = {text: [node("node1", "IDLE")] for text in (OLD["slurm.conf"], NEW["slurm.conf"])}
        self.runs_with, self.started, self.restarted = running["slurm.conf"], "", 0
        #: How often it says of node1, once it was reconfigured, that it has not registered.
        self.late = 0
        #: How many nodes have not registered, each time that it is asked; the last from then on.
        self.unknown: list[int] = [0]
        self.asked = 0
        self.params = {"directory": str(folder), "container": "slurmctld", "record": str(folder / "record"), "wait": 0}
        for name, text in running.items():
            (folder / name).write_text(text)
        (folder / "record").write_text(json.dumps({"boot": self.boot, "files": running}))

    def run_command(self, words: list[str], data: str = "") -> tuple[int, str, str]:
        assert words[0] == "timeout", "each question has a limit"
        told = " ".join(words)
        if "show config" in told and self.answers:
            assert data == OLD["slurm.conf"] or self.boot != 1000, "the new file may be what no client can read"
            return 0, f"BOOT_TIME               = {self.boot}\n", ""
        if "show nodes" in told and self.answers:
            assert "--future" in words, "of those without an address, too"
            late = self.reconfigured > 0 and self.late > 0
            self.late -= late
            said = [node("node1", "UNKNOWN")] if late else self.nodes.get(self.runs_with, [])
            return 0, json.dumps({"nodes": said}), ""
        if "{{.State.StartedAt}}" in told:
            return 0, self.started, ""
        if "docker restart" in told:
            self.restarted += 1
            self.took_up()
            self.answers = self.runs_with == OLD["slurm.conf"]
            return 0, "", ""
        if "scontrol reconfigure" in told:
            self.reconfigured += 1
            if self.refuses:
                return 1, "", "slurm_reconfigure error: Unspecified error"
            self.took_up()
            return 0, "", ""
        if "sinfo" in told:
            assert "--states=unknown" in words
            self.asked += 1
            return 0, f"{self.unknown.pop(0) if len(self.unknown) > 1 else self.unknown[0]}\n", ""
        if "docker logs" in told:
            return 0, "", "slurmctld: fatal: cannot find scheduler plugin for sched/nonsense\n"
        return 1, "", "no answer"

    def took_up(self) -> None:
        self.boot += 50
        self.runs_with = (self.folder / "slurm.conf").read_text()

    def fail_json(self, msg: str, **result: Any) -> None:
        self.result = result
        raise EndedError(msg)

    def exit_json(self, **result: Any) -> None:
        self.result = result

    def run(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        monkeypatch.setattr(module, "AnsibleModule", lambda **_: self)
        module.main()
        return self.result


class Clock:
    """Time that passes while somebody sleeps, and a little while somebody looks."""

    strftime, gmtime = staticmethod(module.time.strftime), staticmethod(module.time.gmtime)
    strptime = staticmethod(module.time.strptime)

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def time(self) -> float:
        self.now += 0.01
        return self.now

    monotonic = time

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def started(folder: Path, monkeypatch: pytest.MonkeyPatch, unknown: list[int]) -> tuple[Machine, float]:
    """Run the module on a slurmctld that was started anew five seconds ago; return it and the seconds it took."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    machine = Machine(folder, OLD)
    machine.boot, machine.unknown, machine.params["wait"] = int(clock.now) - 5, unknown, 60
    begun = clock.now
    machine.run(monkeypatch)
    return machine, clock.now - begun


def test_after_a_start_it_is_waited_for_that_all_nodes_have_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that is asked for before that hangs for two minutes."""
    machine, _ = started(tmp_path, monkeypatch, [2, 2, 1, 0])

    assert machine.asked == 4


def test_nodes_that_are_down_are_not_waited_for_longer_than_none_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, took = started(tmp_path, monkeypatch, [*[3] * 10, 1])

    # The tenth question is 4.5 s later; the one node that is left has its time from then on.
    assert module.QUIET + 4.5 < took < module.QUIET + 8


def test_where_slurmctld_was_not_started_anew_nobody_asks_for_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, OLD)
    machine.run(monkeypatch)

    assert machine.asked == 0


def change(folder: Path) -> None:
    (folder / "slurm.conf").write_text(NEW["slurm.conf"])


def test_a_change_is_taken_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, OLD)
    change(tmp_path)

    assert machine.run(monkeypatch)["changed"]
    assert not machine.run(monkeypatch)["changed"]
    assert machine.reconfigured == 1


def test_a_run_that_ended_between_file_and_reconfiguration_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, OLD)
    change(tmp_path)  # and nobody remembers that it did

    assert machine.run(monkeypatch)["reconfigured"]


def test_what_slurmctld_refuses_fails_with_its_words_and_the_files_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, OLD, refuses=True)
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    change(tmp_path)

    with pytest.raises(EndedError, match=r"refuses the new files.*sched/nonsense.*files of before are back"):
        machine.run(monkeypatch)
    assert machine.result["rolled_back"]
    assert running.read(tmp_path) == OLD
    assert not machine.run(monkeypatch)["changed"]


def test_nodes_that_were_up_and_do_not_come_back_bring_the_files_of_before_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "time", Clock())
    machine = Machine(tmp_path, OLD)
    machine.nodes[OLD["slurm.conf"]] = [node("node1", "IDLE"), node("node2", "MIXED", "DRAIN"), node("node3", "DOWN")]
    lost = node("node2", "UNKNOWN", "NOT_RESPONDING")
    machine.nodes[NEW["slurm.conf"]] = [node("node1", "IDLE"), lost, node("node3", "DOWN")]
    machine.params["wait"] = 60
    change(tmp_path)

    with pytest.raises(EndedError, match=r"node2: up before, and not within 60 s .*files of before are back"):
        machine.run(monkeypatch)
    assert machine.result["rolled_back"]
    assert machine.reconfigured == 2
    assert machine.runs_with == OLD["slurm.conf"]
    assert running.read(tmp_path) == OLD
    assert not machine.run(monkeypatch)["changed"], "it is remembered that it runs with these"


def test_nodes_that_come_back_in_time_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "time", Clock())
    machine = Machine(tmp_path, OLD)
    machine.params["wait"] = 60
    machine.late = 3
    change(tmp_path)

    assert machine.run(monkeypatch)["changed"]
    assert machine.late == 0
    assert running.read(tmp_path) == NEW


def test_nodes_whose_daemons_take_it_up_at_their_start_alone_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, OLD)
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    text = "ClusterName=a\nSlurmdPort=7000\n"
    machine.nodes[text] = [node("node1", "UNKNOWN")]
    (tmp_path / "slurm.conf").write_text(text)

    assert machine.run(monkeypatch)["changed"]


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        pytest.param([], [], id="it was taken out of the inventory"),
        pytest.param([node("node1", "IDLE", "POWERING_DOWN", "NOT_RESPONDING")], [], id="Slurm has switched it off"),
        pytest.param([node("node1", "IDLE", "DRAIN", "INVALID_REG")], [], id="it has less, and has registered"),
        pytest.param([node("node1", "IDLE", "NOT_RESPONDING")], ["node1"], id="it does not answer"),
        pytest.param([node("node1", "UNKNOWN")], ["node1"], id="it has not registered"),
    ],
)
def test_a_node_is_lost_that_was_up_and_is_not(then: list[dict[str, Any]], expected: list[str]) -> None:
    assert running.lost(running.up([node("node1", "ALLOCATED"), node("node2", "DOWN")]), then) == expected


def test_one_that_was_started_with_other_files_and_does_not_answer_runs_with_those_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "time", Clock())
    machine = Machine(tmp_path, OLD, answers=False)
    machine.started = "2100-01-01T00:00:00.123Z"
    change(tmp_path)

    with pytest.raises(EndedError, match=r"does not answer .* with these files.*files of before are back"):
        machine.run(monkeypatch)
    assert (machine.restarted, machine.result["rolled_back"]) == (1, True)
    assert running.read(tmp_path) == OLD


def test_the_last_five_configurations_with_which_it_ran_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    for number in range(7):
        clock.now += 10
        module.keep(tmp_path / "kept", {"slurm.conf": str(number)})

    kept = sorted((tmp_path / "kept").iterdir())
    assert [(one / "slurm.conf").read_text() for one in kept] == list("23456")
    assert {one.stat().st_mode & 0o777 for one in (tmp_path / "kept", *kept)} == {0o700}


def test_a_start_without_a_change_keeps_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    machine = Machine(tmp_path, OLD)
    change(tmp_path)
    machine.run(monkeypatch)
    clock.now += 1000
    machine.boot = int(clock.now) - 500
    machine.run(monkeypatch)

    assert len(list((tmp_path / "kept").iterdir())) == 1


@pytest.mark.parametrize(("told", "code"), [(True, "rolled_back"), ("yes", ""), (None, "")])
def test_a_change_that_was_taken_back_is_a_check_with_a_code_of_its_own(told: Any, code: str) -> None:
    answer = {"failed": True, "msg": "node1: up before\nand more", "rolled_back": told}

    found = act(action, {"directory": "/etc/slurm"}, lambda **_: dict(answer))

    assert found["msg"] == "node1: up before and more"
    checks = [check_from(check, host="head") for check in found.get("cluster_checks", ())]
    assert [detail.code for check in checks for detail in check.details] == ([code] if code else [])


def test_one_that_does_not_answer_is_a_failure_and_its_files_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, OLD, answers=False)
    change(tmp_path)

    with pytest.raises(EndedError, match="does not answer within"):
        machine.run(monkeypatch)
    assert running.read(tmp_path) == NEW
