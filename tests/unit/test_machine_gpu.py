"""What the module reads of NVIDIA's hardware and driver from made-up machines."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from machines import gpu, plugin, tree

ids = plugin("plugins/module_utils/machine_gpu_ids.py")
kernel = sys.modules["ansible.module_utils.machine_gpu_kernel"]
packages = sys.modules["ansible.module_utils.machine_gpu_packages"]
users = sys.modules["ansible.module_utils.machine_gpu_users"]

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
            "consumer": False,
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
    assert found["bus_gpus"][1] == {"address": "0000:02:00.0", "id": "10de:fffe", "product": "", "cpus": ""}
    assert found["bus_gres"] == ""


def test_a_gpu_that_was_given_to_a_virtual_machine_is_not_this_machines(tmp_path: Path) -> None:
    tree(tmp_path, {**device("0000:01:00.0", "10de", "2235", "0302"), **device("0000:02:00.0", "10de", "2235", "0302")})
    (tmp_path / PCI / "0000:02:00.0/driver").symlink_to("../../../../bus/pci/drivers/vfio-pci")

    assert gpu.bus(tmp_path)["bus_gres"] == "gpu:a40:1"
    found = gpu.collect(tmp_path, quiet)
    assert [one["address"] for one in found["gpus"]] == ["0000:01:00.0"]
    assert found["passed_through"] == ["0000:02:00.0"]


#: The configuration space of a T4's part in a virtual machine, as NVIDIA's k8s-device-plugin has it for its tests: the
#: status, which says that there are capabilities, the first of them, and those that follow. And that of a whole GPU.
VGPU = {0x06: "10", 0x34: "d0", 0x7C: "0500", 0xD0: "09681b5646"}
WHOLE = {0x06: "10", 0x34: "60", 0x60: "016803", 0x68: "0578", 0x78: "10b4", 0xB4: "09001401"}


def configuration(parts: dict[int, str]) -> bytes:
    space = bytearray(256)
    for place, words in parts.items():
        space[place : place + len(words) // 2] = bytes.fromhex(words)
    return bytes(space)


@pytest.mark.parametrize(
    ("space", "virtual"),
    [
        (configuration(VGPU), True),
        (configuration(WHOLE), False),
        (configuration({**WHOLE, 0xB4: "0960"}), False),  # a circle
        (configuration(WHOLE)[:64], False),  # as others than root read it
        (b"", False),
    ],
)
def test_a_part_of_another_machines_gpu_is_known_by_its_capability(tmp_path: Path, space: bytes, virtual: bool) -> None:
    tree(tmp_path, device("0000:01:00.0", "10de", "1eb8", "0302"))
    (tmp_path / PCI / "0000:01:00.0/config").write_bytes(space)

    assert gpu.collect(tmp_path, quiet)["virtual"] == ["0000:01:00.0"] * virtual


def test_nvidias_vgpu_manager_is_seen_but_not_from_within_a_container(tmp_path: Path) -> None:
    assert gpu.collect(tmp_path, quiet)["vgpu_manager"] is False
    (tmp_path / "sys/module/nvidia_vgpu_vfio").mkdir(parents=True)
    assert gpu.collect(tmp_path, quiet)["vgpu_manager"] is True
    assert gpu.collect(tmp_path, quiet, contained=True)["vgpu_manager"] is False


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


def test_a_bridge_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    tree(tmp_path, {**device("0000:1b:00.0", "10de", "2901", "0302"), **device("0000:05:00.0", "15b3", "1021", "0207")})

    assert gpu.collect(tmp_path, quiet)["unread_bridges"] == ["0000:05:00.0"]


@pytest.mark.parametrize(
    ("files", "answer"),
    [
        ({}, False),
        ({"sys/firmware/efi/fw_platform_size": "64"}, None),
        ({kernel._SECURE_BOOT: "\x06\x00\x00\x00\x01"}, True),
        ({kernel._SECURE_BOOT: "\x06\x00\x00\x00\x00"}, False),
    ],
)
def test_secure_boot_is_read_from_the_firmware_or_not_known(
    tmp_path: Path, files: dict[str, str], answer: bool | None
) -> None:
    assert kernel.secure_boot(tree(tmp_path, files)) is answer


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

    found = kernel.kernels(tmp_path)

    assert found["installed"] == ["6.8.0-64-generic", "6.8.0-101-generic"]
    assert found["newest"] == "6.8.0-101-generic"
    assert found["headers"] == {"6.8.0-64-generic": True, "6.8.0-101-generic": False, "6.5.0-1-generic": True}


DPKG = """\
nvidia-driver-cuda\t580.95.05-1\thold\tinstalled\tcudatools <cudatools@nvidia.com>
nvidia-kernel-dkms\t535.247.01-1~deb12u1\tinstall\thalf-configured\tDebian NVIDIA Maintainers <nvidia@debian.org>
nvidia-container-toolkit\t1.17.8-1\thold\tinstalled\tNVIDIA CORPORATION <cudatools@nvidia.com>
nvidia-fabricmanager\t580.95.05-1\thold\tinstalled\tcudatools <cudatools@nvidia.com>
nvidia-smi\t535.1-1\tdeinstall\tconfig-files\tDebian NVIDIA Maintainers <nvidia@debian.org>
"""


def test_packages_say_version_hold_maker_and_whether_they_are_complete() -> None:
    found = packages.packages(lambda command: (1, DPKG) if command[0] == "dpkg-query" else (None, ""))

    assert set(found) == {"nvidia-driver-cuda", "nvidia-kernel-dkms", "nvidia-fabricmanager"}
    assert found["nvidia-driver-cuda"] == {"version": "580.95.05-1", "held": True, "complete": True, "origin": "nvidia"}
    assert found["nvidia-kernel-dkms"]["origin"] == "distribution"
    assert not found["nvidia-kernel-dkms"]["complete"]


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

    found = kernel.modules(
        tmp_path, ["6.1.0-1", "6.1.0-2", "6.1.0-3"], lambda command: answers.get(command[2], (1, "modinfo: ERROR"))
    )

    assert found == {
        "6.1.0-1": {"version": "580.95.05", "license": "Dual MIT/GPL", "signer": "DKMS module signing key"},
        "6.1.0-2": None,
        "6.1.0-3": {},
    }


JOB = "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0"
CONTAINER = "ab" * 32


def process(
    pid: int, name: str, *, parent: int = 1, uid: int = 1000, cgroup: str = "0::/user.slice", **more: str
) -> dict[str, str]:
    status = f"Name:\t{name}\nPPid:\t{parent}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"
    files = {"comm": f"{name}\n", "status": status, "cgroup": f"{cgroup}\n", "cmdline": f"{name}\0--x", **more}
    return {f"proc/{pid}/{file}": text for file, text in files.items()}


def held(root: Path, *pids: int) -> list[dict[str, Any]]:
    """Return who holds a GPU, where these processes do."""
    for pid in pids:
        (root / f"proc/{pid}/fd").mkdir()
        (root / f"proc/{pid}/fd/3").symlink_to("/dev/nvidia0")
    found: list[dict[str, Any]] = users.holders(root)
    return found


def test_whoever_holds_a_gpu_open_is_named_but_for_the_drivers_own_services(tmp_path: Path) -> None:
    service = "0::/system.slice/nvidia-persistenced.service"
    tree(tmp_path, {**process(7, "python3"), **process(8, "nvidia-persiste", uid=120, cgroup=service)})
    asks = "0::/system.slice/clusterctl-node-metrics.service"
    tree(tmp_path, process(12, "python3", uid=0, cgroup=asks))
    tree(tmp_path, {**process(9, "bash"), **process(10, "nv-hostengine", uid=0), **process(11, "nvidia-smi", uid=0)})

    assert [(one["pid"], one["name"]) for one in held(tmp_path, 7, 8, 10, 11, 12)] == [(7, "python3")]


@pytest.mark.parametrize(
    ("files", "slurm"),
    [
        (process(7, "python3", cgroup=JOB), True),
        (process(7, "python3", cgroup=JOB.replace("slurmstepd", "node1_slurmstepd")), True),
        (process(7, "python3", cgroup="4:devices:/slurm/uid_1000/job_7/step_0"), True),
        ({**process(7, "python3", parent=6), **process(6, "slurmstepd", uid=0)}, True),
        (process(7, "slurmd", uid=0), True),
        (process(7, "python3"), False),
        # What a process says of itself does not make it Slurm's.
        (process(7, "slurmd"), False),
        (process(7, "slurmstepd", environ="SLURM_JOB_ID=7\0"), False),
        ({**process(7, "python3", parent=6), **process(6, "slurmstepd", uid=1000)}, False),
        (process(7, "nv-hostengine", cgroup="0::/user.slice/nvidia-persistenced.service"), False),
        (process(7, "python3", cgroup="0::/user.slice/job_7"), False),
        (process(7, "python3", parent=7), False),
    ],
)
def test_slurm_knows_a_process_by_its_control_group_or_its_ancestors(
    tmp_path: Path, files: dict[str, str], slurm: bool
) -> None:
    (one,) = held(tree(tmp_path, files), 7)

    assert one["slurm"] is slurm


def test_a_process_in_a_container_is_named_with_it(tmp_path: Path) -> None:
    (one,) = held(tree(tmp_path, process(7, "python3", cgroup=f"0::/system.slice/docker-{CONTAINER}.scope")), 7)

    assert one["container"] == CONTAINER[:12]


def test_a_command_is_untrusted_text(tmp_path: Path) -> None:
    (one,) = held(tree(tmp_path, process(7, "a\x1b[2J", cmdline="x\x1b]0;owned\x07\0{{ 7 * 7 }}\n" + "y" * 100_000)), 7)

    assert one["command"].isprintable()
    assert one["name"].isprintable()
    assert len(one["command"]) <= users.MAX_COMMAND


@pytest.mark.parametrize(
    ("number", "architecture"),
    [("1db2", "volta"), ("1c03", "pascal"), ("17f0", "maxwell"), ("102d", "kepler"), ("1e36", ""), ("2bb3", "")],
)
def test_an_id_that_is_not_in_the_table_is_older_than_turing_below_its_first(number: str, architecture: str) -> None:
    (found,) = sys.modules["ansible.module_utils.machine_gpu_bus"].gpus(
        [{"vendor": "10de", "device": number, "class": "0302", "driver": "", "board": "", "address": "", "id": ""}]
    )

    assert (found["product"], found["architecture"], found["consumer"]) == ("", architecture, None)


@pytest.mark.parametrize(("number", "consumer"), [("2684", True), ("17c2", True), ("1e04", True), ("20b0", False)])
def test_a_gpu_that_is_made_for_desktops_is_known_by_its_product(number: str, consumer: bool) -> None:
    (found,) = sys.modules["ansible.module_utils.machine_gpu_bus"].gpus(
        [{"vendor": "10de", "device": number, "class": "0300", "driver": "", "board": "", "address": "", "id": ""}]
    )

    assert found["consumer"] is consumer


LINE = "00000000:9D:00.0, NVIDIA H100 80GB HBM3, 580.95.05\n"
HOSTILE = [
    (0, ""), (0, "\x00\xff" * 1000), (0, "-1, -1, -1\n"), (0, "00000000:9D:00.0\x1b[2J, x, y\n"),
    (0, "{{ lookup('pipe', 'id') }}, %s, {0}\n"), (0, "00000000:FF:00.0, NVIDIA H100 80GB HBM3, 580.95.05\n" * 9),
    (0, "a,b,c\n" * 50_000), (0, LINE.upper() * 999), (139, LINE), (255, ""),
    (None, "did not answer in 30 s"), (None, "printed more than 1048576 bytes"),
]  # fmt: skip


@pytest.mark.parametrize("answer", HOSTILE, ids=range(len(HOSTILE)))
def test_whatever_nvidia_smi_answers_only_gpus_on_the_bus_are_proven(
    answer: tuple[int | None, str], tmp_path: Path
) -> None:
    import driver_machines

    from provision.judge import driver

    machine, case = driver_machines.machine("healthy_h100x8", tmp_path)
    machine["gpu"]["smi"] = gpu.smi(lambda command: answer)

    checks = {check.id: check for check in driver.checks(machine, driver_machines.wants(case))}

    assert set(checks) == set(driver.SUBJECT.ids)
    assert checks["nvidia_driver.gpus"].verdict == ("unknown" if answer[0] is None else "fail")
    shown = "".join(check.observed + check.expected + check.cause + check.fix for check in checks.values())
    assert all(ord(letter) >= 32 for letter in shown)
    assert len(shown) < 20_000


def test_an_initial_file_system_that_is_older_than_the_blacklist_still_loads_nouveau(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "etc/modprobe.d/ours.conf": "blacklist nouveau\n",
            "etc/modprobe.d/other.conf": "options kvm nested=1\n",
            "boot/initrd.img-6.1.0-1": "",
            "boot/initrd.img-6.1.0-2": "",
            "boot/initrd.img-6.1.0-3": "",
        },
    )
    times = {"initrd.img-6.1.0-1": 900, "initrd.img-6.1.0-2": 1100, "initrd.img-6.1.0-3": 900}
    for name, moment in times.items():
        os.utime(tmp_path / "boot" / name, (moment, moment))
    os.utime(tmp_path / "etc/modprobe.d/ours.conf", (1000, 1000))

    found = kernel.nouveau(tmp_path, [], ["6.1.0-1", "6.1.0-2", "6.1.0-3", "6.1.0-4"])

    assert found["blacklisted"]
    assert found["loads_early"] == ["6.1.0-1", "6.1.0-3"]


@pytest.mark.parametrize(("written", "outdated"), [(1009, False), (1011, True)])
def test_a_service_that_was_started_before_its_unit_was_changed_is_outdated(
    tmp_path: Path, written: int, outdated: bool
) -> None:
    tree(tmp_path, {"etc/systemd/system/nvidia-persistenced.service.d/ours.conf": "[Service]\n"})
    os.utime(tmp_path / "etc/systemd/system/nvidia-persistenced.service.d/ours.conf", (written, written))
    answer = (
        "Id=nvidia-persistenced.service\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\n"
        "ActiveEnterTimestampMonotonic=10000000\n"
    )

    found = gpu.services(tmp_path, lambda command: (0, answer), boot=1000)

    assert found == {"nvidia-persistenced": {"active": True, "enabled": True, "outdated": outdated}}


def test_this_computer_can_be_asked() -> None:
    found = gpu.collect("/")

    assert found["kernel"]["running"]
    assert isinstance(found["gpus"], list)
