"""What is said of a driver in each of the states in which drivers are found. One fixture, one state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import driver_machines
import pytest

from provision.judge import driver as verify_driver
from provision.nvidia import driver as nvidia_driver

GOOD = ("pass", "skip")


def judged(machine: object, wants: dict[str, Any]) -> list[dict[str, Any]]:
    return [check.as_dict() for check in verify_driver.checks(machine, wants)]


def text(check: dict[str, Any]) -> str:
    return " | ".join(str(check[key]) for key in ("observed", "expected", "cause", "fix"))


@pytest.mark.parametrize("name", driver_machines.names())
def test_each_state_has_its_verdict_and_its_message(name: str, tmp_path: Path) -> None:
    machine, case = driver_machines.machine(name, tmp_path)

    checks = judged(machine, driver_machines.wants(case))

    bad = {check["id"] for check in checks if check["verdict"] not in GOOD}
    assert bad == set(case["expect"]), [text(check) for check in checks if check["verdict"] not in GOOD]
    for check_id, (verdict, *words) in case["expect"].items():
        told = [check for check in checks if check["id"] == check_id and check["verdict"] not in GOOD]
        assert {check["verdict"] for check in told} == {verdict}
        assert all(word in " ".join(text(check) for check in told) for word in words), text(told[0])
    for check in checks:
        assert check["verdict"] in GOOD or (check["cause"] and check["fix"]), check


@pytest.mark.parametrize("name", driver_machines.names())
def test_each_state_is_mended_by_what_is_wrong_with_it_and_nothing_more(name: str, tmp_path: Path) -> None:
    machine, case = driver_machines.machine(name, tmp_path)

    planned = nvidia_driver.plan(machine, driver_machines.wants(case))

    assert ("refused" if planned.refusals else [step.text for step in planned.pending]) == case["pending"]


def test_a_machine_without_a_gpu_is_skipped_with_the_reason(tmp_path: Path) -> None:
    machine, case = driver_machines.machine("bare_a40x4_debian12", tmp_path)
    machine["gpu"]["gpus"] = []

    checks = verify_driver.checks(machine, driver_machines.wants(case))

    assert checks == verify_driver.SUBJECT.all_skipped("there is no NVIDIA GPU on the bus")


def test_a_driver_without_a_gpu_is_not_proven_and_never_passes(tmp_path: Path) -> None:
    machine, case = driver_machines.machine("healthy_h100x8", tmp_path)
    machine["gpu"].update(gpus=[], nvswitches=[])
    machine["gpu"]["module"].update(loaded="", open=None)

    checks = judged(machine, {**driver_machines.wants(case), "install": True})
    [loaded] = [check for check in checks if check["id"] == "nvidia_driver.loaded"]

    assert loaded["verdict"] == "skip"
    assert loaded["observed"].startswith("not proven: there is no GPU")


def test_a_module_that_modinfo_cannot_describe_is_unknown(tmp_path: Path) -> None:
    machine, case = driver_machines.machine("healthy_h100x8", tmp_path)
    machine["gpu"]["module"]["on_disk"]["6.8.0-71-generic"] = None

    checks = judged(machine, driver_machines.wants(case))

    assert "unknown" in {check["verdict"] for check in checks if check["id"] == "nvidia_driver.module"}


HOSTILE: list[Any] = [None, [], "x" * 100_000, -1, 10**400, {}, {"a": {"b": []}}, True, "{{ 7 * 7 }}\x1b[2J", 1.5]


def _changed(value: Any, other: Any, path: tuple[Any, ...]) -> Any:
    """Return ``value`` with ``other`` at a place."""
    if not path:
        return other
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[path[0]] = _changed(value[path[0]], other, path[1:])
    return changed


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in below for place in _places(item, (*path, key)))]


def test_a_machine_that_answers_anything_anywhere_is_judged_and_never_better_than_it_was(tmp_path: Path) -> None:
    machine, case = driver_machines.machine("row01_library_mismatch", tmp_path)
    places = [place for place in _places(machine) if place[:1] in (("gpu",), ("os",), ("lock",), ())]

    for place in places:
        for other in HOSTILE:
            checks = verify_driver.checks(_changed(machine, other, place), driver_machines.wants(case))

            assert {check.id for check in checks} == set(verify_driver.SUBJECT.ids), (place, other)
            assert all(check.host == "" for check in checks)
            assert not any(ord(letter) < 32 for check in checks for letter in check.observed + check.fix), (
                place,
                other,
            )


def holder(**more: Any) -> dict[str, Any]:
    return {
        "pid": 4711,
        "name": "python3",
        "user": "ada",
        "command": "python3 train.py",
        "container": "",
        "slurm": False,
        **more,
    }


def before(
    root: Path, *holders: dict[str, Any], name: str = "row01_reload_is_enough", **settings: Any
) -> dict[str, Any]:
    """Return what is said of those who hold GPUs, before the driver is changed."""
    machine, case = driver_machines.machine(name, root)
    machine["gpu"]["holders"] = list(holders)
    wants = {**driver_machines.wants(case), **settings}
    found = verify_driver.preflight(machine, nvidia_driver.plan(machine, wants), wants)
    (check,) = [check for check in found if check.id == "nvidia_driver.processes"]
    return check.as_dict()


def test_a_change_under_processes_that_slurm_does_not_know_is_refused_with_each_of_them(tmp_path: Path) -> None:
    found = before(tmp_path, holder(), holder(pid=12, user="root", command="jupyter", container="abababababab"))

    assert found["verdict"] == "fail"
    assert "pid 4711 of ada: python3 train.py" in found["observed"]
    assert "pid 12 of root in container abababababab: jupyter" in found["observed"]
    assert "nvidia_driver_processes_allowed" in found["fix"]


def test_a_change_under_them_can_be_allowed_and_is_still_said(tmp_path: Path) -> None:
    assert before(tmp_path, holder(), processes_allowed=True)["verdict"] == "warn"


def test_jobs_of_slurm_are_waited_for_and_refuse_nothing(tmp_path: Path) -> None:
    assert before(tmp_path, holder(slurm=True))["verdict"] == "pass"


def test_whoever_trains_on_a_machine_whose_driver_stays_is_left_alone(tmp_path: Path) -> None:
    assert before(tmp_path, holder(), name="healthy_h100x8")["verdict"] == "skip"


def test_many_processes_are_counted_and_not_all_listed(tmp_path: Path) -> None:
    found = before(tmp_path, *[holder(pid=number, command="x" * 200) for number in range(1, 101)])

    assert "and 90 more" in found["observed"]
    assert len(found["observed"]) < 3000
