"""Homes on NFS, between kernels that are machines' own: exported, mounted, missing, and silent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import labs
import pytest
import vms

# Emulated machines take an hour for all of these.
pytestmark = pytest.mark.night


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
    labs.until(lambda: vm_lab.root("node1", "timeout 60 ls /home && echo back", check=False).endswith("back"))


#: A server of the site's, which makes root nobody for all: a node, which is a client of itself.
SERVER = """set -e
DEBIAN_FRONTEND=noninteractive apt-get -qy --no-install-recommends install nfs-kernel-server >/dev/null
mkdir -p /srv/site /etc/exports.d
echo '/srv/site *(rw,sync,root_squash,no_subtree_check)' >/etc/exports.d/site.exports
systemctl restart nfs-server
exportfs -ra"""
GONE = "rm -f /etc/exports.d/site.exports; exportfs -ra; rm -rf /srv/site; deluser --quiet eve"


@pytest.fixture(name="site")
def a_site_of_its_own(vm_lab: vms.VmLab) -> Iterator[dict[str, Any]]:
    """Variables by which a node mounts what a server of the site's exports; eve has her home there, and no account."""
    vm_lab.root("node1", SERVER)
    own = f"{vm_lab.address('node1')}:/srv/site"
    there = {"path": "/site", "fstype": "nfs4", "source": own, "groups": ["slurm_compute"], "options": ["vers=4.2"]}
    host = json.loads(labs.run([labs.BIN / "ansible-inventory", "-i", vm_lab.inventory, "--host", "node1"]).stdout)
    mounts = host.get("cluster_mounts", [])
    eve = {"name": "eve", "uid": 2005, "home": "/site/eve"}
    yield {
        "cluster_mounts": [*mounts, there],
        "cluster_users": [*host["cluster_users"], eve],
        "cluster_homes_shared": False,
        "slurm_conf_parameters": {"AccountingStorageEnforce": None},
    }
    gone = {"cluster_mounts": [*mounts, {**there, "state": "absent"}]}
    done = labs.clusterctl(
        "provision", vm_lab.inventory, "base", "-e", json.dumps(gone), check=False, timeout=vms.LIMIT
    )
    vm_lab.root("node1", GONE, check=False)
    assert done.returncode == 0, done.stdout


def test_a_server_of_the_sites_makes_root_nobody_and_nobody_is_accused(vm_lab: vms.VmLab, site: dict[str, Any]) -> None:
    """Homes are made on the server then, and one at which root cannot look is not called missing."""
    given = ["-e", json.dumps(site), "--limit", "node1"]
    refused = labs.clusterctl("provision", vm_lab.inventory, "base", *given, check=False, timeout=vms.LIMIT)

    assert refused.returncode == 4
    told = refused.stdout + refused.stderr
    assert "make /site/eve: Permission denied" in told
    assert "install -d -m 700 -o 2005 -g 2005" in told

    vm_lab.root("node1", "install -d -m 700 -o 2005 -g 2005 /srv/site/eve")
    # A client remembers for a minute that something was not there.
    labs.until(lambda: "eve" in vm_lab.root("node1", "stat --format=%U /site/eve", check=False))
    labs.clusterctl("provision", vm_lab.inventory, "base", *given, timeout=vms.LIMIT)
    assert vm_lab.root("node1", "ls -A /srv/site").split() == ["eve"]

    # Also the directory of homes may be nobody's to look into.
    vm_lab.root("node1", "chown ada /srv/site; chmod 700 /srv/site")
    labs.until(lambda: "denied" in vm_lab.root("node1", "stat /site/eve 2>&1", check=False))
    done = labs.clusterctl("plan", vm_lab.inventory, "base", *given, "--json", timeout=vms.LIMIT)
    assert json.loads(done.stdout)["pending_checks"] == []
