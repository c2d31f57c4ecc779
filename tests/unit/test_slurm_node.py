"""Draining a node for work on it, and giving back only what was taken."""

from __future__ import annotations

import json
from typing import Any

import pytest
from machines import plugin

slurm_node = plugin("plugins/modules/slurm_node.py")

OURS = "clusterctl: nvidia driver"


class RefusedError(Exception):
    """The module has failed."""


class Slurm:
    """An Ansible module on a machine with a slurmctld that has one node."""

    check_mode = False

    def __init__(self, *state: str, reason: str = "", jobs: list[str] | None = None, answers: bool = True) -> None:
        self.jobs, self.answers = jobs or [], answers
        self.engine = (0, "[]", "")
        self.nodes = [{"name": "node1", "state": list(state), "reason": reason}]
        self.changes: list[list[str]] = []
        self.warnings: list[str] = []
        self.params: dict[str, Any] = {"names": ["node1"], "reason": OURS, "wait": 0, "jobs_allowed": False,
                                       "prefix": False, "gpus": None, "container": "slurmctld"}  # fmt: skip

    @property
    def updates(self) -> list[list[str]]:
        """What was changed, without the word that says so."""
        return [words[1:] for words in self.changes]

    def run_command(self, command: list[str]) -> tuple[int, str, str]:
        assert command[0] == "timeout"  # a Docker that hangs is not waited for
        command = command[3:]
        if command[1] == "container":
            return self.engine
        words = command[3:]
        if not self.answers:
            return 1, "", "slurm_load_node error: Unable to contact slurm controller"
        if words[0] == "squeue":
            return 0, "\n".join(self.jobs), ""
        if words[1] == "show":
            return 0, json.dumps({"nodes": self.nodes}), ""
        self.changes.append(words[1:])
        return 0, "", ""

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def fail_json(self, msg: str, **_: Any) -> None:
        raise RefusedError(msg)


def drain(machine: Slurm) -> tuple[dict[str, Any], bool]:
    found: tuple[dict[str, Any], bool] = slurm_node.drain(slurm_node.Controller(machine), machine.params, False)
    return found


def test_an_idle_node_is_drained_with_our_reason() -> None:
    machine = Slurm("IDLE")

    result, failed = drain(machine)

    assert (result["drained"], failed) == (["node1"], False)
    assert machine.updates == [["NodeName=node1", "State=DRAIN", f"Reason={OURS}"]]


def test_jobs_that_do_not_end_have_the_drain_undone() -> None:
    machine = Slurm("ALLOCATED", jobs=["17", "9"])

    result, failed = drain(machine)

    assert failed
    assert (result["jobs"], result["changed"]) == (["9", "17"], False)
    assert machine.updates[-1] == ["NodeName=node1", "State=UNDRAIN"]


def test_jobs_are_run_over_only_where_that_is_allowed() -> None:
    machine = Slurm("ALLOCATED", jobs=["17"])
    machine.params["jobs_allowed"] = True

    result, failed = drain(machine)

    assert not failed
    assert len(machine.updates) == 1
    assert result["jobs"] == ["17"]


@pytest.mark.parametrize("state", [("IDLE", "DRAIN"), ("DOWN",), ("DOWN", "DRAIN")])
def test_what_somebody_else_took_out_is_neither_drained_nor_resumed(state: tuple[str, ...]) -> None:
    machine = Slurm(*state, reason="bad fan")

    drain(machine)
    result = slurm_node.resume(slurm_node.Controller(machine), machine.params)

    assert machine.updates == []
    assert not result["changed"]


def test_somebody_elses_drain_is_not_undone_because_of_jobs() -> None:
    machine = Slurm("MIXED", "DRAIN", reason="bad fan", jobs=["17"])

    _, failed = drain(machine)

    assert failed
    assert machine.updates == []


@pytest.mark.parametrize("state", [("IDLE", "DRAIN"), ("DOWN", "DRAIN", "NOT_RESPONDING")])
def test_our_own_drain_is_taken_back_also_that_of_an_interrupted_run(state: tuple[str, ...]) -> None:
    machine = Slurm(*state, reason=OURS)

    result = slurm_node.resume(slurm_node.Controller(machine), machine.params)

    assert result["changed"]
    assert machine.updates == [["NodeName=node1", "State=RESUME"]]


@pytest.mark.parametrize("reason", [OURS + " and more", "clusterctl", ""])
def test_a_reason_is_ours_only_word_for_word(reason: str) -> None:
    assert not slurm_node.to_resume({"state": ["IDLE", "DRAIN"], "reason": reason}, OURS)


@pytest.mark.parametrize(
    ("gres", "given_back"),
    [("gpu:1g.5gb:4(S:0),gpu:3g.20gb:1", True), ("gpu:a100:2", False), ("gpu:1g.5gb:4", False), (None, False)],
)
def test_a_node_with_other_gpus_than_slurm_knows_stays_drained(gres: str | None, given_back: bool) -> None:
    machine = Slurm("IDLE", "DRAIN", reason=OURS)
    machine.nodes[0]["gres"] = gres
    machine.params["gpus"] = ["gpu:3g.20gb:1", "gpu:1g.5gb:4"]

    result = slurm_node.resume(slurm_node.Controller(machine), machine.params)

    assert result["drained"] == (["node1"] if given_back else [])


def test_a_slurmctld_that_does_not_answer_is_a_failure_because_jobs_may_be_running() -> None:
    with pytest.raises(RefusedError, match=r"does not say what runs on node1.*Fix:"):
        drain(Slurm("IDLE", answers=False))


def test_giving_back_waits_for_the_next_run_where_slurmctld_does_not_answer() -> None:
    machine = Slurm("IDLE", "DRAIN", reason=OURS, answers=False)

    result = slurm_node.resume(slurm_node.Controller(machine), machine.params)

    assert not result["changed"]
    assert "until the next run" in machine.warnings[0]


def test_a_node_that_slurm_does_not_know_has_no_jobs() -> None:
    machine = Slurm("IDLE")
    machine.params["names"] = ["node2"]

    assert drain(machine) == ({"known": [], "drained": [], "jobs": [], "changed": False}, False)


def test_check_mode_changes_nothing() -> None:
    machine = Slurm("IDLE")
    machine.check_mode = True

    result, _ = slurm_node.drain(slurm_node.Controller(machine), machine.params, True)

    assert (result["drained"], machine.updates) == (["node1"], [])


@pytest.mark.parametrize(
    ("engine", "may_be"),
    [
        ((0, "[]", ""), True),
        ((1, "[]", "Error response from daemon: No such container: slurmctld"), False),
        ((1, "", "Error: No such container: slurmctld"), False),
        ((127, "", "timeout: failed to run command 'docker': No such file or directory"), False),
        ((1, "", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock."), True),
        ((124, "", ""), True),
        ((137, "", ""), True),
    ],
    ids=["there", "none", "none (older)", "no docker", "engine is down", "engine hangs", "client hangs"],
)  # fmt: skip
def test_only_a_docker_that_says_so_has_no_slurmctld(engine: tuple[int, str, str], may_be: bool) -> None:
    machine = Slurm("IDLE", answers=False)
    machine.engine = engine

    assert slurm_node.Controller(machine).is_there() is may_be


@pytest.mark.parametrize(("reason", "ours"), [("clusterctl: fans", True), ("bad fan", False), ("", False)])
def test_by_the_prefix_each_drain_of_ours_is_undone_and_no_other(reason: str, ours: bool) -> None:
    assert slurm_node.to_resume({"state": ["IDLE", "DRAIN"], "reason": reason}, "clusterctl: ", True) is ours


NEW = ("ReservationName=new", "Users=proof", "StartTime=now", "Duration=UNLIMITED", "Flags=IGNORE_JOBS")


@pytest.mark.parametrize(
    ("state", "there", "names", "said"),
    [
        ("reserved", {}, ["node2", "node1"], ["create", NEW[0], "Nodes=node1,node2", *NEW[1:]]),
        ("reserved", {"node1": "new"}, ["node2"], ["update", NEW[0], "Nodes=node1,node2"]),
        ("reserved", {"node1": "new"}, ["node1"], []),
        ("reserved", {"node1": "course"}, ["node1"], ["create", NEW[0], "Nodes=node1", *NEW[1:]]),
        ("released", {"node1": "new", "node2": "new"}, ["node2"], ["update", NEW[0], "Nodes=node1"]),
        ("released", {"node1": "new", "node2": "course"}, ["node1"], ["delete", NEW[0]]),
        ("released", {"node1": "course"}, ["node1", "node9"], []),
    ],
)
def test_new_nodes_are_in_one_reservation_until_each_is_released(
    state: str, there: dict[str, str], names: list[str], said: list[str]
) -> None:
    machine = Slurm()
    machine.params |= {"state": state, "names": names, "reservation": "new", "user": "proof"}
    machine.nodes = [{"name": name, "reservation": there.get(name, "")} for name in ("node1", "node2", "node3")]

    result = slurm_node.reserve(slurm_node.Controller(machine), machine.params)

    assert machine.changes == ([said] if said else [])
    assert result["changed"] is bool(said)
