"""Homes on NFS, between kernels that are machines' own: exported, mounted, missing, and silent."""

from __future__ import annotations

import json
from typing import Any

import labs
import vms


def checks(lab: vms.VmLab, *words: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the checks of a command by machine and id."""
    done = labs.clusterctl(*words[:1], lab.inventory, *words[1:], "--json", check=False, timeout=vms.LIMIT)
    told = json.loads(done.stdout)
    return {(check["host"], check["id"]): check for check in [*told["checks"], *told.get("pending_checks", ())]}


def test_homes_are_one_file_system_which_root_of_a_node_may_not_use(vm_lab: vms.VmLab) -> None:
    mounted = vm_lab.root("node1", "grep ' /home ' /proc/mounts").split()

    assert mounted[0:3] == ["head:/srv/home", "/home", "nfs4"]
    assert {"vers=4.2", "hard", "nconnect=8", "nosuid", "nodev"} <= set(mounted[3].split(","))
    vm_lab.root("node1", "runuser -u ada -- sh -c 'echo from node1 >/home/ada/t-nfs'")
    on_server = vm_lab.root("head", "cat /srv/home/ada/t-nfs; stat --format=%U /home/ada/t-nfs; rm /home/ada/t-nfs")
    assert on_server.splitlines() == ["from node1", "ada"]
    assert "Permission denied" in vm_lab.root("node1", "touch /home/ada/root 2>&1 || true")
    clients = vm_lab.root("head", "exportfs -s")
    assert "/srv/home  " in clients
    assert "*" not in clients


def test_a_file_system_that_is_not_mounted_is_mounted_again(vm_lab: vms.VmLab) -> None:
    vm_lab.root("node1", "umount --lazy /home")

    assert checks(vm_lab, "plan", "base")["node1", "shared_storage.mounts"]["observed"] == "/home is not mounted"
    labs.clusterctl("provision", vm_lab.inventory, "base", timeout=vms.LIMIT)

    assert "nfs4" in vm_lab.root("node1", "grep ' /home ' /proc/mounts")


def test_what_is_no_longer_exported_is_exported_again(vm_lab: vms.VmLab) -> None:
    vm_lab.root("head", "exportfs -ua")

    assert "is not exported to" in checks(vm_lab, "plan", "base")["head", "nfs_server.exports"]["observed"]
    labs.clusterctl("provision", vm_lab.inventory, "base", timeout=vms.LIMIT)

    assert "/srv/home" in vm_lab.root("head", "exportfs -s")


def test_a_server_that_is_silent_holds_nothing_up(vm_lab: vms.VmLab) -> None:
    """Who looks at what it serves waits in the kernel, and cannot be ended."""
    port = "INPUT -p tcp --dport 2049 -j DROP"
    vm_lab.root("head", f"iptables -I {port}")
    try:
        found = checks(vm_lab, "plan", "base")
    finally:
        vm_lab.root("head", f"iptables -D {port}")

    assert found["node1", "shared_storage.mounts"]["verdict"] == "unknown"
    assert "/home did not answer in" in found["node1", "shared_storage.mounts"]["observed"]
    labs.until(lambda: vm_lab.root("node1", "timeout 20 ls /home && echo back", check=False).endswith("back"))
