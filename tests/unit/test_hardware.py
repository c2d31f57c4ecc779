"""Declared against found hardware, and what becomes declared."""

from __future__ import annotations

import datetime
import stat
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from hypothesis import given
from hypothesis import strategies as st
from machines import hardware as machine_hardware

from provision.inventory import hardware_file
from provision.judge import hardware
from provision.model import discovered
from provision.slurm.gres import Site, site_of

#: What Slurm is told of a site that says nothing itself, and of one that has device files named.
SITE = site_of("auto", "24.11", "", simulated=False)
FILES = site_of("files", "24.11", "", simulated=False)

TODAY = datetime.date(2026, 11, 21)

A40 = {
    "cpus": 48,
    "sockets": 2,
    "cores_per_socket": 24,
    "threads_per_core": 1,
    "regular": True,
    "real_memory": 193000,
    "cgroup_version": 2,
    "gres": "gpu:a40:4",
    "gpu_count": 4,
    "gpu_source": "nvidia-smi",
    "gpu_addresses": ["0000:3b:00.0", "0000:5e:00.0", "0000:86:00.0", "0000:af:00.0"],
    "gpus_on_bus": 4,
    "bus_gpus": [
        {"address": f"0000:{bus}:00.0", "id": "10de:2235", "product": "NVIDIA A40"} for bus in ("3b", "5e", "86", "af")
    ],
    "bus_gres": "gpu:a40:4",
}
BARE = {"gres": "", "gpu_count": 0, "gpu_source": "", "gpu_addresses": []}
NEW = {
    **BARE,
    "bus_gpus": [{"address": "0000:3b:00.0", "id": "10de:ffff", "product": ""}],
    "bus_gres": "",
    "gpus_on_bus": 1,
}


def found(**changes: Any) -> dict[str, Any]:
    return {**A40, **changes}


def driven(products: list[str]) -> dict[str, Any]:
    """Return what a machine says of GPUs of these names, which a driver runs."""
    count = len(products)
    kinds = machine_hardware.gres(products)
    return {"gpu_products": products, "gres": kinds, "gpu_count": count, "gpus_on_bus": count}


def judged(declared: dict[str, Any], site: Site | None = None, **changes: Any) -> dict[str, dict[str, Any]]:
    checks = hardware.checks(found(**changes), declared, site=site)  # type: ignore[arg-type]
    return {check.id: check.as_dict() for check in checks}


def test_what_agrees_passes_and_what_is_undeclared_is_skipped_with_that_reason() -> None:
    checks = judged({"node_cpus": "48", "node_real_memory": 190000, "node_gres": "gpu:A40:4", "node_sockets": None})

    assert [name for name, check in checks.items() if check["verdict"] == "pass"] == [
        "hardware.cpus", "hardware.real_memory", "hardware.gres", "hardware.gpu_driver", "hardware.gpus_on_bus",
    ]  # fmt: skip
    assert checks["hardware.sockets"]["observed"] == "not declared"
    assert {check["verdict"] for check in checks.values()} == {"pass", "skip"}


@pytest.mark.parametrize(
    ("declared", "changes"),
    [({}, {}), ({}, BARE), ({}, NEW), ({}, {**BARE, "gpus_on_bus": 0}), ({"node_gres": "gpu:a40:4"}, {}),
     ({"node_gres": "gpu:a100_1g.5gb:28", "node_mig": "0-3:1g.5gb*7"}, {}), ({"node_gres": "no gres"}, {})],
)  # fmt: skip
def test_every_check_is_given_whatever_is_declared_and_there(declared: dict[str, Any], changes: dict[str, Any]) -> None:
    assert sorted(judged(declared, **changes)) == sorted(hardware.SUBJECT.ids)


@pytest.mark.parametrize("declared", ["gpu:a40:4", ["gpu:a40:4"], ["gpu:a40:2", "gpu:a40:2"], "gpu:a40:2,gpu:a40:2"])
def test_a_missing_gpu_fails_however_its_gres_is_written(declared: object) -> None:
    two = {"gres": "gpu:a40:2", "gpu_count": 2}

    assert judged({"node_gres": declared})["hardware.gres"]["verdict"] == "pass"
    check = judged({"node_gres": declared}, **two)["hardware.gres"]
    assert (check["verdict"], check["observed"]) == ("fail", "gpu:a40:2")
    assert "fewer GPUs than declared" in check["cause"]


@pytest.mark.parametrize("answer", ["gpu:a40:99999999999", "gpu:a40", "{{ x }}:1", "gpu:\x1b[2J:1"])
def test_gpus_that_a_machine_answers_and_nobody_can_read_are_unknown(answer: str) -> None:
    assert judged({"node_gres": "gpu:a40:4"}, gres=answer)["hardware.gres"]["verdict"] == "unknown"


@pytest.mark.parametrize("declared", [24, 47, 49, 96])
def test_another_number_of_cpus_fails_with_both_values(declared: int) -> None:
    check = judged({"node_cpus": declared})["hardware.cpus"]

    assert check["verdict"] == "fail"
    assert (check["observed"], check["expected"]) == ("48", str(declared))
    assert "node_cpus" in check["fix"]


def test_more_memory_than_there_is_fails_with_both_values() -> None:
    check = judged({"node_real_memory": 193001})["hardware.real_memory"]

    assert check["verdict"] == "fail"
    assert "193000" in check["observed"]
    assert "193001" in check["expected"]


@pytest.mark.parametrize(
    ("declared", "products", "verdict"),
    [
        ("gpu:A40:4", ["NVIDIA A40"] * 4, "pass"),
        ("gpu:4", ["NVIDIA A40"] * 4, "pass"),
        ("gpu:a40:2,gpu:a40:2", ["NVIDIA A40"] * 4, "pass"),
        ("gpu:a40:4", ["NVIDIA A40"] * 3, "fail"),
        ("gpu:a40:4", [], "fail"),
        ("gpu:a40:2", ["NVIDIA A40"] * 4, "warn"),
        ("", ["NVIDIA A40"] * 4, "warn"),
        ("", [], "pass"),
        ("gpu:h100:4", ["NVIDIA A40"] * 4, "fail"),
        (
            "gpu:a100:4",
            ["NVIDIA A100 80GB PCIe", "NVIDIA A100 80GB PCIe", "NVIDIA H100 PCIe", "NVIDIA H100 PCIe"],
            "fail",
        ),
        ("gpu:a100:1,gpu:h100:1", ["NVIDIA A100 80GB PCIe"] * 2, "fail"),
        ("gpu:rtx_a6000:2", ["NVIDIA RTX 6000 Ada Generation"] * 2, "fail"),
        # Slurm would take this one: A10 is a part of A100.
        ("gpu:a10:4", ["NVIDIA A100-SXM4-80GB"] * 4, "fail"),
        ("gpu:nvidia_a40:4", ["NVIDIA A40"] * 4, "pass"),
        ("gpu:h100:4", ["NVIDIA H100 80GB HBM3"] * 4, "pass"),
        ("gpu:RTX_4090:2", ["NVIDIA GeForce RTX 4090"] * 2, "pass"),
        ("gpu:a100:1,gpu:a100-sxm4-80gb:1", ["NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-40GB"], "pass"),
    ],
)
@pytest.mark.parametrize("site", [None, SITE])
def test_gpus_are_compared_by_number_and_product(
    declared: str, products: list[str], verdict: str, site: Site | None
) -> None:
    assert judged({"node_gres": declared}, site, **driven(products))["hardware.gres"]["verdict"] == verdict


@pytest.mark.parametrize(
    ("kind", "product", "spelling"),
    [
        ("rtx4090", "NVIDIA GeForce RTX 4090", "rtx_4090"),
        ("h100nvl", "NVIDIA H100 NVL", "h100_nvl"),
        ("titanrtx", "NVIDIA TITAN RTX", "titan_rtx"),
        ("rtxa6000", "NVIDIA RTX A6000", "rtx_a6000"),
        ("A100_SXM4_80GB", "NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("a100_80gb", "NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("a100l", "NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("v100l", "Tesla V100-SXM2-32GB", "tesla_v100-sxm2-32gb"),
        ("titanxpascal", "NVIDIA TITAN X (Pascal)", "titan_x"),
        ("big", "NVIDIA A40", "a40"),
    ],
)
def test_a_type_that_is_no_part_of_the_drivers_name_fails_with_one_that_is_but_for_device_files(
    kind: str, product: str, spelling: str
) -> None:
    declared = {"node_gres": f"gpu:{kind}:4"}

    check = judged(declared, SITE, **driven([product] * 4))["hardware.gres"]

    assert check["verdict"] == "fail"
    assert f"write node_gres=gpu:{spelling}:4; or keep the type: slurm_conf_gpu_detection=files" in check["fix"]
    assert (
        judged({"node_gres": f"gpu:{spelling}:4"}, SITE, **driven([product] * 4))["hardware.gres"]["verdict"] == "pass"
    )
    for files in (FILES, None):
        assert judged(declared, files, **driven([product] * 4))["hardware.gres"]["verdict"] == "pass"
    named = {**declared, "node_gres_files": "/dev/nvidia[0-3]"}
    assert judged(named, SITE, **driven([product] * 4))["hardware.gres"]["verdict"] == "pass"


def test_instances_of_mig_are_not_compared_with_whole_gpus() -> None:
    declared = {"node_gres": "gpu:a100_1g.5gb:28", "node_mig": "0-3:1g.5gb*7"}

    assert judged(declared)["hardware.gres"]["verdict"] == "skip"


def test_simulated_gpus_are_marked() -> None:
    checks = hardware.checks(found(), {"node_gres": "gpu:a40:4", "node_cpus": 48}, simulated=True)

    assert [check.id for check in checks if check.simulated] == [
        "hardware.gres", "hardware.gpu_driver", "hardware.gpus_on_bus",
    ]  # fmt: skip


def test_what_is_declared_is_not_recorded_again() -> None:
    everything = {name: value for name, value, _ in discovered.read(found(), {}).values}

    assert everything["node_cpus"] == 48
    assert everything["node_gres"] == "gpu:a40:4"
    assert discovered.read(found(), everything).values == ()
    assert [name for name, *_ in discovered.read(found(), {**everything, "node_gres": None}).values] == ["node_gres"]


def test_gpus_that_have_no_driver_yet_are_recorded_by_their_pci_ids() -> None:
    [(value, source)] = [(v, s) for name, v, s in discovered.read(found(**BARE), {}).values if name == "node_gres"]

    assert value == "gpu:a40:4"
    assert source == "PCI id 10de:2235 is NVIDIA A40; no driver runs yet"


def test_a_type_from_the_bus_is_the_type_that_the_driver_gives_it_later() -> None:
    before = {name: value for name, value, _ in discovered.read(found(**BARE), {}).values}

    assert judged(before)["hardware.gres"]["verdict"] == "pass"


def test_a_machine_without_gpus_is_recorded_as_such() -> None:
    values = {name: value for name, value, _ in discovered.read(found(**BARE, gpus_on_bus=0), {}).values}

    assert values["node_gres"] == ""


def test_gpus_on_the_bus_satisfy_the_inventory_until_the_driver_is_installed() -> None:
    checks = judged({"node_gres": "gpu:a40:4"}, **BARE)

    assert (checks["hardware.gres"]["verdict"], checks["hardware.gpu_driver"]["verdict"]) == ("pass", "warn")
    assert "by PCI id" in checks["hardware.gres"]["observed"]
    assert judged({"node_gres": "gpu:a40:8"}, **BARE)["hardware.gres"]["verdict"] == "fail"


def test_a_gpu_with_an_unknown_id_is_unknown_until_its_type_is_declared() -> None:
    checks = judged({}, **NEW)

    assert checks["hardware.gpu_id"]["verdict"] == "unknown"
    assert "0000:3b:00.0 (PCI id 10de:ffff)" in checks["hardware.gpu_id"]["observed"]
    assert "declare node_gres" in checks["hardware.gpu_id"]["fix"]
    assert "node_gres" not in {name for name, *_ in discovered.read(found(**NEW), {}).values}
    declared = judged({"node_gres": "gpu:new:1"}, SITE, **NEW)
    assert declared["hardware.gpu_id"]["verdict"] == "warn"
    assert declared["hardware.gres"]["verdict"] == "warn"


def test_a_gpu_that_fell_off_the_bus_is_named() -> None:
    three = {"gres": "gpu:a40:3", "gpu_count": 3, "gpu_addresses": A40["gpu_addresses"][:2] + A40["gpu_addresses"][3:]}

    check = judged({"node_gres": "gpu:a40:4"}, **three)["hardware.gpus_on_bus"]

    assert check["verdict"] == "fail"
    assert check["observed"] == "the bus has 4 GPUs, nvidia-smi lists 3: 0000:86:00.0 is missing"
    assert "hardware, not configuration" in check["cause"]


@given(st.integers(min_value=1, max_value=16_000_000))
def test_recorded_memory_is_positive_and_never_more_than_there_is(memory: int) -> None:
    recorded = discovered.recorded_memory(memory)

    assert 1 <= recorded <= memory
    assert recorded >= 0.97 * memory - 1


def test_like_machines_whose_kernels_differ_by_some_megabytes_are_recorded_alike() -> None:
    assert discovered.recorded_memory(515_755) == discovered.recorded_memory(515_790)


def as_ansible_reads(file: Path) -> Any:
    return DataLoader().load_from_file(str(file))


def write(directory: Path, host: str, **changes: Any) -> hardware_file.Plan:
    plan = hardware_file.plan(str(directory), host, discovered.read(found(**changes), {}).values, TODAY)
    if not plan.refusal:
        hardware_file.write(plan)
    return plan


def test_a_recorded_file_is_yaml_with_date_and_source_and_everybody_may_read_it(tmp_path: Path) -> None:
    plan = write(tmp_path / "host_vars", "gpu01.example.com")

    text = plan.path.read_text()
    assert plan.path == tmp_path / "host_vars/gpu01.example.com.yml"
    assert as_ansible_reads(plan.path)["node_gres"] == "gpu:a40:4"
    assert as_ansible_reads(plan.path)["node_real_memory"] == 189000
    assert "# 2026-11-21, nvidia-smi" in text
    assert stat.S_IMODE(plan.path.stat().st_mode) == 0o644
    assert [entry.name for entry in plan.path.parent.iterdir()] == [plan.path.name]


def test_a_file_of_ours_is_added_to_and_its_lines_stay(tmp_path: Path) -> None:
    write(tmp_path, "node1")
    file = tmp_path / "node1.yml"
    kept = file.read_text().replace("node_cpus: 48", "node_cpus: 40").replace("node_gres", "# node_gres")
    file.write_text(kept.rstrip("\n"))

    plan = hardware_file.plan(str(tmp_path), "node1", [("node_gres", "gpu:a40:4", "nvidia-smi")], TODAY)
    hardware_file.write(plan)

    assert file.read_text() == kept + 'node_gres: !unsafe "gpu:a40:4" # 2026-11-21, nvidia-smi\n'


@pytest.mark.parametrize("name", ["node1.yml", "node1.yaml", "node1.json", "node1"])
def test_a_file_of_theirs_is_left_alone_and_the_lines_to_add_are_told(tmp_path: Path, name: str) -> None:
    theirs = tmp_path / name
    theirs.write_text("{}")

    plan = write(tmp_path, "node1")

    assert "left alone" in plan.refusal
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    assert theirs.read_text() == "{}"
    assert "node_cpus=48" in hardware_file.refused("node1", plan).fix
    assert 'node_gres="gpu:a40:4"' in hardware_file.refused("node1", plan).fix


def test_a_directory_of_theirs_gets_a_file_that_ansible_reads_beside_the_others(tmp_path: Path) -> None:
    directory = tmp_path / "node1"
    directory.mkdir()
    (directory / "site.yml").write_text("---\nrack: 7\n")

    write(tmp_path, "node1")

    read = {Path(str(path)).name for path in DataLoader().find_vars_files(str(tmp_path), "node1")}
    assert read == {"site.yml", "clusterctl.yml"}


@pytest.mark.parametrize("host", ["../node1", "a/b", ".", "..", "", "-x", "x" * 300, "a\nb"])
def test_a_host_name_never_becomes_another_path(tmp_path: Path, host: str) -> None:
    plan = write(tmp_path, host)

    assert plan.refusal
    assert list(tmp_path.iterdir()) == []


def test_an_inventory_without_a_directory_is_told() -> None:
    assert "no directory" in hardware_file.plan("", "node1", [], TODAY).refusal


def test_a_value_from_a_machine_cannot_end_its_line_or_its_quotes(tmp_path: Path) -> None:
    values: list[tuple[str, int | str, str]] = [("node_gres", 'a"\\', "one\ntwo: 3")]

    hardware_file.write(hardware_file.plan(str(tmp_path), "node1", values, TODAY))

    assert as_ansible_reads(tmp_path / "node1.yml") == {"node_gres": 'a"\\'}


def test_rdma_ports_are_recorded_by_their_number_and_their_absence_is_not() -> None:
    told = ("node_rdma_ports", 8, "/sys/class/infiniband")

    assert told in discovered.read(found(rdma_ports=8), {}).values
    assert told not in discovered.read(found(rdma_ports=8), {"node_rdma_ports": 4}).values
    assert "node_rdma_ports" not in [name for name, *_ in discovered.read(found(rdma_ports=0), {}).values]
