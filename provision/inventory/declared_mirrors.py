"""Which compute nodes pass the cluster's images on, and which of them is near each node."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from provision import hostlist
from provision.errors import ClusterctlError
from provision.model.numbers import whole

#: Variables of the controller that it rests on.
READ = ("container_images_mirrors", "container_images_mirror_size", "container_images_registry", "slurm_conf_files")

#: Nodes of one mirror where no topology says who is near whom: at 16 it sends what the controller would, fifteen times.
NEAR = 16
#: With fewer nodes, a mirror saves the controller one transfer at most.
WORTH = 3


def mirrors_from(site: Mapping[str, Any], compute: Sequence[str], controller: str) -> dict[str, str]:
    """Return the mirror of each compute node that has one; a mirror is its own.

    ``site`` has the variables of ``READ``. Where no mirror is declared, the first node of each switch is one, and one
    of about 16 nodes that are on no switch of three nodes or more.

    Raises:
        ClusterctlError: what is declared is no list of compute nodes, a mirror has no room, or images come from a
            site's own registry.
    """
    nodes = [node for node in dict.fromkeys(compute) if node != controller]
    _require_size(site.get("container_images_mirror_size"))
    declared = _declared(site.get("container_images_mirrors"), nodes, controller)
    if site.get("container_images_registry"):
        if declared:
            raise _refused(
                "only the controller's own registry has mirrors, and container_images_registry names a site's",
                fix="take container_images_mirrors out, or container_images_registry",
            )
        return {}
    switches = [[node for node in switch if node in nodes] for switch in switches_from(site.get("slurm_conf_files"))]
    if declared is None:
        near = _near(nodes, switches)
        return {node: group[0] for group in near if len(group) >= WORTH for node in group}
    found: dict[str, str] = {}
    for group in [*switches, nodes] if declared else []:
        # On a switch with none of them, all of them.
        among = [node for node in declared if node in group] or declared
        alone = [node for node in group if node not in found and node not in declared]
        found |= {node: among[number % len(among)] for number, node in enumerate(alone)}
    return found | {node: node for node in declared}


def _near(nodes: Sequence[str], switches: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return groups of nodes that are near each other: those of a switch, and the rest in equal parts."""
    seen: set[str] = set()
    groups: list[list[str]] = []
    for switch in switches:
        group = [node for node in dict.fromkeys(switch) if node not in seen]
        if len(group) >= WORTH:
            groups.append(group)
            seen.update(group)
    rest = [node for node in nodes if node not in seen]
    parts = -(-len(rest) // NEAR)
    return groups + [rest[len(rest) * part // parts : len(rest) * (part + 1) // parts] for part in range(parts)]


def _declared(value: Any, nodes: Sequence[str], controller: str) -> list[str] | None:
    if value is None:
        return None
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise _refused(f"container_images_mirrors is {value!r}: it must be a list of compute nodes")
    names = [name.strip() for name in names if name.strip()]
    for number, name in enumerate(names):
        if name == controller:
            raise _refused(f"container_images_mirrors names {name}, whose own registry it is to relieve", number)
        if name not in nodes:
            raise _refused(
                f"container_images_mirrors names {name[:70]!r}, which is not in the group slurm_compute", number
            )
        if name in names[:number]:
            raise _refused(f"container_images_mirrors names {name} twice", number, fix="name each mirror once")
    return names


_NODES = (
    "name compute nodes, as container_images_mirrors=['node1', 'node17']; [] is none, and left out is one on each "
    "switch"
)


def _refused(problem: str, number: int | None = None, fix: str = _NODES) -> ClusterctlError:
    return ClusterctlError(problem, fix=fix, entry=("container_images_mirrors", number, ""))


def _require_size(value: Any) -> None:
    if value is None or (isinstance(value, str) and "{{" in value):
        return
    try:
        enough = whole(value) >= 1
    except ValueError:
        enough = False
    if not enough:
        raise ClusterctlError(
            f"container_images_mirror_size is {value!r}: it must be a whole number of GB, from 1 on",
            fix="leave it out for 30, or set container_images_mirrors=[] for no mirrors",
            said=("container_images_mirror_size", ""),
        )


def switches_from(files: Any) -> list[list[str]]:
    """Return the nodes of each switch or block that Slurm's topology declares, in its order.

    What cannot be read is left out: Slurm itself says so, when its configuration is tried.
    """
    if not isinstance(files, Mapping):
        return []
    lines = re.findall(r"(?im)^[ \t]*(?:Switch|Block)Name=.*?[ \t]Nodes=(\S+)", str(files.get("topology.conf") or ""))
    found = [*lines, *_in_yaml(str(files.get("topology.yaml") or ""))]
    return [nodes for text in found if (nodes := _expanded(text))]


def _in_yaml(text: str) -> list[str]:
    try:
        trees = yaml.safe_load(text)
    except yaml.YAMLError:
        return []
    found: list[str] = []

    def look(value: Any) -> None:
        if isinstance(value, Mapping):
            if ("switch" in value or "block" in value) and isinstance(value.get("nodes"), str):
                found.append(value["nodes"])
            value = list(value.values())
        if isinstance(value, list):
            for one in value:
                look(one)

    look(trees)
    return found


def _expanded(text: str) -> list[str]:
    try:
        return hostlist.expand(text)
    except ClusterctlError:
        return []
