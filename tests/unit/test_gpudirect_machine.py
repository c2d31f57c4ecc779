"""What a role is told to do about GPUDirect RDMA: conflicts first, a file for each thing said at boot, no more."""

from __future__ import annotations

from typing import Any

import pytest

from provision.judge import gpudirect as judge
from provision.rdma.gpudirect_machine import AFTER_OFED, AT_BOOT, OPTIONS, plan

SETTINGS = {"nccl": "", "release": "24.04", "legacy_allowed": False, "required": True}
TREE = ["/usr/src/ofa_kernel/default"]


def machine(*, open_modules: bool = True, driver: str = "580.95.05", **rdma: Any) -> dict[str, Any]:
    modules = {name: {"loaded": False, "version": "", "built": 0} for name in ("nvidia_peermem", "nv_peer_mem")}
    return {
        "gpu": {
            "gpus": [{"architecture": "ampere"}],
            "kernel": {"running": "6.8.0-31-generic"},
            "module": {"loaded": driver, "open": open_modules, "on_disk": {}},
        },
        "rdma": {
            "adapters": ["0000:1a:00.0"],
            "kernel": "6.8.0-31-generic",
            "peer_memory": False,
            "peer_memory_trees": [],
            "peer_memory_changed": 0,
            "ofed": {"kind": "", "version": ""},
            "modules": modules,
            "configured": {},
            "old_service": [],
            "packages": {},
            "acs": {"bridges": [], "unread": []},
            "iommu": {"groups": 0, "types": [], "arguments": []},
            "virtual": False,
            **rdma,
        },
    }


def ofed(**more: Any) -> dict[str, Any]:
    return {"ofed": {"kind": "DOCA-OFED", "version": "24.10-2.1.8"}, "peer_memory_trees": TREE, **more}


def test_dma_buf_needs_nothing_said_and_what_was_said_goes() -> None:
    told = plan(machine(), SETTINGS)

    assert (told["apply"], told["mechanism"], told["load"], told["files"]) == (True, "DMA-BUF", "", [])
    assert told["absent"] == [AT_BOOT, OPTIONS, AFTER_OFED]


def test_peermem_is_loaded_now_at_boot_and_after_the_ofed() -> None:
    told = plan(machine(open_modules=False, **ofed()), SETTINGS)

    assert (told["mechanism"], told["load"]) == ("nvidia-peermem", "nvidia-peermem")
    texts = {file["path"]: file["content"] for file in told["files"]}
    assert texts[AT_BOOT].splitlines()[-1] == "nvidia-peermem"
    assert texts[AFTER_OFED].splitlines()[-2:] == ["[Service]", "ExecStartPost=-/sbin/modprobe nvidia-peermem"]
    assert told["absent"] == [OPTIONS]
    assert all(
        file["path"].startswith(one["path"]) for file, one in zip(told["files"], told["directories"], strict=True)
    )


def test_a_kernel_of_its_own_needs_no_ofeds_service() -> None:
    told = plan(machine(open_modules=False, peer_memory=True), SETTINGS)

    assert [file["path"] for file in told["files"]] == [AT_BOOT]


def test_a_loaded_module_is_not_loaded_again() -> None:
    there = machine(open_modules=False, peer_memory=True)
    there["rdma"]["modules"]["nvidia_peermem"]["loaded"] = True

    assert plan(there, SETTINGS)["load"] == ""


def test_the_last_old_ofed_gets_its_option() -> None:
    told = plan(machine(open_modules=False, ofed={"kind": "MLNX_OFED", "version": "4.9-7.1.0"}), SETTINGS)

    assert {file["path"] for file in told["files"]} == {AT_BOOT, AFTER_OFED, OPTIONS}
    assert "options nvidia-peermem peerdirect_support=1" in next(
        file["content"] for file in told["files"] if file["path"] == OPTIONS
    )


@pytest.mark.parametrize(("built", "changed", "module"), [(1, 2, "nvidia"), (2, 1, ""), (0, 2, "")])
def test_modules_that_are_older_than_the_ofed_are_built_again(built: int, changed: int, module: str) -> None:
    there = machine(open_modules=False, **ofed(peer_memory_changed=changed))
    there["rdma"]["modules"]["nvidia_peermem"]["built"] = built

    assert plan(there, SETTINGS)["build"] == module


def test_conflicts_are_all_that_belongs_to_the_old_module() -> None:
    packages = {"nvidia-peer-memory-dkms": "1.3", "doca-ofed": "3.2"}
    there = machine(old_service=["/etc/rc3.d/S02nv_peer_mem"], packages=packages)
    there["rdma"]["modules"]["nv_peer_mem"]["loaded"] = True

    assert plan(there, SETTINGS)["conflicts"] == {
        "modules": ["nv_peer_mem"],
        "packages": ["nvidia-peer-memory-dkms"],
        "links": ["/etc/rc3.d/S02nv_peer_mem"],
    }


def test_an_old_driver_keeps_the_old_module_where_it_is_allowed() -> None:
    there = machine(open_modules=False, driver="460.106.00", **ofed(packages={"nvidia-peer-memory-dkms": "1.3"}))

    refused, allowed = plan(there, SETTINGS), plan(there, {**SETTINGS, "legacy_allowed": True})

    assert (refused["apply"], refused["files"]) == (False, [])
    assert (allowed["legacy"], allowed["load"], allowed["conflicts"]["packages"]) == (True, "nv_peer_mem", [])


@pytest.mark.parametrize("there", [{"gpus": []}, {"adapters": []}])
def test_where_one_of_the_two_is_missing_nothing_is_done(there: dict[str, Any]) -> None:
    found = machine()
    found["gpu"].update({key: value for key, value in there.items() if key == "gpus"})
    found["rdma"].update({key: value for key, value in there.items() if key == "adapters"})

    told = plan(found, SETTINGS)

    assert (told["apply"], told["files"], told["absent"]) == (False, [], [])
    checks = judge.checks(found, SETTINGS)
    assert {check.id for check in checks} == set(judge.SUBJECT.ids)
    assert {(check.verdict, check.unproven) for check in checks} == {("skip", False)}


def test_where_nothing_is_possible_nothing_is_done_and_it_may_be_no_error() -> None:
    there = machine(open_modules=False)

    assert plan(there, SETTINGS)["apply"] is False
    assert [check.verdict for check in judge.checks(there, SETTINGS, proven=False)] == ["fail"]
    lenient = judge.checks(there, {**SETTINGS, "required": False})
    assert [(check.verdict, check.unproven) for check in lenient] == [("warn", False), *[("skip", True)] * 5]


def test_a_driver_that_is_not_loaded_is_known_from_the_disk() -> None:
    there = machine()
    there["gpu"]["module"] = {
        "loaded": "",
        "open": None,
        "on_disk": {"6.8.0-31-generic": {"version": "580.95.05", "license": "Dual MIT/GPL"}},
    }

    assert plan(there, SETTINGS)["mechanism"] == "DMA-BUF"


def test_a_machine_that_has_no_adapter_and_was_not_asked_is_skipped() -> None:
    assert judge.checks(None, SETTINGS) == judge.SUBJECT.all_skipped("there is no RDMA adapter")


@pytest.mark.parametrize(
    "other", [[], "x" * 100_000, -1, 10**400, {"a": 1}, True, "{{ 7 * 7 }}\x1b[2J", "\N{ARABIC-INDIC DIGIT ONE}"]
)
def test_a_machine_that_answers_anything_is_judged_by_every_name(other: Any) -> None:
    for part, key in [(name, key) for name in ("gpu", "rdma") for key in machine()[name]]:
        found = machine()
        found[part][key] = other

        checks = judge.checks(found, SETTINGS)

        assert {check.id for check in checks} == set(judge.SUBJECT.ids), (part, key)
    assert {check.verdict for check in judge.checks(other, SETTINGS)} == {"unknown"}


def test_a_geforce_on_the_bus_fails_or_warns_and_nothing_is_done_for_it() -> None:
    there = machine()
    there["gpu"]["gpus"] = [{"architecture": "ada", "product": "NVIDIA GeForce RTX 4090", "consumer": True}]

    assert plan(there, SETTINGS)["apply"] is False
    assert judge.checks(there, SETTINGS)[0].verdict == "fail"
    assert judge.checks(there, {**SETTINGS, "required": False})[0].verdict == "warn"
