"""Machines of which people have told which CPUs are near their GPUs: what is discovered, rendered and judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from declare import cluster
from machines import gpu, hardware, tree

from provision.errors import ClusterctlError
from provision.judge import hardware as judge
from provision.model import discovered
from provision.slurm.gres import site_of
from provision.slurm.render import render

MACHINES: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "fixtures" / "gpu_topology.yml").read_text(encoding="utf-8")
)
PARTS = [name for name, one in MACHINES.items() if one["affinity"] == "numa"]
SITE = site_of("auto", "24.11", "", simulated=False)


def facts(root: Path, name: str) -> dict[str, Any]:
    """Return what our modules find in the kernel's files of a machine whose driver runs."""
    one = MACHINES[name]
    last = max(number for cpus in one["sockets"] for number in hardware.numbers(cpus))
    files = {"sys/devices/system/cpu/online": f"0-{last}\n", "proc/meminfo": "MemTotal: 1056000000 kB\n"}
    files |= {"proc/1/cgroup": "0::/init.scope\n", "proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"}
    for socket, cpus in enumerate(one["sockets"]):
        numbers = hardware.numbers(cpus)
        threads = 2 if "," in cpus else 1
        for place, cpu in enumerate(numbers):
            core = numbers[place % (len(numbers) // threads) :: len(numbers) // threads]
            where = f"sys/devices/system/cpu/cpu{cpu}/topology"
            files[f"{where}/physical_package_id"] = f"{socket}\n"
            files[f"{where}/core_cpus_list"] = ",".join(map(str, core)) + "\n"
            files[f"{where}/core_siblings_list"] = f"{cpus}\n"
    for number, cpus in enumerate(one["gpus"]):
        where = f"sys/bus/pci/devices/0000:{number + 16:02x}:00.0"
        told = {"vendor": "0x10de", "device": "0xfffe", "class": "0x030200", "local_cpulist": cpus}
        files |= {f"{where}/{key}": f"{value}\n" for key, value in told.items()}
    rows = "".join(f"{one['product']}, 00000000:{number + 16:02X}:00.0\n" for number in range(len(one["gpus"])))
    tree(root, files)
    return {**hardware.collect(root, lambda _: rows), **gpu.bus(root)}


def recorded(found: dict[str, Any], **declared: Any) -> dict[str, Any]:
    return {**declared, **{name: value for name, value, _ in discovered.read(found, declared).values}}


def gres_conf(declared: dict[str, Any], **site: Any) -> str:
    return render(cluster({"gpu1": declared}, **site))["gres.conf"].partition("\n")[2]


def judged(found: dict[str, Any], declared: dict[str, Any], **site: str) -> dict[str, Any]:
    wanted = site_of("auto", site.get("version", "24.11"), site.get("slurmd", ""), simulated=False)
    return {check.id: check for check in judge.checks(found, declared, site=wanted)}  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MACHINES)
def test_what_is_recorded_of_a_machine_renders_lines_that_slurm_takes_and_passes_preflight(
    tmp_path: Path, name: str
) -> None:
    found = facts(tmp_path, name)
    declared = recorded(found)

    text = gres_conf(declared)
    checks = judged(found, declared)

    assert declared.get("node_gpu_affinity", "") == MACHINES[name]["affinity"]
    if MACHINES[name]["affinity"]:
        assert "part of a socket's cores" in text.splitlines()[0]
        assert "AutoDetect=" not in text
        assert f"Name=gpu Type={declared['node_gres'].split(':')[1]} File=/dev/nvidia" in text
    else:
        assert text.endswith("NodeName=gpu1 AutoDetect=nvidia\n")
    assert {check.verdict for check in checks.values()} <= {"pass", "skip"}, checks


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_that_slurm_would_drain_fails_where_its_affinity_is_not_declared(tmp_path: Path, name: str) -> None:
    found = facts(tmp_path, name)
    declared = {**recorded(found), "node_gpu_affinity": None}

    check = judged(found, declared)["hardware.gpu_affinity"]

    assert check.verdict == ("fail" if name in PARTS else "pass")
    assert ("node_gpu_affinity=numa" in check.fix) is (name in PARTS)


@pytest.mark.parametrize("word", ["numa_node_as_socket", "l3cache_as_socket"])
@pytest.mark.parametrize("name", PARTS)
def test_where_slurms_sockets_are_others_it_detects_gpus_and_only_their_product_is_compared(
    tmp_path: Path, name: str, word: str
) -> None:
    found = facts(tmp_path, name)
    as_slurmd_prints = {"node_sockets": found["sockets"] * 4, "node_cores_per_socket": found["cores_per_socket"] // 4}
    declared = recorded(found, **as_slurmd_prints)

    checks = judged(found, declared, slurmd=f"other,{word}")

    assert "AutoDetect=nvidia" in gres_conf(declared, slurm_conf_parameters={"SlurmdParameters": word})
    assert {check.verdict for check in checks.values()} <= {"pass", "skip"}
    assert judged(found, declared)["hardware.sockets"].verdict == "fail"
    off = {**declared, "node_cores_per_socket": 3}
    assert judged(found, off, slurmd=word)["hardware.cores_per_socket"].verdict == "fail"


def test_from_25_11_on_a_gpu_near_several_of_slurms_sockets_has_a_device_file() -> None:
    declared = {"node_cpus": 128, "node_real_memory": 1_000_000, "node_gres": "gpu:h100:8"}
    parameters = {"slurm_version": "25.11", "slurm_conf_parameters": {"SlurmdParameters": "l3cache_as_socket"}}

    assert "File=/dev/nvidia[0-7]" in gres_conf(declared, **parameters)
    assert "AutoDetect=nvidia" in gres_conf(declared, **{**parameters, "slurm_version": "25.05"})


@pytest.mark.parametrize("how", ["nvidia", "nvml"])
def test_a_detection_by_hand_that_would_drain_the_node_is_refused_with_both_ways_out(how: str) -> None:
    declared = {"node_cpus": 128, "node_real_memory": 1_000_000, "node_gres": "gpu:h100:8", "node_gpu_affinity": "numa"}

    with pytest.raises(ClusterctlError) as refused:
        gres_conf(declared, slurm_conf_gpu_detection=how)

    assert "part of a socket's cores" in refused.value.problem
    assert "leave slurm_conf_gpu_detection out" in refused.value.fix
    assert "numa_node_as_socket" in refused.value.fix


def test_before_24_11_the_library_may_tell_of_parts_of_sockets() -> None:
    declared = {"node_cpus": 128, "node_real_memory": 1_000_000, "node_gres": "gpu:h100:8", "node_gpu_affinity": "numa"}

    assert "AutoDetect=nvml" in gres_conf(declared, slurm_conf_gpu_detection="nvml", slurm_version="24.05")


def test_a_machine_that_answers_nonsense_has_no_affinity() -> None:
    gpus = [{"address": "0000:01:00.0", "cpus": "0-7"}]
    for sockets, listed in (("0-7", gpus), (7, gpus), ([], gpus), (["0-15"], "x"), (["0-15"], ["x", 7])):
        assert discovered.gpus_off_sockets({"socket_cpus": sockets, "bus_gpus": listed}) == []
