"""What is said of a driver in each of the states in which drivers are found. One fixture, one state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import driver_machines
import pytest

from provision.judge import driver as verify_driver
from provision.nvidia import driver as nvidia_driver

GOOD = ("pass", "skip")


def text(check: dict[str, Any]) -> str:
    return " | ".join(str(check[key]) for key in ("observed", "expected", "cause", "fix"))


@pytest.mark.parametrize("name", driver_machines.names())
def test_each_state_has_its_verdict_and_its_message(name: str, tmp_path: Path) -> None:
    machine, case = driver_machines.machine(name, tmp_path)

    checks = verify_driver.checks(machine, driver_machines.wants(case))

    bad = {check["id"] for check in checks if check["verdict"] not in GOOD}
    assert bad == set(case["expect"]), [text(check) for check in checks if check["verdict"] not in GOOD]
    for check_id, (verdict, *words) in case["expect"].items():
        told = [check for check in checks if check["id"] == check_id and check["verdict"] not in GOOD]
        assert {check["verdict"] for check in told} == {verdict}
        assert all(word in " ".join(text(check) for check in told) for word in words), text(told[0])


@pytest.mark.parametrize("name", driver_machines.names())
def test_each_state_is_mended_by_what_is_wrong_with_it_and_nothing_more(name: str, tmp_path: Path) -> None:
    machine, case = driver_machines.machine(name, tmp_path)

    planned = nvidia_driver.plan(machine, driver_machines.wants(case))

    assert ("refused" if planned.refusals else list(planned.pending)) == case["pending"]


@pytest.mark.parametrize("name", driver_machines.names())
def test_every_bad_check_says_why_and_what_to_do(name: str, tmp_path: Path) -> None:
    machine, case = driver_machines.machine(name, tmp_path)

    for check in verify_driver.checks(machine, driver_machines.wants(case)):
        if check["verdict"] not in GOOD:
            assert check["cause"], check
            assert check["fix"], check


def test_a_machine_without_a_gpu_is_skipped_with_the_reason(tmp_path: Path) -> None:
    machine, case = driver_machines.machine("bare_a40x4_debian12", tmp_path)
    machine["gpu"]["gpus"] = []

    [check] = verify_driver.checks(machine, driver_machines.wants(case))

    assert (check["verdict"], check["observed"]) == ("skip", "there is no NVIDIA GPU on the bus")


def test_a_driver_without_a_gpu_is_not_proven_and_never_passes(tmp_path: Path) -> None:
    machine, case = driver_machines.machine("healthy_h100x8", tmp_path)
    machine["gpu"].update(gpus=[], nvswitches=[])
    machine["gpu"]["module"].update(loaded="", open=None)

    checks = verify_driver.checks(machine, {**driver_machines.wants(case), "install": True})
    [loaded] = [check for check in checks if check["id"] == "nvidia_driver.loaded"]

    assert loaded["verdict"] == "skip"
    assert loaded["observed"].startswith("not proven: there is no GPU")


def test_a_module_that_modinfo_cannot_describe_is_unknown(tmp_path: Path) -> None:
    machine, case = driver_machines.machine("healthy_h100x8", tmp_path)
    machine["gpu"]["module"]["on_disk"]["6.8.0-71-generic"] = None

    checks = verify_driver.checks(machine, driver_machines.wants(case))

    assert "unknown" in {check["verdict"] for check in checks if check["id"] == "nvidia_driver.module"}
