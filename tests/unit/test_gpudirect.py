"""The mechanism by which adapters reach GPUs' memory: one test for each row of the decision, and its borders."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from provision.nvidia.releases import version
from provision.rdma.gpudirect import ARCHITECTURES, Decision, Machine, Mechanism, decide

#: A machine as one would buy and set it up today.
TODAY = Machine(
    adapters=8,
    driver="580.95.05",
    open_modules=True,
    architectures=("hopper",),
    kernel="6.8.0-31-generic",
    nccl="2.27.3",
    release="24.04",
)


def of(machine: Machine = TODAY, *, allow_legacy: bool = False, **changes: object) -> Decision:
    return decide(replace(machine, **changes), allow_legacy=allow_legacy)  # type: ignore[arg-type]


def test_without_adapters_there_is_nothing_to_reach() -> None:
    assert decide(Machine(adapters=0)).mechanism == Mechanism.NONE


def test_open_modules_need_nothing_loaded_and_the_old_module_gone() -> None:
    decision = of()

    assert (decision.mechanism, decision.load, decision.options) == (Mechanism.DMA_BUF, "", "")
    assert "nvidia-peer-memory-dkms" in decision.remove


@pytest.mark.parametrize(
    "changes",
    [
        {"open_modules": False},
        {"driver": "510.108.03"},
        {"architectures": ("volta",)},
        {"architectures": ("hopper", "volta")},
        {"kernel": "5.11.0-27-generic"},
        {"nccl": "2.12.12"},
    ],
)
def test_each_of_its_conditions_is_one(changes: dict[str, object]) -> None:
    assert of(**changes).mechanism != Mechanism.DMA_BUF


@pytest.mark.parametrize(
    "changes", [{"driver": "515.43.04"}, {"architectures": ("turing",)}, {"kernel": "5.12.0"}, {"nccl": "2.13.4"}]
)
def test_and_its_border_belongs_to_it(changes: dict[str, object]) -> None:
    assert of(**changes).mechanism == Mechanism.DMA_BUF


def test_what_jobs_bring_may_be_unknown_and_is_then_said_to_be_assumed() -> None:
    decision = of(nccl="")

    assert decision.mechanism == Mechanism.DMA_BUF
    assert "2.13" in decision.reason


def test_proprietary_modules_are_offered_the_open_ones_and_use_what_there_is() -> None:
    decision = of(open_modules=False, peer_memory=True)

    assert decision.mechanism == Mechanism.NVIDIA_PEERMEM
    assert "nvidia_driver_modules: open" in decision.offer


@pytest.mark.parametrize(
    "changes",
    [
        {"ofed": "MLNX_OFED", "ofed_version": "5.8-1.1.2"},
        {"ofed": "MLNX_OFED", "ofed_version": "24.10-0.7.0"},
        {"ofed": "DOCA-OFED"},
        {"release": "20.04", "kernel": "5.4.0-216-generic"},
        {"release": "22.04", "kernel": "5.15.0-153-generic"},
        {"release": "22.04", "kernel": "6.5.0-45-generic"},
        {"kernel": "6.8.0-1030-nvidia"},
        {"release": "", "kernel": "6.1.0-28-amd64", "peer_memory": True},
    ],
)
def test_peer_memory_comes_from_an_ofed_or_the_kernel_itself(changes: dict[str, object]) -> None:
    decision = of(open_modules=False, **changes)

    assert (decision.mechanism, decision.load, decision.options) == (Mechanism.NVIDIA_PEERMEM, "nvidia-peermem", "")
    assert "nvidia-peer-memory-dkms" in decision.remove


def test_what_was_found_counts_for_more_than_what_is_known_of_the_kind() -> None:
    decision = of(open_modules=False, release="22.04", kernel="5.15.0-153-generic", peer_memory=False)

    assert decision.mechanism == Mechanism.IMPOSSIBLE


def test_the_last_old_ofed_wants_an_option() -> None:
    decision = of(open_modules=False, ofed="MLNX_OFED", ofed_version="4.9-7.1.0", peer_memory=True)

    assert (decision.mechanism, decision.legacy) == (Mechanism.NVIDIA_PEERMEM, True)
    assert decision.options == "options nvidia-peermem peerdirect_support=1"


@pytest.mark.parametrize(("ofed", "fits"), [("4.9-7.1.0", "1.1"), ("5.8-1.1.2", "1.3")])
def test_the_forerunner_is_for_old_drivers_and_only_when_allowed(ofed: str, fits: str) -> None:
    old = replace(TODAY, driver="460.106.00", open_modules=False, ofed="MLNX_OFED", ofed_version=ofed)

    refused, allowed = decide(old), decide(old, allow_legacy=True)

    assert refused.mechanism == Mechanism.IMPOSSIBLE
    assert any("gpudirect_rdma_legacy_allowed" in remedy for remedy in refused.remedies)
    assert (allowed.mechanism, allowed.load, allowed.legacy) == (Mechanism.NV_PEER_MEM, "nv_peer_mem", True)
    assert f"nv_peer_mem {fits}" in allowed.reason


@pytest.mark.parametrize(
    ("release", "kernel", "remedies"),
    [
        ("24.04", "6.8.0-31-generic", ("open kernel modules", "DOCA-OFED", "linux-nvidia")),
        ("", "6.1.0-28-amd64", ("open kernel modules", "DOCA-OFED")),
        ("", "6.12.48+deb13-amd64", ("open kernel modules", "DOCA-OFED")),
    ],
)
def test_where_nothing_is_possible_every_remedy_is_named(release: str, kernel: str, remedies: tuple[str, ...]) -> None:
    decision = of(open_modules=False, release=release, kernel=kernel)

    assert decision.mechanism == Mechanism.IMPOSSIBLE
    assert len(decision.remedies) == len(remedies)
    assert all(word in remedy for word, remedy in zip(remedies, decision.remedies, strict=True))


def test_an_ofed_that_is_installed_and_does_not_run_is_not_to_be_installed_again() -> None:
    decision = of(open_modules=False, ofed="DOCA-OFED", ofed_version="25.10", peer_memory=False)

    assert decision.mechanism == Mechanism.IMPOSSIBLE
    assert any(remedy.startswith("reboot into DOCA-OFED's own modules") for remedy in decision.remedies)


def test_gpus_that_cannot_have_open_modules_are_not_told_to_take_them() -> None:
    decision = of(open_modules=False, architectures=("volta",))

    assert decision.mechanism == Mechanism.IMPOSSIBLE
    assert not any("open" in remedy for remedy in decision.remedies)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"driver": ""}, "driver"),
        ({"kernel": "unknown"}, "kernel"),
        ({"open_modules": None}, "open"),
        ({"architectures": ()}, "architecture"),
        ({"architectures": ("rubin",)}, "architecture"),
        ({"ofed": "MLNX_OFED"}, "OFED"),
    ],
)
def test_what_is_not_known_is_named_and_nothing_is_guessed(changes: dict[str, object], word: str) -> None:
    decision = of(**changes)

    assert decision.mechanism == Mechanism.UNKNOWN
    assert word in decision.reason


def test_every_machine_gets_a_decision_with_a_reason_and_failures_name_remedies() -> None:
    drivers, kernels, flags = (
        ("450.80", "470.256", "535.274", "580.95"),
        ("5.4.0-1-generic", "6.8.0-1-generic"),
        (True, False),
    )
    ofeds = (("", ""), ("MLNX_OFED", "4.9"), ("MLNX_OFED", "24.10"), ("DOCA-OFED", "3.1"))
    for driver, kernel, is_open, ofed, kind in product(drivers, kernels, flags, ofeds, ARCHITECTURES):
        changes = {"driver": driver, "kernel": kernel, "open_modules": is_open, "architectures": (kind,)}
        decision = of(ofed=ofed[0], ofed_version=ofed[1], **changes)
        assert decision.reason
        assert (decision.mechanism == Mechanism.IMPOSSIBLE) == bool(decision.remedies)


def test_versions_are_compared_as_numbers() -> None:
    assert version("5.4.0-216-generic") < version("5.12") < version("6.8.0-31-generic")
    assert version("none") == ()


def test_geforce_and_titan_have_no_gpudirect_whatever_the_modules() -> None:
    decision = of(architectures=("ada",), consumer=("NVIDIA GeForce RTX 4090",))

    assert decision.mechanism == Mechanism.IMPOSSIBLE
    assert "NVIDIA GeForce RTX 4090" in decision.reason
    assert decision.remedies
