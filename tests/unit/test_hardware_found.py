"""What the module reads from made-up machines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from machines import hardware, processors, tree


def smi(*products: str) -> Callable[[list[str]], str | None]:
    return lambda command: "".join(f"{product}\n" for product in products) if products else None


def nothing(command: list[str]) -> str | None:
    return None


@pytest.mark.parametrize(
    ("sockets", "cores", "threads"), [(1, 1, 1), (1, 2, 1), (2, 24, 1), (2, 56, 2), (4, 10, 2), (1, 64, 4)]
)
def test_the_topology_is_told_in_slurms_terms(tmp_path: Path, sockets: int, cores: int, threads: int) -> None:
    processors(tmp_path, sockets=sockets, cores=cores, threads=threads)

    found = hardware.topology(tmp_path)

    assert len(found.pop("socket_cpus")) == (1 if sockets == 1 else sockets + 1)
    assert found == {
        "cpus": sockets * cores * threads,
        "sockets": sockets,
        "cores_per_socket": cores,
        "threads_per_core": threads,
        "regular": True,
    }


def test_a_machine_with_some_threads_offline_still_adds_up(tmp_path: Path) -> None:
    processors(tmp_path, sockets=1, cores=4, threads=2, offline=frozenset({5}))

    found = hardware.topology(tmp_path)

    assert found["regular"] is False
    assert found["cpus"] == 7
    assert found["sockets"] * found["cores_per_socket"] * found["threads_per_core"] == 7


def test_without_sysfs_the_processors_are_counted(tmp_path: Path) -> None:
    tree(tmp_path, {"proc/cpuinfo": "processor\t: 0\nmodel name\t: x\n\nprocessor\t: 1\nmodel name\t: x\n"})

    found = hardware.topology(tmp_path)

    assert (found["cpus"], found["sockets"], found["cores_per_socket"]) == (2, 1, 2)


def test_memory_is_counted_as_slurmd_counts_it(tmp_path: Path) -> None:
    tree(tmp_path, {"proc/meminfo": "MemTotal:       24682064 kB\nMemFree:  1 kB\n"})

    assert hardware.memory(tmp_path) == 24103


V2_MOUNT = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"
V1_MOUNT = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"


@pytest.mark.parametrize(
    ("own", "mounts", "version"),
    [
        ("0::/init.scope\n", V2_MOUNT, 2),
        ("12:pids:/\n0::/init.scope\n", V1_MOUNT, 1),
        ("0::/\n", V1_MOUNT, 1),
        ("9:name=systemd:/\n", V2_MOUNT, 1),
        ("", "", 1),
    ],
)
def test_only_pure_cgroup_v2_counts_as_v2(tmp_path: Path, own: str, mounts: str, version: int) -> None:
    tree(tmp_path, {"proc/1/cgroup": own, "proc/mounts": mounts})

    assert hardware.cgroup_version(tmp_path) == version


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("NVIDIA A40", "a40"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA H100 80GB HBM3", "h100_80gb_hbm3"),
        ("Tesla V100-SXM2-16GB", "tesla_v100-sxm2-16gb"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx_6000_ada_generation"),
        ("NVIDIA TITAN X (Pascal)", "titan_x"),
        ("(odd)", "gpu"),
        ("SIM", "sim"),
    ],
)
def test_a_type_is_the_products_name_in_slurms_spelling(product: str, name: str) -> None:
    assert hardware.gres_type(product) == name
    assert name in product.lower().replace(" ", "_") or name == "gpu"


def test_gpus_are_counted_by_type(tmp_path: Path) -> None:
    found = hardware.collect(tmp_path, smi("NVIDIA A40", "NVIDIA L4", "NVIDIA A40"))

    assert (found["gres"], found["gpu_count"], found["gpu_source"]) == ("gpu:a40:2,gpu:l4:1", 3, "nvidia-smi")


def test_the_drivers_own_directory_serves_where_nvidia_smi_does_not(tmp_path: Path) -> None:
    model = "Model: \t\t NVIDIA A40\nIRQ:   \t\t 120\n"
    tree(tmp_path, {f"proc/driver/nvidia/gpus/0000:{bus}:00.0/information": model for bus in ("3b", "af")})

    found = hardware.collect(tmp_path, nothing)

    assert (found["gres"], found["gpu_source"]) == ("gpu:a40:2", "/proc/driver/nvidia/gpus")


def test_gpus_without_a_driver_are_seen_on_the_bus_and_not_called_none(tmp_path: Path) -> None:
    place = "sys/bus/pci/devices"
    tree(
        tmp_path,
        {
            f"{place}/0000:3b:00.0/vendor": "0x10de\n",
            f"{place}/0000:3b:00.0/class": "0x030200\n",
            f"{place}/0000:3b:00.1/vendor": "0x10de\n",  # the sound device of the same card
            f"{place}/0000:3b:00.1/class": "0x040300\n",
            f"{place}/0000:00:02.0/vendor": "0x8086\n",
            f"{place}/0000:00:02.0/class": "0x030000\n",
        },
    )

    found = hardware.collect(tmp_path, nothing)

    assert (found["gres"], found["gpus_on_bus"]) == ("", 1)


def test_addresses_are_written_as_the_kernel_writes_them(tmp_path: Path) -> None:
    found = hardware.collect(tmp_path, lambda command: "NVIDIA A40, 00000000:3B:00.0\nNVIDIA A40, 00000000:AF:00.0\n")

    assert found["gpu_addresses"] == ["0000:3b:00.0", "0000:af:00.0"]


def test_a_machine_without_any_gpu_has_none(tmp_path: Path) -> None:
    found = hardware.collect(tmp_path, nothing)

    assert (found["gres"], found["gpu_count"], found["gpus_on_bus"]) == ("", 0, 0)


def test_this_computer_can_be_described() -> None:
    found = hardware.collect("/", nothing)

    assert found["cpus"] == found["sockets"] * found["cores_per_socket"] * found["threads_per_core"] > 0
    assert found["real_memory"] > 100
