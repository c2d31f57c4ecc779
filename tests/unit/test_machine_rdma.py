"""What the module reads about RDMA from made-up machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from machines import tree
from rdma_machines import (
    INFINIBAND,
    ROCE,
    SOFT,
    capabilities,
    device,
    found,
    pci,
    pci_utils,
    peer_memory,
    rdma,
    told,
)

GID = "0000:0000:0000:0000:0000:ffff:0a63:0002"
SYMVERS = "0x1\tib_register_peer_memory_client\t/tmp/ib_core\tEXPORT_SYMBOL\n"


def test_a_machine_without_an_adapter_is_asked_no_more(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    told = found(tmp_path, run=lambda command: asked.append(command))  # type: ignore[func-returns-value]

    assert (told["devices"], told["adapters"], told["on_bus"], told["gpus"]) == ([], [], [], [])
    assert "acs" not in told
    assert asked == []


def test_an_infiniband_port_is_told_in_ibstats_words(tmp_path: Path) -> None:
    device(tmp_path, "mlx5_0", INFINIBAND, address="0000:1a:00.0")

    (adapter,) = found(tmp_path)["devices"]

    assert (adapter["name"], adapter["driver"], adapter["software"], adapter["address"]) == (
        *("mlx5_0", "mlx5_core", False),
        "0000:1a:00.0",
    )
    assert (adapter["node_type"], adapter["firmware"]) == ("CA", "28.39.1002")
    (port,) = adapter["ports"]
    assert (port["state"], port["physical_state"], port["rate"], port["width"]) == ("Active", "LinkUp", 400, "4X")
    assert (port["link_layer"], port["lid"], port["sm_lid"]) == ("InfiniBand", 17, 1)
    assert port["counters"] == {"link_downed": 0, "port_xmit_data": 4096}


@pytest.mark.parametrize(
    ("state", "word"),
    [("1: DOWN", "Down"), ("2: INIT", "Initializing"), ("3: ARMED", "Armed"), ("4: ACTIVE", "Active")],
)
def test_states_have_ibstats_names(tmp_path: Path, state: str, word: str) -> None:
    device(tmp_path, "mlx5_0", INFINIBAND, address="0000:1a:00.0", state=state)

    assert found(tmp_path)["devices"][0]["ports"][0]["state"] == word


def test_soft_roce_is_software_and_has_an_address(tmp_path: Path) -> None:
    device(tmp_path, "rxe0", SOFT, gid=GID)

    machine = found(tmp_path)

    assert machine["adapters"] == ["rxe0"]
    (adapter,) = machine["devices"]
    assert (adapter["driver"], adapter["software"], adapter["address"]) == ("rdma_rxe", True, "")
    (port,) = adapter["ports"]
    assert port["gids"] == [{"index": 1, "gid": GID, "type": "RoCE v2", "netdev": "eth1"}]
    assert (port["netdev"], port["counters"]["sent_pkts"]) == ("eth1", 17)


def test_software_iwarp_is_software_too(tmp_path: Path) -> None:
    device(tmp_path, "siw0", SOFT, node_type="4: RNIC")

    assert found(tmp_path)["devices"][0]["driver"] == "siw"


def test_an_adapter_without_a_driver_is_found_on_the_bus(tmp_path: Path) -> None:
    pci(tmp_path, "0000:1a:00.0", vendor="0x15b3", kind="0x020000")
    pci(tmp_path, "0000:1b:00.0", vendor="0x8086", kind="0x020000")
    pci(tmp_path, "0000:1c:00.0", vendor="0x8086", kind="0x020800")

    machine = found(tmp_path)

    assert machine["adapters"] == machine["on_bus"] == ["0000:1a:00.0", "0000:1c:00.0"]
    assert machine["devices"] == []


def test_the_kernel_says_whether_it_offers_peer_memory(tmp_path: Path) -> None:
    device(tmp_path, "mlx5_0", INFINIBAND, address="0000:1a:00.0")
    assert found(tmp_path)["peer_memory"] is None

    tree(tmp_path, {"proc/kallsyms": "0000000000000000 t ib_register_client\t[ib_core]\n"})
    assert found(tmp_path)["peer_memory"] is False

    line = "0000000000000000 t __pfx_ib_register_peer_memory_client\t[ib_core]\n"
    tree(tmp_path, {"proc/kallsyms": line})
    assert found(tmp_path)["peer_memory"] is False

    tree(tmp_path, {"proc/kallsyms": line + "0000000000000000 T ib_register_peer_memory_client\t[ib_core]\n"})
    assert found(tmp_path)["peer_memory"] is True


@pytest.mark.parametrize(
    "place",
    ["usr/src/ofa_kernel/default", "usr/src/ofa_kernel/6.8.0-31-generic", "var/lib/dkms/mlnx-ofed-kernel/24.10/build"],
)
def test_what_drivers_are_built_against_is_found_where_an_ofed_keeps_it(tmp_path: Path, place: str) -> None:
    device(tmp_path, "mlx5_0", INFINIBAND, address="0000:1a:00.0")
    tree(tmp_path, {f"{place}/Module.symvers": SYMVERS, "proc/sys/kernel/osrelease": "6.8.0-31-generic\n"})

    machine = found(tmp_path)

    assert machine["peer_memory_trees"] == [f"/{place}"]
    assert machine["peer_memory_changed"] > 0


@pytest.mark.parametrize(
    ("printed", "kind", "version"),
    [
        ("MLNX_OFED_LINUX-5.8-1.1.2.1:\n", "MLNX_OFED", "5.8-1.1.2.1"),
        ("OFED-internal-24.10-2.1.8:\n", "DOCA-OFED", "24.10-2.1.8"),
        ("", "", ""),
        ("ofed_info: command not found", "", ""),
    ],
)
def test_an_ofed_says_what_it_is(printed: str, kind: str, version: str) -> None:
    assert peer_memory.ofed(told(ofed_info=printed)) == {"kind": kind, "version": version}


def test_conflicts_are_found_as_modules_services_packages_and_files(tmp_path: Path) -> None:
    device(tmp_path, "mlx5_0", INFINIBAND, address="0000:1a:00.0")
    tree(
        tmp_path,
        {
            "sys/module/nv_peer_mem/version": "1.3-0\n",
            "etc/systemd/system/multi-user.target.wants/munge.service": "",
            "etc/modules-load.d/nvidia.conf": "# nv_peer_mem\nnvidia-peermem\n",
            "etc/modprobe.d/nvidia.conf": "options nvidia-peermem peerdirect_support=1\n",
        },
    )

    # As packages leave them when they go.
    (tmp_path / "etc/systemd/system/multi-user.target.wants/nv_peer_mem.service").symlink_to("/nowhere")
    (tmp_path / "etc/rc3.d").mkdir()
    (tmp_path / "etc/rc3.d/S02nv_peer_mem").symlink_to("/nowhere")

    machine = found(
        tmp_path, run=told(dpkg_query="nvidia-peer-memory-dkms 1.3-0 installed\nnvidia-peer-memory 1 not-installed\n")
    )

    assert machine["modules"]["nv_peer_mem"]["loaded"]
    assert machine["modules"]["nv_peer_mem"]["version"] == "1.3-0"
    assert not machine["modules"]["nvidia_peermem"]["loaded"]
    assert machine["old_service"] == [
        "/etc/systemd/system/multi-user.target.wants/nv_peer_mem.service",
        "/etc/rc3.d/S02nv_peer_mem",
    ]
    assert machine["packages"] == {"nvidia-peer-memory-dkms": "1.3-0"}
    assert machine["configured"] == {
        "nvidia_peermem": {
            "/etc/modules-load.d/nvidia.conf": "nvidia-peermem",
            "/etc/modprobe.d/nvidia.conf": "options nvidia-peermem peerdirect_support=1",
        }
    }


@pytest.mark.parametrize("slurmd", ["slurmd", "slurmd-wlm"])  # as it is started, and after a reconfiguration
def test_limits_are_those_of_the_daemons_whose_children_are_jobs_and_containers(tmp_path: Path, slurmd: str) -> None:
    device(tmp_path, "mlx5_0", INFINIBAND, address="0000:1a:00.0")
    limits = "Limit             Soft Limit  Hard Limit  Units\nMax locked memory {}  {}  bytes\n"
    tree(
        tmp_path,
        {
            "proc/71/comm": f"{slurmd}\n",
            "proc/71/limits": limits.format("unlimited", "unlimited"),
            "proc/72/comm": "containerd\n",
            "proc/72/limits": limits.format("8388608", "8388608"),
            "proc/73/comm": "bash\n",
            "proc/73/limits": limits.format("65536", "65536"),
        },
    )
    assert found(tmp_path)["memlock"] == {"slurmd": "unlimited", "containers": "8388608"}

    tree(tmp_path, {"etc/docker/daemon.json": '{"default-ulimits": {"memlock": {"Hard": -1, "Soft": -1}}}'})
    assert found(tmp_path)["memlock"] == {"slurmd": "unlimited", "containers": "unlimited"}


def test_modules_that_are_missing_are_named_loaded_or_built_in(tmp_path: Path) -> None:
    assert found(tmp_path)["unloaded"] == ["ib_umad", "ib_uverbs", "rdma_ucm"]

    tree(tmp_path, {"sys/class/infiniband_mad/abi_version": "5\n", "sys/class/misc/rdma_cm/abi_version": "4\n"})

    assert found(tmp_path)["unloaded"] == ["ib_uverbs"]


def test_bridges_between_gpus_and_adapters_are_asked_about_access_control(tmp_path: Path) -> None:
    pci(tmp_path, "0000:00:01.0", config=capabilities(None))
    pci(tmp_path, "0000:00:01.0", "0000:01:00.0", config=capabilities(0x1D))
    pci(tmp_path, "0000:00:01.0", "0000:02:00.0", config=capabilities(0))
    pci(tmp_path, "0000:00:02.0", config=capabilities(0x1D))
    pci(tmp_path, "0000:00:01.0", "0000:01:00.0", "0000:1a:00.0", vendor="0x15b3", kind="0x020700")
    pci(tmp_path, "0000:00:01.0", "0000:02:00.0", "0000:1b:00.0", vendor="0x10de", kind="0x030200")

    told = found(tmp_path)["acs"]

    assert told["unread"] == []
    assert told["bridges"] == [
        {"bridge": "0000:01:00.0", "control": 0x1D, "set": ["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"]},
        {"bridge": "0000:02:00.0", "control": 0, "set": []},
    ]


def test_a_bridge_that_does_not_let_itself_be_read_is_named(tmp_path: Path) -> None:
    pci(tmp_path, "0000:00:01.0", config=b"\0" * 64)
    pci(tmp_path, "0000:00:01.0", "0000:1a:00.0", vendor="0x15b3", kind="0x020700")

    assert found(tmp_path)["acs"] == {"bridges": [], "unread": ["0000:00:01.0"]}


@pytest.mark.parametrize("config", [b"", b"\0" * 300, b"\xff" * 4096, capabilities(None)])
def test_a_broken_configuration_space_has_no_access_control(config: bytes) -> None:
    assert pci_utils.acs_control(config) is None


def test_the_iommu_and_virtual_machines_are_told(tmp_path: Path) -> None:
    device(tmp_path, "rxe0", SOFT)
    tree(
        tmp_path,
        {
            "sys/kernel/iommu_groups/0/type": "DMA-FQ\n",
            "sys/kernel/iommu_groups/1/type": "identity\n",
            "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/sda1 intel_iommu=on iommu=pt quiet\n",
            "proc/cpuinfo": "flags\t\t: fpu vme hypervisor lm\n",
        },
    )

    machine = found(tmp_path)

    assert machine["iommu"] == {
        "groups": 2,
        "types": ["DMA-FQ", "identity"],
        "arguments": ["intel_iommu=on", "iommu=pt"],
    }
    assert machine["virtual"]


def test_a_container_does_not_have_its_computers_adapters_unless_it_was_given_them(tmp_path: Path) -> None:
    device(tmp_path, "mlx5_0", INFINIBAND, address="0000:1a:00.0")

    assert found(tmp_path, contained=True)["adapters"] == []
    assert (rdma.port_count(tmp_path, contained=True), rdma.port_count(tmp_path)) == (0, 1)

    tree(tmp_path, {"dev/infiniband/uverbs0": ""})

    assert found(tmp_path, contained=True)["adapters"] == ["0000:1a:00.0"]


def test_everything_is_plain_data(tmp_path: Path) -> None:
    device(tmp_path, "mlx5_0", ROCE, address="0000:1a:00.0", gid=GID)

    assert json.loads(json.dumps(found(tmp_path))) == found(tmp_path)


def test_this_machine_can_be_asked() -> None:
    rdma.collect()
