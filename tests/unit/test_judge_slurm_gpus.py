"""Has slurmd's container its GPUs: what nvidia-smi prints there when it has, and in each way when it has not."""

from __future__ import annotations

from pathlib import Path

import pytest
from slurm_worlds import by_name, coded, container, facts, machine, wants

from provision.judge import gpus, slurm
from provision.model.checks import Check

FIXTURES = Path(__file__).parent / "fixtures" / "slurm_gpus"

#: Fixture -> how many GPUs are declared, verdict, and what the cause says. The numbers are the failure modes that are
#: counted in the fixtures' README.
ROWS = {
    "eight_gpus": (8, "pass", ""),
    "mig_and_whole": (4, "pass", ""),
    "14_one_gpu_fell_off_the_bus": (8, "fail", "the driver shows 7 GPUs, node_gres says 8: one fell off the bus"),
    "14_mig_was_changed": (7, "fail", "MIG was changed"),
    "19_access_revoked_by_daemon_reload": (8, "fail", "access to the GPUs was revoked inside slurmd's container"),
    "driver_changed_under_the_container": (8, "fail", "still has the old one's libraries"),
    "started_without_libraries": (8, "fail", "without the driver's libraries"),
    "driver_not_loaded": (8, "fail", "the driver is not loaded"),
}


def judged(own: str, number: int = 8, *, real: bool = True) -> Check:
    (check,) = gpus.checks(facts(own), wants(gres=f"gpu:h100:{number}", gpus=real))
    return check


@pytest.mark.parametrize("name", ROWS)
def test_each_answer_gets_its_verdict_cause_and_next_command(name: str) -> None:
    number, verdict, cause = ROWS[name]
    _, _, printed = (FIXTURES / f"{name}.txt").read_text().partition("== nvidia-smi\n")

    check = judged(machine(**{"nvidia-smi": coded(printed)}), number)

    assert check.verdict == verdict
    assert cause in check.cause
    assert (check.fix == "") is (verdict == "pass")


def test_there_is_a_row_for_every_fixture() -> None:
    assert {path.stem for path in FIXTURES.glob("*.txt")} == {*ROWS, "15_device_file_missing"}


def test_a_container_that_does_not_run_is_unknown_and_no_lost_gpu() -> None:
    check = judged(machine(container(State={"Status": "paused", "Paused": True})))

    assert (check.verdict, check.observed) == ("unknown", "slurmd is paused")
    assert judged(machine()).verdict == "unknown"


def test_an_nvidia_smi_that_hangs_is_unknown() -> None:
    assert judged(machine(**{"nvidia-smi": coded("", 124)})).observed == "nvidia-smi did not answer in time"


def test_a_machine_without_real_gpus_is_skipped() -> None:
    assert judged(machine(), real=False).verdict == "skip"


def test_a_slurmd_that_was_started_too_early_is_told_apart_from_one_whose_gpu_is_gone() -> None:
    listed = (FIXTURES / "15_device_file_missing.txt").read_text()
    own = machine(container(State={"Status": "restarting", "Restarting": True}), devices=coded(listed, 1))

    check = by_name(slurm.checks(facts(own), wants(gres="gpu:h100:8")))["gres"]

    assert check.verdict == "fail"
    assert check.cause.startswith("slurmd did not find /dev/nvidia0; at boot")
