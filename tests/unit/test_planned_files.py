"""Files that follow from a plan (of the driver, of GPUDirect) are judged as whole as those that a role's data names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import driver_machines
import pytest
from machines import as_declared
from test_gpudirect_machine import SETTINGS as DECIDED
from test_gpudirect_machine import machine as with_adapter
from test_gpudirect_machine import ofed
from test_nvidia_driver import on

from provision.judge import driver, gpu_stage, gpudirect
from provision.model.checks import Check
from provision.nvidia import driver as nvidia_driver
from provision.nvidia import driver_packages
from provision.rdma import gpudirect_machine

#: How a place is spoilt, and what is said of it.
WAYS: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "edited": (lambda state: {**state, "sha256": "0" * 64, "fingerprints": []}, "has another text"),
    "mode": (lambda state: {**state, "mode": "0601"}, "has mode 0601, not"),
    "owner": (lambda state: {**state, "owner": "nobody", "uid": 65534}, "has owner nobody, not root"),
    "gone": (lambda _: {"kind": "absent"}, "is absent"),
}


def bad(checks: list[Check]) -> dict[str, str]:
    return {check.id: check.observed for check in checks if not check.ok and check.verdict != "skip"}


def driver_of(system: str, root: Path, **settings: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a machine of this system on which all files of the driver are as planned, and what is asked for."""
    machine, _ = driver_machines.machine("bare_a40x4_debian12", root)
    wants = {**driver_machines.WANTS, "compute": True, "kept": False, **settings}
    planned = nvidia_driver.plan(on(machine, system), wants)
    machine["gpu"]["files"] = as_declared(planned.managed())
    return machine, wants


@pytest.mark.parametrize("way", WAYS)
def test_each_file_and_key_of_a_driver_that_is_spoilt_is_named_and_written_again(way: str, tmp_path: Path) -> None:
    spoil, said = WAYS[way]
    seen = set()
    for number, system in enumerate(("debian12", "ubuntu2404")):
        machine, wants = driver_of(system, tmp_path / str(number))
        before, good = bad(driver.checks(machine, wants)), nvidia_driver.plan(machine, wants)
        assert "nvidia_driver.files" not in before
        for place in good.managed().files:
            states = {**machine["gpu"]["files"], place.path: spoil(machine["gpu"]["files"][place.path])}
            spoilt = {**machine, "gpu": {**machine["gpu"], "files": states}}
            about = f"{place.path} {'holds another key' if way == 'edited' and place.fingerprints else said}"

            found, planned = bad(driver.checks(spoilt, wants)), nvidia_driver.plan(spoilt, wants)

            assert found.keys() - before.keys() == {"nvidia_driver.files"}
            assert about in found["nvidia_driver.files"]
            assert {step.text for step in {*planned.pending} - {*good.pending}} == {f"write {place.path}"}
            seen.add(place.path)

    assert seen == {*driver_packages.FILES, driver_packages.APT_KEY}


@pytest.mark.parametrize("path", ["/etc/apt/preferences.d", "/usr/share/keyrings"])
def test_a_directory_of_the_drivers_files_that_others_may_write_to_is_named(path: str, tmp_path: Path) -> None:
    machine, wants = driver_of("debian12", tmp_path)
    machine["gpu"]["files"][path]["mode"] = "0777"

    found = bad(driver.checks(machine, wants))["nvidia_driver.files"]

    assert found == f"{path} has mode 0777, not 0755"
    assert f"write {path}" in [step.text for step in nvidia_driver.plan(machine, wants).pending]


def test_a_list_of_another_source_is_named_until_it_is_gone(tmp_path: Path) -> None:
    machine, wants = driver_of("ubuntu2404", tmp_path, source="distribution")
    machine["gpu"]["files"][driver_packages.LIST] = {"kind": "file"}

    found = bad(gpu_stage.nvidia_driver(machine, wants))  # type: ignore[arg-type]

    assert found["nvidia_driver.files"] == f"{driver_packages.LIST} is there"
    assert f"remove {driver_packages.LIST}" in found["nvidia_driver.planned"]


def test_what_was_not_answered_of_a_file_is_unknown_and_no_reason_to_write_it(tmp_path: Path) -> None:
    machine, wants = driver_of("debian12", tmp_path)
    machine["gpu"]["files"][driver_packages.PIN] = {"error": "Input/output error"}

    (check,) = [check for check in driver.checks(machine, wants) if check.id == "nvidia_driver.files"]

    assert (check.verdict, check.observed) == ("unknown", f"{driver_packages.PIN}: Input/output error")
    assert f"write {driver_packages.PIN}" not in [step.text for step in nvidia_driver.plan(machine, wants).pending]


@pytest.mark.parametrize("way", WAYS)
def test_each_file_of_gpudirect_that_is_spoilt_is_named(way: str) -> None:
    spoil, said = WAYS[way]
    # The machine that has all three: the last old OFED.
    machine = with_adapter(open_modules=False, **ofed(ofed={"kind": "MLNX_OFED", "version": "4.9-7.1.0"}))
    chosen = gpudirect_machine.decision(machine, DECIDED)
    states = as_declared(gpudirect_machine.managed(chosen, machine))
    seen = set()
    for place in gpudirect_machine.managed(chosen, machine).files:
        machine["gpu"]["files"] = {**states, place.path: spoil(states[place.path])}

        found = bad(gpudirect.checks(machine, DECIDED))

        assert f"{place.path} {said}" in found["gpudirect.files"]
        seen.add(place.path)
    machine["gpu"]["files"] = states

    assert "gpudirect.files" not in bad(gpudirect.checks(machine, DECIDED))
    assert seen == {gpudirect_machine.AT_BOOT, gpudirect_machine.OPTIONS, gpudirect_machine.AFTER_OFED}


def test_what_an_earlier_mechanism_has_left_is_named() -> None:
    machine = with_adapter()
    states = as_declared(gpudirect_machine.managed(gpudirect_machine.decision(machine, DECIDED), machine))
    machine["gpu"]["files"] = {**states, gpudirect_machine.AT_BOOT: {"kind": "file"}}

    assert bad(gpudirect.checks(machine, DECIDED))["gpudirect.files"] == f"{gpudirect_machine.AT_BOOT} is there"
