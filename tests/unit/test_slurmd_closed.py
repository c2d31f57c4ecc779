"""No job begins on a node while its slurmd is replaced, and those that are about to begin are waited for."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from machines import plugin

module = plugin("roles/slurm_service/library/slurmd_closed.py")

RUNS = {"job_id": 7, "job_state": ["RUNNING"], "batch_flag": True, "batch_host": "node1"}
PROLOG = {"job_id": 8, "job_state": ["RUNNING", "CONFIGURING"], "batch_flag": False, "batch_host": "node1"}
#: The first node of a job on two, and an interactive one: slurmd of this node starts no script of theirs.
ELSEWHERE = {"job_id": 9, "job_state": ["RUNNING"], "batch_flag": True, "batch_host": "node2"}
SALLOC = {"job_id": 10, "job_state": ["RUNNING"], "batch_flag": False, "batch_host": "node1"}


class Slurm:
    """slurmctld as slurmd's container hears it: the state of a node, and its jobs at each look."""

    def __init__(self, *looks: Any, state: tuple[str, ...] = ("MIXED",)) -> None:
        self.looks: Iterator[Any] = iter(looks)
        self.state = list(state)
        self.updates: list[list[str]] = []
        self.node = module.Node({"node": "node1", "container": "slurmd", "wait": 5}, self.run)

    def run(self, command: list[str]) -> tuple[int, str, str]:
        words = command[command.index("slurmd") + 1 :]
        if words[:2] == ["scontrol", "update"]:
            self.updates.append(words[3:])
            return 0, "", ""
        if words[0] == "squeue":
            jobs = next(self.looks)
            return (
                (1, "", "Unable to contact slurm controller") if jobs is None else (0, json.dumps({"jobs": jobs}), "")
            )
        return 0, json.dumps({"nodes": [{"name": "node1", "state": self.state}]}), ""


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The jobs whose script runs on this machine; and a clock that goes on by what is waited for."""
    jobs: set[int] = set()
    clock = [0.0]
    monkeypatch.setattr(module, "begun_here", lambda: jobs)
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    return jobs


def test_a_node_is_closed_when_all_its_jobs_have_begun(begun: set[int]) -> None:
    begun.add(7)
    slurm = Slurm([RUNS, PROLOG], [RUNS], [ELSEWHERE, SALLOC])

    assert slurm.node.close() == (True, "")
    assert slurm.updates == [["State=DRAIN", "Reason=clusterctl: slurmd is replaced"]]
    assert module.slurm_running.to_resume(
        {"state": ["IDLE", "DRAIN"], "reason": "clusterctl: slurmd is replaced", "reason_set_by_user": "root"}
    )
    assert next(slurm.looks) == [ELSEWHERE, SALLOC]


@pytest.mark.parametrize(
    ("look", "told"), [([RUNS, SALLOC], "job 7"), ([PROLOG], "job 8"), (None, "slurmctld does not answer")]
)
def test_a_job_that_does_not_begin_keeps_slurmd_and_the_node(begun: set[int], look: Any, told: str) -> None:
    slurm = Slurm(*[look] * 10)

    assert slurm.node.close() == (False, f"after 5 s not begun: {told}; slurmd goes on as before")
    assert slurm.updates[-1] == ["State=UNDRAIN"]


@pytest.mark.parametrize("state", [("IDLE", "DRAIN"), ("DOWN",)])
def test_a_node_that_takes_no_jobs_is_left_as_it_is(state: tuple[str, ...]) -> None:
    slurm = Slurm(state=state)

    assert slurm.node.close() == (False, "")
    assert slurm.updates == []


def test_a_batch_script_is_known_by_its_slurmstepd(tmp_path: Path) -> None:
    for number, name in enumerate(["slurmstepd: [7.batch]", "slurmstepd: [8+0.batch]", "slurmstepd: [9.extern]", "sh"]):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "cmdline").write_bytes(name.encode() + b"\0" * 20)

    assert module.begun_here(str(tmp_path)) == {7, 8}
