"""The way of a site's administrator, by what the documentation says, on machines as vendors and a site leave them.

The tests follow each other: each finds the lab as those before it have left it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import labs
import pytest
import snapshots

from provision.inventory import loader

#: The first provision builds all images from nothing, by way of the proxy.
pytestmark = pytest.mark.timeout(3600)
NAME = "t-site"
#: The role's own, which asks for it on each machine.
PASSWORD = "site"
MACHINES = ("head", "node1", "node2")
MONITOR = "docker inspect --format '{{.Id}} {{.State.StartedAt}} {{.State.Running}}' site-monitor"


@pytest.fixture(scope="module")
def site() -> Iterator[labs.Lab]:
    """The lab as ``lab up`` leaves it; what the site's firewall lets in is the first test's to say."""
    with labs.removed(NAME, keep=labs.KEEP):
        labs.clusterctl("lab", "up", NAME, "--site")
        lab = labs.Lab(NAME, 2, port="2222")
        lab.declare({"cluster_time_factor": 5})
        yield lab


def clusterctl(lab: labs.Lab, command: str, *words: str) -> tuple[int, dict[str, Any]]:
    """Run a command as somebody who is asked for sudo's password; return its exit code and document."""
    done = labs.clusterctl(command, lab.inventory, "-K", "--json", *words, check=False, input=f"{PASSWORD}\n")
    assert done.stdout.strip(), done.stderr
    return done.returncode, json.loads(done.stdout)


def failed(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the checks that fail or are unknown, by machine and id."""
    return {(one["host"], one["id"]): one for one in document["checks"] if one["verdict"] in ("fail", "unknown")}


def opened(lab: labs.Lab, refused: dict[tuple[str, str], dict[str, Any]]) -> None:
    """Do on each machine what the fix of a refusal says: for now, and for the next boot."""
    for machine, name in refused:
        fix = refused[machine, name]["fix"]
        told = re.fullmatch(
            r"on the machine: (nft insert rule (\S+ \S+ \S+) (.*)), and the same in /etc/nftables\.conf", fix
        )
        assert told, fix
        lab.root(machine, told[1])
        lab.root(machine, f"echo 'insert rule {told[2]} {told[3]}' >>/etc/nftables.conf")


def test_a_firewall_that_lets_ssh_in_alone_is_named_with_the_rule_that_opens_it(site: labs.Lab) -> None:
    code, document = clusterctl(site, "preflight")
    refused = failed(document)

    assert code == 3
    assert set(refused) == {(machine, "preflight.firewall") for machine in MACHINES}, refused
    opened(site, refused)
    code, document = clusterctl(site, "preflight")
    assert (code, failed(document)) == (0, {})


def test_a_proxy_that_asks_for_a_password_is_named(site: labs.Lab) -> None:
    proxy = loader.load(site.inventory).hostvars["head"]["cluster_proxy"]
    # The other one of the gate.
    asking = {**proxy, "http": proxy["http"].replace(":3128", ":3129")}

    code, document = clusterctl(site, "preflight", "-e", json.dumps({"cluster_proxy": asking}))

    refused = failed(document)
    assert code == 3
    assert set(refused) == {(machine, "preflight.proxy") for machine in MACHINES}, refused
    assert all("asks for a password" in one["observed"] and "ansible-vault" in one["fix"] for one in refused.values())


def test_a_full_disk_is_named_where_the_sites_engine_keeps_images(site: labs.Lab) -> None:
    site.root("node1", "mount -t tmpfs -o size=50m full /srv/docker")
    try:
        _, document = clusterctl(site, "preflight")
    finally:
        site.root("node1", "umount /srv/docker")

    refused = failed(document)
    assert set(refused) == {("node1", "preflight.disk_space")}, refused
    assert "/srv/docker" in refused["node1", "preflight.disk_space"]["observed"]


@pytest.mark.proves("provision", machine="node1")
def test_a_site_is_provisioned_and_proven(site: labs.Lab) -> None:
    monitor = site.root("node1", MONITOR)
    code, document = clusterctl(site, "provision")
    assert (code, failed(document)) == (0, {}), document
    code, document = clusterctl(site, "verify")

    assert (code, document["verdict"], failed(document)) == (0, "pass", {})
    assert site.root("node1", MONITOR) == monitor
    assert json.loads(site.root("node1", "cat /etc/docker/daemon.json"))["data-root"] == "/srv/docker"
    assert site.root("node1", "docker info --format '{{.DockerRootDir}}'") == "/srv/docker"


def test_a_second_provision_changes_nothing(site: labs.Lab) -> None:
    before = {machine: (snapshots.files(site, machine), snapshots.services(site, machine)) for machine in MACHINES}

    code, document = clusterctl(site, "provision", "--full")

    assert (code, document["changed"]) == (0, 0), document["hosts"]
    assert {
        machine: (snapshots.files(site, machine), snapshots.services(site, machine)) for machine in MACHINES
    } == before


@pytest.mark.parametrize("machine", ["node2", "node1"])
def test_a_boot_changes_nothing(site: labs.Lab, machine: str) -> None:
    hosts = site.root(machine, "cat /etc/hosts")

    since = site.registered(machine)
    site.restart(machine)
    # Until its slurmd has registered again, slurmctld takes the node for well, and plan would start what starts itself.
    labs.until(
        lambda: site.registered(machine) > since and site.node_is_well(machine), lambda: site.root("head", "sinfo -R")
    )

    assert site.root(machine, "cat /etc/hosts") == hosts
    code, document = clusterctl(site, "plan", "--detailed-exitcode")
    assert (code, document["pending_checks"]) == (0, [])
    if machine == "node1":
        labs.until(lambda: site.root("node1", MONITOR).endswith("true"), lambda: site.root("node1", "docker ps -a"))


def test_a_firewall_that_comes_up_later_is_named_with_the_rule(site: labs.Lab) -> None:
    chain = (
        "table inet late { chain input { type filter hook input priority 10; policy drop; tcp dport 2222 accept; }; }"
    )
    site.root("node2", f"nft '{chain}'")
    try:
        code, document = clusterctl(site, "verify", "--limit", "node2")
    finally:
        site.root("node2", "nft delete table inet late")

    named = failed(document)["node2", "base_system.firewall"]
    assert code == 8
    assert named["fix"].startswith("on the machine: nft insert rule inet late input ip saddr")
