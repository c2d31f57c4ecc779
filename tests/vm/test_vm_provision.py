"""Provisioning and verifying virtual machines from end to end, with nothing left out for being a container."""

from __future__ import annotations

import json

import labs
import pytest
import vms

# Emulated machines take an hour for all of these.
pytestmark = pytest.mark.night


@pytest.mark.proves("provision")
def test_the_cluster_is_provisioned_and_proves_itself(vm_lab: vms.VmLab) -> None:
    done = labs.clusterctl("verify", vm_lab.inventory, "--json", check=False, timeout=vms.LIMIT)

    report = json.loads(done.stdout)
    wrong = [check for check in report["checks"] if check["verdict"] in ("fail", "unknown")]
    assert wrong == []
    assert (done.returncode, report["verdict"]) == (0, "pass")
    assert set(report["simulated"]) == {"gpu", "rdma"}
    assert {check["host"] for check in report["checks"] if check["id"] == "job.run"} == {"node1", "node2"}
    assert [check["verdict"] for check in report["checks"] if check["id"] == "ddp.parameters"] == ["pass"]


def test_a_second_provision_changes_nothing(vm_lab: vms.VmLab) -> None:
    boots = {machine: vm_lab.boot_id(machine) for machine in vm_lab.machines}
    recorded = {path: path.read_text() for path in (vm_lab.directory / "host_vars").rglob("*.yml")}

    done = labs.clusterctl("provision", vm_lab.inventory, "--json", timeout=vms.LIMIT)

    assert json.loads(done.stdout)["changed"] == 0
    assert {machine: vm_lab.boot_id(machine) for machine in vm_lab.machines} == boots
    assert all("gpu:sim:2" in text and "node_cgroup_version: 2" in text for text in recorded.values())
    assert len(recorded) == 2
