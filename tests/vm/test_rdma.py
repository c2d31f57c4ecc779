"""RDMA for real, over soft-RoCE: adapters that are up, transfers that the device counts, and each way to fail."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import labs
import pytest
import vms

# Emulated machines take an hour for all of these.
pytestmark = pytest.mark.night

PLAYBOOK = Path(__file__).parent / "rdma.yml"
Check = dict[str, Any]

#: Emulated machines may be busy; one that is gone is waited for no longer than this.
SETTINGS = {"rdma_userspace_begin_timeout": 60, "rdma_userspace_transfer_timeout": 60}


def verified(lab: vms.VmLab, **settings: Any) -> dict[str, dict[str, Check]]:
    """Run the RDMA part of verify and return its checks by machine and id."""
    command = [labs.BIN / "ansible-playbook", "-i", lab.inventory, PLAYBOOK, "-e", json.dumps(SETTINGS | settings)]
    done = labs.run(command, env={"ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"}, timeout=vms.LIMIT)
    document = json.loads(done.stdout[done.stdout.index("{") :])
    tasks = [task for play in document["plays"] for task in play["tasks"]]
    found: dict[str, dict[str, Check]] = {}
    for check in (one for task in tasks for host in task["hosts"].values() for one in host.get("cluster_checks", ())):
        found.setdefault(check["host"], {})[check["id"]] = check
    return found


def failing(checks: dict[str, Check]) -> list[str]:
    return sorted(name for name, check in checks.items() if check["verdict"] in ("fail", "unknown"))


def becomes(state: str) -> str:
    """Return a script that waits until the adapter is in a state."""
    return f"until rdma link show rxe0/1 | grep -q 'state {state}'; do sleep 1; done"


@contextmanager
def broken(lab: vms.VmLab, machine: str, breaking: str, repairing: str) -> Iterator[None]:
    """Break something on a machine, and repair it again."""
    try:
        lab.root(machine, breaking)
        yield
    finally:
        lab.root(machine, repairing)


@pytest.mark.proves("rdma_soft")
def test_adapters_are_up_and_data_moves_between_all_machines(vm_lab: vms.VmLab) -> None:
    checks = verified(vm_lab)

    assert sorted(checks) == ["node1", "node2"]
    for machine, found in checks.items():
        assert failing(found) == [], {name: found[name] for name in failing(found)}
        moved = {"transfer", "write_bandwidth", "read_bandwidth", "counters"}
        judged = {"ports", "state", "rate", "link_layer", "ibstat", "modules", "device_files", "memlock"}
        assert {f"rdma.{name}" for name in moved | judged} <= set(found)
        for tool in ("pingpong", "rping", "write", "read"):
            assert tool in found["rdma.transfer"]["observed"], machine
        # 200 messages of 64 KiB each way, and the device has counted them.
        assert int(found["rdma.counters"]["observed"].split()[1]) >= 26
        assert all(check["simulated"] for name, check in found.items() if name.startswith("rdma."))
        assert found["gpudirect.mechanism"]["verdict"] == "skip"


@pytest.mark.proves("rdma_userspace")
def test_ibstat_says_active_on_every_machine_and_jobs_may_lock_all_memory(vm_lab: vms.VmLab) -> None:
    for machine in ("node1", "node2"):
        told = vm_lab.root(machine, "ibstat")
        assert "CA 'rxe0'" in told
        assert "State: Active" in told
        assert "Physical state: LinkUp" in told
        limits = vm_lab.root(machine, "cat /proc/$(pidof -s slurmd)/limits")
        assert "Max locked memory         unlimited            unlimited" in limits


def test_what_is_loaded_at_boot_is_what_ibstat_needs(vm_lab: vms.VmLab) -> None:
    vm_lab.root("node1", "modprobe -r ib_umad && ! test -d /sys/class/infiniband_mad")

    vm_lab.root("node1", "systemctl restart systemd-modules-load")

    assert "State: Active" in vm_lab.root("node1", "ibstat")


def test_a_module_that_was_removed_leaves_no_adapter(vm_lab: vms.VmLab) -> None:
    gone = "rdma link delete rxe0; modprobe -r rdma_rxe; ! test -e /sys/class/infiniband/rxe0"
    with broken(vm_lab, "node2", gone, f"systemctl restart clusterctl-lab-rdma; {becomes('ACTIVE')}"):
        checks = verified(vm_lab)

    assert failing(checks["node2"]) == ["rdma.ports"]
    assert checks["node2"]["rdma.ports"]["observed"] == "no RDMA adapter"
    assert "driver is not loaded" in checks["node2"]["rdma.ports"]["cause"]
    assert failing(checks["node1"]) == []


def test_a_link_that_is_down_is_named_with_its_state(vm_lab: vms.VmLab) -> None:
    with broken(
        vm_lab, "node2", f"ip link set eth1 down; {becomes('DOWN')}", f"ip link set eth1 up; {becomes('ACTIVE')}"
    ):
        checks = verified(vm_lab)

    assert failing(checks["node2"]) == ["rdma.state"]
    assert checks["node2"]["rdma.state"]["observed"] == "rxe0:1 Down/Disabled"
    assert "disabled the port" in checks["node2"]["rdma.state"]["cause"]


def test_a_lowered_limit_is_the_cause_that_is_told(vm_lab: vms.VmLab) -> None:
    low = "echo 'nobody - memlock 8' >/etc/security/limits.d/zz-test.conf"
    with broken(vm_lab, "node2", low, "rm /etc/security/limits.d/zz-test.conf"):
        checks = verified(vm_lab)

    assert {"rdma.memlock", "rdma.transfer"} <= set(failing(checks["node2"]))
    assert checks["node2"]["rdma.memlock"]["observed"] == "a login 8 KiB"
    for machine in ("node1", "node2"):
        assert "memlock" in checks[machine]["rdma.transfer"]["cause"], machine


def test_a_firewall_between_machines_is_the_cause_that_is_told(vm_lab: vms.VmLab) -> None:
    rule = "INPUT -p tcp --dport 18514:18515 -j REJECT"
    with broken(vm_lab, "node1", f"iptables -I {rule}", f"iptables -D {rule}"):
        checks = verified(vm_lab, rdma_userspace_begin_timeout=20)

    assert "rdma.transfer" in failing(checks["node2"])
    assert "no connection to the other machine" in checks["node2"]["rdma.transfer"]["cause"]


def test_no_tool_is_left_behind(vm_lab: vms.VmLab) -> None:
    for machine in ("node1", "node2"):
        assert vm_lab.root(machine, "pgrep -l '^(ib_(write|read)_bw|ibv_rc_pingpong|rping)' || true") == ""


#: What jobs see of the adapters, as an ordinary user: in a container of each kind, and what NCCL would take.
LOOKS = {
    "srun --container-image=$I ls /dev/infiniband": "uverbs0",
    "srun docker run --rm --device /dev/infiniband $I ls /dev/infiniband": "uverbs0",
    "srun torchrun-slurm --dry-run train.py 2>&1": "rxe0:1 RoCE",
    "NCCL_IB_HCA=^rxe0 srun torchrun-slurm --dry-run train.py 2>&1": "rxe0:1 left out by NCCL_IB_HCA=^rxe0",
    "NCCL_IB_DISABLE=1 srun torchrun-slurm --dry-run train.py 2>&1": "NCCL_IB_DISABLE=1: no RDMA",
}


@pytest.mark.parametrize("words", LOOKS)
def test_jobs_have_the_adapters_and_are_told_which_of_them_nccl_takes(vm_lab: vms.VmLab, words: str) -> None:
    image = "export I=$(srun podman images --quiet --filter readonly=true | head -n 1)"

    told = labs.run(vm_lab.entering("head", f"{image}; {words}", user="ada"), timeout=vms.LIMIT).stdout

    assert LOOKS[words] in told
    if "dry-run" in words and "NCCL" not in words:
        # The GID that its kernel has made of the machine's IPv4 address.
        assert re.search(r"rxe0:1 RoCE [\d.]+ Gb/sec, GID \d+: RoCE v2, IPv4", told), told
