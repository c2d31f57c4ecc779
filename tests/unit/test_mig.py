"""MIG layouts: what can be, what was asked for, and what nvidia-smi says is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.judge import mig as judge
from provision.nvidia import mig

FIXTURES = Path(__file__).parent / "fixtures" / "mig"


def answer(name: str) -> dict[str, object]:
    return {"rc": 0, "stdout": (FIXTURES / name).read_text(), "stderr": ""}


def test_a_layout_names_the_largest_instances_first() -> None:
    # A small instance in the middle would leave no place for a large one.
    assert mig.layout(["0-1:1g.10gb*2", "0-1:3g.40gb", "4:7g.80gb"]) == {
        0: ("3g.40gb", "1g.10gb", "1g.10gb"),
        1: ("3g.40gb", "1g.10gb", "1g.10gb"),
        4: ("7g.80gb",),
    }


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        (["0:1g.10gb*8"], "more than the 7 compute slices"),
        (["0:3g.40gb*1", "0:3g.40gb*2"], "more than the 7 compute slices"),
        (["0:1g.20gb*5"], "a GPU holds 4 x 1g.20gb at most"),
        (["0:1g.5gb", "0:3g.40gb"], "no GPU has all of 1g.5gb, 3g.40gb"),
        (["3-1:1g.10gb"], "the first number is above the second"),
        (["0:1x.10gb"], "must be GPU:profile*count"),
        (["1g.10gb*7"], "must be GPU:profile*count"),
    ],
)
def test_a_layout_that_no_gpu_can_have_is_refused(items: list[str], problem: str) -> None:
    with pytest.raises(ValueError, match="GPU") as refused:
        mig.layout(items)

    assert problem in str(refused.value)


def test_a_profile_of_a_gpu_that_is_newer_than_the_table_is_left_for_the_machine_to_judge() -> None:
    assert mig.layout(["0:1g.34gb*7"]) == {0: ("1g.34gb",) * 7}


@pytest.mark.parametrize(
    ("device", "access"),
    [
        # /proc/driver/nvidia-caps/mig-minors, as NVIDIA's guide prints it, and as container runtimes quote it.
        (mig.Device(0, 0, 0, "7g.80gb"), 3),
        (mig.Device(4, 7, 0, "1g.10gb"), 606),
        (mig.Device(31, 14, 7, "1g.10gb"), 4314),
    ],
)
def test_capabilities_are_numbered_as_the_driver_numbers_them(device: mig.Device, access: int) -> None:
    assert device.files == (
        f"/dev/nvidia{device.gpu},/dev/nvidia-caps/nvidia-cap{access},"
        f"/dev/nvidia-caps/nvidia-cap{access + 1 + device.compute}"
    )


def test_the_last_capability_of_all_is_the_last_of_the_drivers_list() -> None:
    assert mig.Device(31, 14, 7, "1g.10gb").files.endswith("nvidia-cap4322")


@pytest.mark.parametrize("name", ["lci_a100_mixed.txt", "lci_a100_mixed_older.txt"])
def test_the_table_of_instances_is_read_with_and_without_placement(name: str) -> None:
    assert [str(device) for device in mig.listed((FIXTURES / name).read_text())] == [
        "0/2/0:4g.20gb",
        "0/3/0:2g.10gb",
        "0/9/0:1g.5gb",
    ]


def judged(declared: list[str], recorded: list[str], found: dict[str, object], *, by_files: bool = True) -> list[str]:
    return [f"{check.id} {check.verdict}" for check in judge.checks(declared, recorded, found, by_files=by_files)]


MIXED = ["0:4g.20gb", "0:2g.10gb", "0:1g.5gb"]
THERE = ["0/2/0:4g.20gb", "0/3/0:2g.10gb", "0/9/0:1g.5gb"]


def test_a_machine_that_is_as_declared_passes() -> None:
    assert judged(MIXED, THERE, answer("lci_a100_mixed.txt")) == ["mig.layout pass", "mig.devices pass"]


def test_another_layout_fails_and_the_devices_are_not_judged() -> None:
    assert judged(["0:1g.5gb*7"], [], answer("lci_a100_mixed.txt")) == ["mig.layout fail", "mig.devices skip"]


def test_no_instance_at_all_fails() -> None:
    check, _ = judge.checks(MIXED, [], {"rc": 6, "stdout": "No compute instances found\n", "stderr": ""}, by_files=True)

    assert (check.verdict, check.observed) == ("fail", "no MIG instance")
    assert "nvidia-mig" in check.fix


def test_instances_that_gres_conf_does_not_know_yet_print_the_line_for_the_inventory() -> None:
    _, check = judge.checks(MIXED, [], answer("lci_a100_mixed.txt"), by_files=True)

    assert check.verdict == "fail"
    assert "declare node_mig_devices=0/2/0:4g.20gb,0/3/0:2g.10gb,0/9/0:1g.5gb" in check.fix


def test_instances_at_other_places_than_gres_conf_says_fail() -> None:
    elsewhere = ["0/1/0:4g.20gb", *THERE[1:]]

    assert judged(MIXED, elsewhere, answer("lci_a100_mixed.txt")) == ["mig.layout pass", "mig.devices fail"]


def test_slurm_that_detects_instances_by_itself_needs_no_such_line() -> None:
    assert judged(MIXED, [], answer("lci_a100_mixed.txt"), by_files=False) == ["mig.layout pass", "mig.devices skip"]


def test_a_driver_that_does_not_answer_is_unknown() -> None:
    found = {"rc": 9, "stdout": "", "stderr": "NVIDIA-SMI has failed because it couldn't communicate with the driver"}

    assert judged(MIXED, THERE, found) == ["mig.layout unknown", "mig.devices unknown"]


@pytest.mark.parametrize(
    ("kind", "profile", "meant"),
    [
        ("1g.5gb", "1g.5gb", True),
        ("nvidia_a100-sxm4-40gb_1g.5gb", "1g.5gb", True),
        ("A100_1G.5GB", "1g.5gb", True),
        ("a100_1g.10gb", "1g.5gb", False),
        ("a100_1g.5gb.me", "1g.5gb+me", True),
        ("a100_1g.5gb.me", "1g.5gb", False),
    ],
)
def test_a_type_in_slurms_words_ends_with_the_profiles_name(kind: str, profile: str, meant: bool) -> None:
    assert mig.of_type(kind, profile) is meant


def test_a_machine_whose_gpus_stay_whole_is_skipped_with_the_reason() -> None:
    assert judge.checks([], [], {}, by_files=True) == judge.SUBJECT.all_skipped(
        "no MIG instances are declared (node_mig)"
    )


def row(gpu: object, instance: object, name: str, compute: object) -> str:
    return f"|   {gpu}      {instance}       MIG {name}       19        {compute}         0:1     |\n"


@pytest.mark.parametrize(
    ("code", "text", "verdict"),
    [
        (0, "", "unknown"),
        (0, "\x00\x01\xff" * 10_000, "fail"),
        (0, "{{ lookup('pipe', 'id') }} %s {0}", "fail"),
        (0, row(-1, 2, "4g.20gb", 0), "fail"),
        (0, row(10**20, 2, "4g.20gb", 0), "fail"),
        (0, row("\N{ARABIC-INDIC DIGIT ONE}", 2, "4g.20gb", 0), "fail"),
        (0, row(0, 2, "4g.20gb\x1b[2J", 0), "fail"),
        (0, row(0, 2, "4g.20gb", 0) * 100_000, "fail"),
        (124, "", "unknown"),
        (137, "half a line", "unknown"),
        (-11, "", "unknown"),
        (None, None, "unknown"),
    ],
)
def test_an_nvidia_smi_that_answers_anything_is_judged_and_is_no_pass(code: object, text: object, verdict: str) -> None:
    checks = judge.checks(MIXED, THERE, {"rc": code, "stdout": text, "stderr": "\x1b]0;x\x07"}, by_files=True)

    assert [check.id for check in checks] == list(judge.SUBJECT.ids)
    assert checks[0].verdict == verdict
    assert all(ord(letter) >= 32 for check in checks for letter in check.observed + check.fix + check.cause)
    assert all(len(check.observed) < 40_000 for check in checks)
