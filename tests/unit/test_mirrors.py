"""Which nodes pass images on: one on each switch, one of about 16 nodes without, or those that are named."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from provision.errors import ClusterctlError
from provision.inventory import declared_mirrors
from provision.inventory.declared_mirrors import mirrors_from


def nodes(count: int) -> list[str]:
    return [f"node{number}" for number in range(1, count + 1)]


def chosen(compute: list[str], **site: Any) -> dict[str, str]:
    return mirrors_from({name: site.get(name) for name in declared_mirrors.READ}, compute, "head")


def test_two_nodes_pull_from_the_controller_and_of_more_the_first_passes_images_on() -> None:
    assert chosen(nodes(2)) == {}
    assert chosen(nodes(4)) == dict.fromkeys(nodes(4), "node1")


@pytest.mark.parametrize(("count", "most"), [(16, 16), (17, 9), (200, 16), (1000, 16)])
def test_without_a_topology_each_mirror_has_about_sixteen_nodes(count: int, most: int) -> None:
    found = chosen(nodes(count))

    assert set(found) == set(nodes(count))
    assert all(found[mirror] == mirror for mirror in found.values())
    assert max(Counter(found.values()).values()) == most
    assert min(Counter(found.values()).values()) >= most - 1


CONF = """
SwitchName=leaf1 Nodes=node[1-3]
switchname=leaf2 LinkSpeed=1 nodes=node[4-6]
SwitchName=top Switches=leaf[1-2]
"""
YAML = """
- topology: all
  cluster_default: true
  tree:
    switches:
      - {switch: top, children: "leaf[1-2]"}
      - {switch: leaf1, nodes: "node[1-3]"}
      - {switch: leaf2, nodes: "node[4-6]"}
"""


@pytest.mark.parametrize("files", [{"topology.conf": CONF}, {"topology.yaml": YAML}])
def test_each_switch_of_the_topology_has_a_mirror_of_its_own(files: dict[str, str]) -> None:
    found = chosen(nodes(8), slurm_conf_files=files)

    assert found == dict.fromkeys(nodes(3), "node1") | dict.fromkeys(["node4", "node5", "node6"], "node4")


def test_nodes_on_small_switches_share_a_mirror() -> None:
    conf = "\n".join(f"SwitchName=s{number} Nodes=node[{number}-{number + 1}]" for number in range(1, 9, 2))

    assert chosen(nodes(8), slurm_conf_files={"topology.conf": conf}) == dict.fromkeys(nodes(8), "node1")


@pytest.mark.parametrize("text", ["SwitchName=a Nodes=node[3-1]", "Nodes=", "[", "SwitchName=x Nodes=other[1-9]"])
def test_a_topology_that_cannot_be_read_says_nothing(text: str) -> None:
    for name in ("topology.conf", "topology.yaml"):
        assert chosen(nodes(4), slurm_conf_files={name: text}) == dict.fromkeys(nodes(4), "node1")


def test_mirrors_that_are_named_are_those_and_no_others() -> None:
    assert chosen(nodes(2), container_images_mirrors=["node2"]) == {"node1": "node2", "node2": "node2"}
    assert chosen(nodes(20), container_images_mirrors=[]) == {}
    assert chosen(nodes(3), container_images_mirrors="node1, node2") == {
        "node1": "node1", "node2": "node2", "node3": "node1",
    }  # fmt: skip


def test_a_named_mirror_serves_its_own_switch_first() -> None:
    files = {"topology.conf": CONF}

    found = chosen(nodes(8), slurm_conf_files=files, container_images_mirrors=["node2", "node6"])

    assert [found[f"node{number}"] for number in range(1, 7)] == ["node2"] * 3 + ["node6"] * 3
    assert {found["node7"], found["node8"]} == {"node2", "node6"}


def test_the_controller_is_no_mirror_also_where_it_runs_jobs() -> None:
    assert chosen(["head", *nodes(3)]) == dict.fromkeys(nodes(3), "node1")


def test_a_sites_registry_has_no_mirrors() -> None:
    assert chosen(nodes(4), container_images_registry="harbor/x") == {}


@pytest.mark.parametrize(
    ("site", "says"),
    [
        ({"container_images_mirrors": ["node9"]}, "'node9', which is not in the group slurm_compute"),
        ({"container_images_mirrors": ["head"]}, "head, whose own registry"),
        ({"container_images_mirrors": 3}, "is 3: it must be a list"),
        ({"container_images_mirrors": ["node1", "node2", "node1"]}, "names node1 twice"),
        ({"container_images_mirrors": ["node1"], "container_images_registry": "harbor/x"}, "names a site's"),
    ],
)
def test_what_cannot_be_a_mirror_is_refused(site: dict[str, Any], says: str) -> None:
    with pytest.raises(ClusterctlError, match=says) as refused:
        chosen(nodes(4), **site)
    assert refused.value.entry[0] == "container_images_mirrors"


@pytest.mark.parametrize("size", [0, -5, "0", "-5", True, "much"])
def test_a_mirror_without_room_is_refused(size: Any) -> None:
    with pytest.raises(
        ClusterctlError, match=r"container_images_mirror_size is .*: it must be a whole number of GB"
    ) as no:
        chosen(nodes(4), container_images_mirror_size=size)
    assert no.value.said == ("container_images_mirror_size", "")


@pytest.mark.parametrize("size", [None, 1, "500", "{{ room }}"])
def test_a_mirror_with_room_is_one(size: Any) -> None:
    assert chosen(nodes(4), container_images_mirror_size=size) == dict.fromkeys(nodes(4), "node1")
