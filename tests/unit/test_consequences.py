"""What mending a check brings with it: told where it is so, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import driver_machines
import pytest
from test_judge_containers import SLURMCTLD, SLURMD, answer, inspected
from test_judge_containers import SUBJECT as SLURM
from test_judge_managed import DATA, STATE, SUBJECT, with_path, with_service
from test_judge_slurm_running import OTHER, SUMS, head, judged, node

from provision.judge import containers, images, managed, road
from provision.model.checks import Check, Verdict, check_from
from provision.model.consequences import Consequence, Kind
from provision.model.facts import facts_from
from provision.model.managed import managed_from
from provision.nvidia.driver import plan
from provision.nvidia.driver_plan import Plan
from provision.nvidia.driver_state import consequences

RESTART = [Consequence(Kind.RESTART, "munge", "jobs go on")]
SERVICE = {**DATA["services"][0], "restart": "jobs go on", "restarted_for": ["munge.key"]}
WANTS = managed_from({**DATA, "services": [SERVICE]})
CONF = "/etc/munge.d/a.conf"


def brought(kind: str, state: dict[str, Any]) -> list[Consequence]:
    found = {check.id: check for check in managed.checks(SUBJECT, WANTS, state)}
    return list(found[f"munge.{kind}"].consequences)


@pytest.mark.parametrize("changes", [{"sha256": "0" * 64}, {"kind": "absent"}])
def test_a_file_that_is_written_restarts_the_service_that_reads_it_when_it_starts(changes: dict[str, Any]) -> None:
    assert brought("files", with_path(CONF, **changes)) == RESTART
    assert brought("services", with_path(CONF, **changes)) == []


@pytest.mark.parametrize(
    ("path", "changes"),
    [(CONF, {"mode": "0600"}), (CONF, {"owner": "admin", "uid": 1}), ("/etc/old.conf", {"kind": "file"})],
)
def test_what_no_service_reads_again_restarts_none(path: str, changes: dict[str, Any]) -> None:
    assert brought("files", with_path(path, **changes)) == []


def test_a_service_that_does_not_run_is_started_which_nobody_feels() -> None:
    state = with_service(active="inactive", sub="dead")
    state["paths"] = with_path(CONF, kind="absent")["paths"]

    assert brought("files", state) == []
    assert brought("services", state) == []


def test_a_service_older_than_its_file_is_restarted() -> None:
    assert brought("services", with_service(age=901.0)) == RESTART
    assert brought("services", with_service(enabled="disabled")) == []


def test_a_check_of_a_roles_own_judge_restarts_what_names_it_where_it_fails() -> None:
    wrong = Check("munge.key", "", Verdict.FAIL)

    found = managed.with_restarts([wrong, replace(wrong, id="munge.other")], WANTS, STATE)

    assert [list(check.consequences) for check in found] == [RESTART, []]
    good = replace(wrong, verdict=Verdict.PASS)
    assert managed.with_restarts([good], WANTS, STATE) == [good]
    stopped = with_service(active="inactive")
    assert managed.with_restarts([wrong], WANTS, stopped) == [wrong]


def test_the_road_tells_a_roles_own_checks_what_their_mending_restarts() -> None:
    facts = facts_from({"munge": {"absent": "No such file"}, "state": {**STATE, "manager": {}}})

    found = road.checks("munge", facts, WANTS, {"controller": True, "fingerprint": "", "mode": "0400"})

    assert {check.id: list(check.consequences) for check in found if not check.ok} == {"munge.key": RESTART}


def test_a_container_is_made_anew_only_where_it_differs() -> None:
    slurmd = replace(SLURMD, replacement="its jobs go on")
    paused = inspected("slurmctld")
    paused["State"]["Paused"] = True
    other = inspected("slurmd")
    other["HostConfig"]["Memory"] = 2**30

    check = containers.check(SLURM, [SLURMCTLD, slurmd], answer(paused, other))

    assert check.consequences == (Consequence(Kind.REPLACE, "slurmd", "its jobs go on"),)
    assert containers.check(SLURM, [SLURMCTLD], answer()).consequences == ()


def test_the_machines_are_known_on_which_a_role_replaces_a_container_that_is_there() -> None:
    other = inspected("slurmd")
    other["HostConfig"]["Memory"] = 2**30

    def joined(*found: dict[str, Any], full: bool = False) -> list[str]:
        return road.joins({"slurm_service": [containers.check(SLURM, [SLURMD], answer(*found))]}, full=full)

    assert joined(other) == ["pending_slurm_service", "replaces_slurm_service"]
    assert joined() == ["pending_slurm_service"]
    assert joined(inspected("slurmd")) == []
    assert joined(inspected("slurmd"), full=True) == ["pending_slurm_service"]


def test_daemons_that_run_are_reconfigured_in_place() -> None:
    def told(*checked: Any, **other: Any) -> list[str]:
        return [f"{one.kind} {one.of}" for one in judged(*checked, **other)["configuration"].consequences]

    assert told(head(files=OTHER), "slurmctld") == ["reconfigure slurmctld"]
    assert told(node(OTHER), "slurmd") == ["reconfigure slurmd"]
    assert told(node({}), "slurmd") == []
    assert told(head(answered=False, late=False, problem="refused"), "slurmctld") == []
    assert told(node(SUMS), "slurmd") == []


def test_a_node_that_comes_back_takes_jobs_and_an_image_takes_minutes() -> None:
    (back,) = judged(node(SUMS), "slurmd", resume=["node1"])["registration"].consequences
    built = facts_from({"images": {"slurm": {"reference": "", "problem": "not built"}}})
    (minutes,) = images.image(SLURM, "containers", built, "slurm", "").consequences

    assert back.kind is Kind.RESUME
    assert (minutes.kind, minutes.of) == (Kind.BUILD, "slurm")


def reworded(planned: Plan) -> Plan:
    """Return the plan in other words: nothing that it brings rests on them."""
    return replace(planned, pending=tuple(replace(step, text="other words") for step in planned.pending))


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("bare_a40x4_debian12", ["drain", "reload"]),
        ("healthy_h100x8", []),
        ("row01_library_mismatch", ["drain", "reboot"]),
        ("row01_reload_is_enough", ["drain", "reload"]),
        ("row02_next_kernel_has_no_module", ["drain"]),
        ("row02_running_kernel_has_no_module", ["drain", "reload"]),
        ("row04_nouveau", ["drain", "reboot"]),
        ("row05_wrong_flavour_installed", ["drain", "reload"]),
        ("row06_hold_removed", []),
        ("row07_fabric_manager_missing", ["drain"]),
    ],
)
def test_a_drivers_plan_tells_whether_the_node_is_drained_and_the_machine_rebooted(
    name: str, kinds: list[str], tmp_path: Path
) -> None:
    machine, case = driver_machines.machine(name, tmp_path)

    found = consequences(machine["gpu"], reworded(plan(machine, driver_machines.wants(case))))

    assert [one.kind for one in found] == kinds


def test_a_new_driver_under_gpus_that_are_in_use_is_told_as_a_reboot(tmp_path: Path) -> None:
    machine, case = driver_machines.machine("healthy_h100x8", tmp_path)
    machine["gpu"]["users"] = ["python3 (pid 41)"]

    planned = plan(machine, {**driver_machines.wants(case), "branch": "570"})
    found = consequences(machine["gpu"], reworded(planned))

    assert [one.kind for one in found] == ["drain", "reboot"]
    assert "python3" in found[1].note


def test_consequences_travel_with_their_check_and_say_so_in_words() -> None:
    check = SUBJECT.check("files", False, "x", consequences=RESTART)

    assert check_from(check.as_dict()) == check
    assert check.as_dict()["consequences"] == [{"kind": "restart", "of": "munge", "note": "jobs go on"}]
    assert check.consequences[0].sentence == "restarts munge (jobs go on)"
    assert "consequences" not in SUBJECT.check("files", True, consequences=RESTART).as_dict()


@pytest.mark.parametrize("word", [{"kind": "explode", "of": "x"}, {"kind": "restart"}, "restart"])
def test_a_consequence_that_is_none_makes_the_check_unreadable(word: object) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        check_from({"id": "a.b", "verdict": "fail", "consequences": [word]})
