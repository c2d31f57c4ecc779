"""An overlay network of the machines' own Docker between virtual nodes, whose kernels carry it: used, and measured."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import labs
import pytest
import vms

from provision.inventory import loader

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench import overlay

# Emulated machines take an hour for all of these.
pytestmark = pytest.mark.night

#: Networks by name, and whether IPsec keeps their packets from others.
NETWORKS = {"plain-net": ("10.77.0.0/24", False), "secret-net": ("10.78.0.0/24", True)}

#: MB that are sent over each, and how many answers are waited for: a minute at the speed of emulation.
MEGABYTES, ANSWERS = 32, 50

#: Has the kernel tell every second how many bytes it has sealed for which peer, while Docker has it do so: ip-xfrm(8).
WATCH = "while sleep 1; do ip -statistics xfrm state; done"


def site(inventory: Path) -> dict[str, Any]:
    """Return variables that let ada use the machines' own Docker in jobs."""
    declared = loader.load(inventory).hostvars["head"]
    users = [dict(user) for user in declared["cluster_users"]]
    for user in users:
        if user["name"] == "ada":
            user["groups"] = [*user.get("groups", ()), "dockerjobs"]
    return {
        "cluster_users": users,
        "cluster_groups": [*declared["cluster_groups"], {"name": "dockerjobs", "gid": 3100}],
        "job_docker": "socket",
        "job_docker_group": "dockerjobs",
        "job_docker_overlay_networks": [
            {"name": name, "subnet": subnet, "encrypted": encrypted} for name, (subnet, encrypted) in NETWORKS.items()
        ],
    }


@pytest.fixture(scope="module")
def overlay_lab() -> Iterator[vms.VmLab]:
    """A container controller and two virtual nodes in one swarm, or what ``CLUSTERCTL_OVERLAY_LAB`` names."""
    if name := os.environ.get("CLUSTERCTL_OVERLAY_LAB"):
        yield vms.VmLab(name, 2)
        return
    with vms.provisioned_node("t-over", nodes=2, site=site) as made:
        yield made


@pytest.mark.proves("docker_overlay")
def test_containers_of_two_nodes_meet_by_name_and_the_networks_cost_is_told(
    overlay_lab: vms.VmLab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = overlay_lab
    for node in ("node1", "node2"):
        for name in NETWORKS:
            # Docker makes the network on a node with its first container, and takes it down with its last. It waits
            # 20 s for that, which an emulated processor needs: so one stays on each while others come and go.
            attached = (
                f"docker rm -f stays-{name} >/dev/null 2>&1; docker run --detach --name stays-{name} --network {name} "
                "--entrypoint sleep $(docker inspect --format '{{.Config.Image}}' slurmd) infinity >/dev/null; "
                f"docker inspect --format '{{{{.State.Status}}}}' stays-{name}"
            )
            labs.until(lambda node=node, attached=attached: lab.root(node, attached, check=False) == "running")
    lab.root("node1", f"systemd-run --quiet --collect --unit=watch sh -c '{WATCH}'")

    told = overlay.beside_the_host(lab.inventory, megabytes=MEGABYTES, answers=ANSWERS, turns=1)

    sealed = lab.root("node1", "systemctl stop watch; journalctl --unit=watch --output=cat --no-pager")
    with capsys.disabled():
        print("".join(f"\n{name}: {value:.2f}" for name, value in told.items()))
    for name in NETWORKS:
        assert told[f"{name}: MB/s between two containers"] > 0
        assert told[f"{name}: an answer, microseconds"] > 0
    # What has gone over the encrypted one has gone sealed, in ESP: the bytes of one state, to the other node.
    assert "proto esp" in sealed
    assert max(int(count) for count in re.findall(r"(\d+)\(bytes\)", sealed)) > MEGABYTES << 20
