"""A newer kernel together with the driver: what is asked, built and judged before the machine is rebooted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import driver_machines
import pytest
from click.testing import CliRunner

from provision.cli.main import cli
from provision.judge import driver as judged
from provision.nvidia import driver
from provision.nvidia.driver_state import consequences

#: Debian 12, November 2026: apt-get --simulate install linux-image-amd64.
OFFERED = """\
Inst linux-image-6.1.0-56-amd64 (6.1.192-2 Debian-Security:12/oldstable-security [amd64])
Inst linux-image-amd64 (6.1.192-2 Debian-Security:12/oldstable-security [amd64])
Conf linux-image-6.1.0-56-amd64 (6.1.192-2 Debian-Security:12/oldstable-security [amd64])
Conf linux-image-amd64 (6.1.192-2 Debian-Security:12/oldstable-security [amd64])
"""


@pytest.fixture
def settled(tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """A machine with nothing to do, and the role's variables."""
    machine, case = driver_machines.machine("healthy_h100x8", tmp_path)
    machine["gpu"]["kernel"]["newest"] = machine["gpu"]["kernel"]["running"]
    wants = driver_machines.wants(case)
    assert driver.plan(machine, wants).pending == ()
    return machine, wants


def steps(machine: dict[str, Any], wants: dict[str, Any]) -> list[str]:
    return [step.text for step in driver.plan(machine, wants).pending if step.kind == "kernel"]


def test_no_kernel_is_looked_for_unless_one_is_asked_for(settled: Any) -> None:
    machine, wants = settled

    assert steps(machine, wants) == []
    assert steps(machine, {**wants, "kernels_offered": OFFERED}) == []


def test_an_offered_kernel_gets_headers_and_a_module_and_the_plan_says_that_the_machine_reboots(settled: Any) -> None:
    machine, wants = settled

    planned = driver.plan(machine, {**wants, "newest_kernel": True, "kernels_offered": OFFERED})

    assert planned.pending[0].text == "install kernel 6.1.0-56-amd64, and reboot"
    assert "linux-headers-6.1.0-56-amd64" in [name for step in planned.install for name in step]
    assert "build the module for 6.1.0-56-amd64" in [step.text for step in planned.pending]
    assert [str(one.kind) for one in consequences(machine["gpu"], planned)] == ["drain", "reboot"]


def test_before_the_archive_is_asked_the_plan_says_that_the_machine_may_reboot(settled: Any) -> None:
    machine, wants = settled

    assert "look for a kernel newer than" in steps(machine, {**wants, "newest_kernel": True})[0]


def test_a_machine_with_the_newest_kernel_is_left_alone(settled: Any) -> None:
    machine, wants = settled

    assert driver.plan(machine, {**wants, "newest_kernel": True, "kernels_offered": ""}).pending == ()


def test_a_kernel_that_is_installed_and_not_booted_is_booted_and_fails_the_proof_until_then(settled: Any) -> None:
    machine, wants = settled
    wants = {**wants, "newest_kernel": True, "kernels_offered": ""}

    def verdict() -> str:
        return str(next(one.verdict for one in judged.checks(machine, wants) if one.id == "nvidia_driver.kernel"))

    assert verdict() == "pass"
    running = machine["gpu"]["kernel"]["running"]
    machine["gpu"]["kernel"]["newest"] = "6.1.0-56-amd64"

    assert steps(machine, wants) == [f"reboot from kernel {running} to 6.1.0-56-amd64"]
    assert verdict() == "fail"
    machine["gpu"]["kernel_packages"] = {}
    assert verdict() == "warn"


def test_a_kernel_is_asked_for_with_the_stage_that_builds_the_driver() -> None:
    told = CliRunner().invoke(cli, ["provision", "none.ini", "munge", "--kernel"])

    assert told.exit_code == 2
    assert "--kernel is for the stage gpu" in told.output
