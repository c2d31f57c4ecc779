"""What the module reads of NVIDIA's hardware and driver from made-up machines."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import gpu, hardware, plugin, tree

ids = plugin("plugins/module_utils/machine_gpu_ids.py")

PCI = "sys/bus/pci/devices"


def device(address: str, vendor: str, number: str, kind: str, board: str = "0000") -> dict[str, str]:
    return {
        f"{PCI}/{address}/vendor": f"0x{vendor}\n",
        f"{PCI}/{address}/device": f"0x{number}\n",
        f"{PCI}/{address}/class": f"0x{kind}00\n",
        f"{PCI}/{address}/subsystem_device": f"0x{board}\n",
    }


def quiet(command: list[str]) -> tuple[int | None, str]:
    return None, ""


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("NVIDIA A40", "a40"),
        ("NVIDIA H100 80GB HBM3", "h100_80gb_hbm3"),
        ("Tesla V100-SXM2-16GB", "tesla_v100-sxm2-16gb"),
        ("Tesla T4", "tesla_t4"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb"),
    ],
)
def test_the_table_spells_products_as_the_driver_does(product: str, name: str) -> None:
    assert product in {entry[0] for entry in ids.GPUS.values()}
    assert hardware.gres([product]) == f"gpu:{name}:1"


def test_every_id_is_one_and_has_an_architecture_that_is_known() -> None:
    from provision.rdma.gpudirect import ARCHITECTURES

    for table in (ids.GPUS, ids.ADAPTERS):
        assert all(
            len(number) == 4 and int(number, 16) >= 0 and number.islower() | number.isdigit() for number in table
        )
    assert {architecture for _, architecture in ids.GPUS.values()} <= set(ARCHITECTURES)
    assert {number for number, _ in ids.BOARDS} | set(ids.GRACE) | set(ids.HIDDEN_NVSWITCH) <= set(ids.GPUS)


def test_gpus_switches_and_adapters_are_found_without_any_driver(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            **device("0000:07:00.0", "10de", "20b0", "0302"),
            **device("0000:c4:00.0", "10de", "1af1", "0680"),
            **device("0000:0c:00.0", "15b3", "101b", "0207"),
            **device("0000:0c:00.1", "15b3", "ffff", "0200"),
            **device("0000:07:00.1", "10de", "1aef", "0403"),
            **device("0000:00:02.0", "8086", "20b0", "0300"),
        },
    )

    found = gpu.collect(tmp_path, quiet)

    assert found["gpus"] == [
        {
            "address": "0000:07:00.0",
            "id": "10de:20b0",
            "driver": "",
            "product": "NVIDIA A100-SXM4-40GB",
            "architecture": "ampere",
            "grace": False,
        }
    ]
    assert [switch["id"] for switch in found["nvswitches"]] == ["10de:1af1"]
    assert [(adapter["id"], adapter["product"]) for adapter in found["rdma_adapters"]] == [
        ("15b3:101b", "ConnectX-6"),
        ("15b3:ffff", ""),
    ]


def test_the_board_decides_where_a_device_id_is_shared(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            **device("0000:01:00.0", "10de", "25b6", "0302", "14a9"),
            **device("0000:02:00.0", "10de", "25b6", "0302", "157e"),
        },
    )

    assert [seen["product"] for seen in gpu.collect(tmp_path, quiet)["gpus"]] == ["NVIDIA A16", "NVIDIA A2"]


def test_an_unknown_gpu_is_reported_and_spoils_the_type_of_all(tmp_path: Path) -> None:
    tree(tmp_path, {**device("0000:01:00.0", "10de", "2235", "0302"), **device("0000:02:00.0", "10de", "fffe", "0302")})

    found = gpu.bus(tmp_path)

    assert found["gpus_on_bus"] == 2
    assert found["bus_gpus"][1] == {"address": "0000:02:00.0", "id": "10de:fffe", "product": ""}
    assert found["bus_gres"] == ""


def test_a_gpu_that_was_given_to_a_virtual_machine_is_not_this_machines(tmp_path: Path) -> None:
    tree(tmp_path, {**device("0000:01:00.0", "10de", "2235", "0302"), **device("0000:02:00.0", "10de", "2235", "0302")})
    (tmp_path / PCI / "0000:02:00.0/driver").symlink_to("../../../../bus/pci/drivers/vfio-pci")

    assert gpu.bus(tmp_path)["bus_gres"] == "gpu:a40:1"


def test_a_container_does_not_own_the_bus_that_it_sees(tmp_path: Path) -> None:
    tree(tmp_path, device("0000:01:00.0", "10de", "2235", "0302"))

    assert gpu.bus(tmp_path, contained=True) == {"gpus_on_bus": 0, "bus_gpus": [], "bus_gres": ""}
    assert gpu.collect(tmp_path, quiet, contained=True)["gpus"] == []


@pytest.mark.parametrize(("number", "switches"), [("2901", 1), ("2bb5", 0)])
def test_the_hidden_nvswitches_of_blackwell_boards_are_found_by_their_bridges(
    tmp_path: Path, number: str, switches: int
) -> None:
    tree(
        tmp_path,
        {
            **device("0000:1b:00.0", "10de", number, "0302"),
            **device("0000:05:00.0", "15b3", "1021", "0207"),
            **device("0000:06:00.0", "15b3", "1021", "0207"),
            f"{PCI}/0000:05:00.0/vpd": "\x02SMDL=SW_MNG\x03",
            f"{PCI}/0000:06:00.0/vpd": "\x02ConnectX-7\x03",
        },
    )

    assert len(gpu.collect(tmp_path, quiet)["nvswitches"]) == switches


@pytest.mark.parametrize(
    ("files", "answer"),
    [
        ({}, False),
        ({"sys/firmware/efi/fw_platform_size": "64"}, None),
        ({gpu._SECURE_BOOT: "\x06\x00\x00\x00\x01"}, True),
        ({gpu._SECURE_BOOT: "\x06\x00\x00\x00\x00"}, False),
    ],
)
def test_secure_boot_is_read_from_the_firmware_or_not_known(
    tmp_path: Path, files: dict[str, str], answer: bool | None
) -> None:
    assert gpu.secure_boot(tree(tmp_path, files)) is answer


def test_kernels_are_ordered_by_number_and_know_their_headers(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "proc/sys/kernel/osrelease": "6.8.0-64-generic\n",
            "boot/vmlinuz-6.8.0-64-generic": "",
            "boot/vmlinuz-6.8.0-101-generic": "",
            "lib/modules/6.8.0-64-generic/build/Makefile": "",
            "lib/modules/6.8.0-101-generic/modules.dep": "",
            "lib/modules/6.5.0-1-generic/modules.dep": "",
            "usr/src/linux-headers-6.5.0-1-generic/Makefile": "",
        },
    )
    (tmp_path / "lib/modules/6.5.0-1-generic/build").symlink_to("/usr/src/linux-headers-6.5.0-1-generic")

    found = gpu.kernels(tmp_path)

    assert found["installed"] == ["6.8.0-64-generic", "6.8.0-101-generic"]
    assert found["newest"] == "6.8.0-101-generic"
    assert found["headers"] == {"6.8.0-64-generic": True, "6.8.0-101-generic": False, "6.5.0-1-generic": True}


DPKG = """\
nvidia-driver-cuda\t580.95.05-1\thold\tinstalled\tcudatools <cudatools@nvidia.com>
nvidia-kernel-dkms\t535.247.01-1~deb12u1\tinstall\thalf-configured\tDebian NVIDIA Maintainers <nvidia@debian.org>
nvidia-container-toolkit\t1.17.8-1\thold\tinstalled\tNVIDIA CORPORATION <cudatools@nvidia.com>
nvidia-fabricmanager-580\t580.95.05-1\thold\tinstalled\tcudatools <cudatools@nvidia.com>
nvidia-smi\t535.1-1\tdeinstall\tconfig-files\tDebian NVIDIA Maintainers <nvidia@debian.org>
"""


def test_packages_say_version_hold_maker_and_whether_they_are_complete(tmp_path: Path) -> None:
    found = gpu.packages(tmp_path, lambda command: (1, DPKG) if command[0] == "dpkg-query" else (None, ""))

    assert set(found) == {"nvidia-driver-cuda", "nvidia-kernel-dkms", "nvidia-fabricmanager-580"}
    assert found["nvidia-driver-cuda"] == {"version": "580.95.05-1", "held": True, "complete": True, "origin": "nvidia"}
    assert found["nvidia-kernel-dkms"]["origin"] == "distribution"
    assert not found["nvidia-kernel-dkms"]["complete"]


def test_a_version_lock_is_what_holds_an_rpm(tmp_path: Path) -> None:
    made = "\tinstall\tinstalled\tNVIDIA\n"
    rpm = f"nvidia-driver-cuda\t580.95.05-1.el9{made}kmod-nvidia-open-dkms\t580.95.05-1.el9{made}"
    tree(tmp_path, {"etc/dnf/plugins/versionlock.list": "nvidia-driver-cuda-3:580.95.05-1.el9.*\n"})

    found = gpu.packages(tmp_path, lambda command: (0, rpm) if command[0] == "rpm" else (None, ""))

    assert {name: info["held"] for name, info in found.items()} == {
        "nvidia-driver-cuda": True,
        "kmod-nvidia-open-dkms": False,
    }


def test_the_module_of_each_kernel_is_described_or_said_to_be_absent_or_unclear(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "lib/modules/6.1.0-1/updates/dkms/nvidia-current.ko": "",
            "lib/modules/6.1.0-2/kernel/nvidia-580-server/nvidia.ko.zst": "",
            "lib/modules/6.1.0-3/kernel/drivers/net/x.ko": "",
        },
    )
    answers = {
        "6.1.0-1": (
            0,
            "license:        Dual MIT/GPL\nversion:        580.95.05\nsigner:         DKMS module signing key\n",
        )
    }

    found = gpu.modules(
        tmp_path, ["6.1.0-1", "6.1.0-2", "6.1.0-3"], lambda command: answers.get(command[2], (1, "modinfo: ERROR"))
    )

    assert found == {
        "6.1.0-1": {"version": "580.95.05", "license": "Dual MIT/GPL", "signer": "DKMS module signing key"},
        "6.1.0-2": None,
        "6.1.0-3": {},
    }


def test_whoever_holds_a_gpu_open_is_named_but_for_the_drivers_own_services(tmp_path: Path) -> None:
    tree(tmp_path, {"proc/7/comm": "python3\n", "proc/8/comm": "nvidia-persiste\n", "proc/9/comm": "bash\n"})
    for pid, target in (("7", "/dev/nvidia0"), ("8", "/dev/nvidiactl"), ("9", "/dev/null")):
        (tmp_path / f"proc/{pid}/fd").mkdir()
        (tmp_path / f"proc/{pid}/fd/3").symlink_to(target)

    assert gpu.users(tmp_path) == ["python3 (pid 7)"]


def test_nvidia_smi_is_believed_and_its_complaint_is_kept() -> None:
    good = gpu.smi(lambda command: (0, "00000000:9D:00.0, NVIDIA H100 80GB HBM3, 580.95.05\n"))
    bad = gpu.smi(lambda command: (18, "Failed to initialize NVML: Driver/library version mismatch\n"))

    assert good == {
        "gpus": [{"address": "0000:9d:00.0", "product": "NVIDIA H100 80GB HBM3"}],
        "driver": "580.95.05",
        "error": "",
    }
    assert bad["error"] == "Failed to initialize NVML: Driver/library version mismatch"


def test_this_computer_can_be_asked() -> None:
    found = gpu.collect("/")

    assert found["kernel"]["running"]
    assert isinstance(found["gpus"], list)
