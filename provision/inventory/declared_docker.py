"""What docker is in jobs, who may use the machines' own, and the overlay networks between its containers."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Any

from provision.errors import ClusterctlError
from provision.model.users import Users

#: Variables of the site that it rests on.
READ = ("job_docker", "job_docker_group", "job_docker_overlay_networks")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
#: Docker's own networks, and Swarm's.
_TAKEN = frozenset({"bridge", "default", "docker_gwbridge", "host", "ingress", "none"})
_KEYS = ("name", "subnet", "encrypted")
_RISK = "who is in it is root on the compute nodes, and what they start is outside Slurm's control groups"


def require_docker(site: Mapping[str, Any], people: Users, addresses: Iterable[str]) -> None:
    """Refuse the machines' own Docker without a group of who may use it, and overlay networks without that Docker.

    ``site`` has the variables of ``READ``, ``addresses`` are the machines'.

    Raises:
        ClusterctlError: it names the variable, and of a list the entry.
    """
    docker, group, networks = (site.get(name) for name in READ)
    socket = docker == "socket"
    if socket and (group is None or group not in people.gids):
        raise ClusterctlError(
            "job_docker is socket, and job_docker_group names no group of cluster_groups: " + _RISK
            if group is None
            else f"job_docker_group is {group!r}, which is not in cluster_groups: all machines need the same number",
            fix="write {name: dockerjobs, gid: 3100} in cluster_groups, job_docker_group: dockerjobs, and that group "
            "in the groups of those users of cluster_users; or leave job_docker out",
            said=("job_docker" if group is None else "job_docker_group", ""),
        )
    if group is not None and not socket:
        raise ClusterctlError(
            "job_docker_group is set, and job_docker is not socket",
            fix="set job_docker: socket, or leave job_docker_group out",
            said=("job_docker_group", ""),
        )
    if networks in (None, [], ()):
        return
    if not socket:
        raise ClusterctlError(
            "job_docker_overlay_networks: an overlay network is one of the machines' own Docker, and jobs have "
            "rootless Podman, whose containers are on the node's network",
            fix="leave it out: a container of --network host reaches the others by their nodes' names; or set "
            "job_docker: socket",
            said=("job_docker_overlay_networks", ""),
        )
    _require_networks(networks, [address for address in addresses if re.fullmatch(r"[0-9.]+", address)])


def _require_networks(networks: Any, addresses: Iterable[str]) -> None:
    if not isinstance(networks, list | tuple):
        raise _refused("it must be a list")
    seen: dict[str, Any] = {}
    for number, entry in enumerate(networks):
        if not isinstance(entry, Mapping):
            raise _refused(f"{entry!r} is no mapping", number)
        if strange := [key for key in entry if key not in _KEYS]:
            raise _refused(f"{strange[0]!r} is none of {', '.join(_KEYS)}", number, str(strange[0]))
        name = entry.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _TAKEN or name in seen:
            raise _refused(f"{name!r} is no name of a network, Docker's own, or named twice", number, "name")
        if not isinstance(entry.get("encrypted", False), bool):
            raise _refused(f"{name}: encrypted must be true or false", number, "encrypted")
        subnet = _subnet(entry.get("subnet"), name, number)
        if inside := [address for address in addresses if ipaddress.ip_address(address) in subnet]:
            raise _refused(f"{name}: {inside[0]}, a machine's address, is in {subnet}", number, "subnet")
        if other := next((one for one, there in seen.items() if there.overlaps(subnet)), None):
            raise _refused(f"{name}: {subnet} overlaps {other}'s", number, "subnet")
        seen[name] = subnet


def _subnet(value: Any, name: str, number: int) -> ipaddress.IPv4Network:
    try:
        subnet = ipaddress.IPv4Network(str(value))
    except ValueError:
        subnet = ipaddress.IPv4Network("0.0.0.0/0")
    if not 8 <= subnet.prefixlen <= 28:
        raise _refused(f"{name}: subnet is {value!r}: it must be one such as 10.77.0.0/16", number, "subnet")
    return subnet


def _refused(problem: str, number: int | None = None, key: str = "") -> ClusterctlError:
    return ClusterctlError(
        f"job_docker_overlay_networks: {problem}",
        fix="write each as {name: test-net, subnet: 10.77.0.0/16, encrypted: false}, of addresses that nobody else has",
        entry=("job_docker_overlay_networks", number, key),
    )
