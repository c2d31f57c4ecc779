"""Shared file systems beside each other, and against the machines that export them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from provision import hostlist
from provision.errors import ClusterctlError
from provision.model.mounts import LOCAL, NETWORK, Mount, below, hides


def require_together(mounts: Sequence[Mount], groups: Mapping[str, Sequence[str]]) -> None:
    """Refuse file systems of which one hides or needs another; ``groups`` are the inventory's with their hosts.

    Raises:
        ClusterctlError: it names both.
    """
    for number, one in enumerate(mounts):
        for other in mounts[:number]:
            both = machines_of(one.groups, groups) & machines_of(other.groups, groups)
            if one.path == other.path and both:
                raise refusal(
                    f"cluster_mounts: {hostlist.fold(both)} would have two file systems at {one.path}",
                    "leave one of them, or give them groups that no machine is in both of",
                    ("path", one.path),
                )
    for one in mounts:
        for other in mounts if one.fstype == LOCAL else ():
            both = machines_of(one.groups, groups) & machines_of(other.groups, groups)
            if other.fstype in NETWORK and below(one.path, other.path) and both:
                raise refusal(
                    f"cluster_mounts: {one.path} is to be on each machine's own disk, and lies on {other.path}, which "
                    f"comes from {other.source}",
                    "give it a place of its own, as /scratch",
                    ("path", one.path),
                )
    _require_servers(mounts, groups)
    _require_no_round(mounts, groups)


def _require_servers(mounts: Sequence[Mount], groups: Mapping[str, Sequence[str]]) -> None:
    """Refuse a server of the inventory's that is not to be one, and an export that cannot be one."""
    servers = set(groups.get("nfs_server", ()))
    known = {host for hosts in groups.values() for host in hosts}
    for mount in mounts:
        spelt = next((host for host in known if host.lower() == mount.server.lower()), "")
        if spelt and spelt != mount.server:
            raise refusal(
                f"cluster_mounts: {mount.path} comes from {mount.server}, and the inventory's machine is {spelt}",
                f"write {spelt}:{mount.exported}",
                ("source", mount.source),
            )
        if mount.server in known - servers:
            raise refusal(
                f"cluster_mounts: {mount.path} comes from {mount.server}, which is not in group nfs_server",
                f"write {mount.server} under [nfs_server]; where the site itself exports there, give its address "
                "instead of its name",
                ("source", mount.source),
            )
        if mount.server in servers and (why := hides(mount.exported)):
            raise refusal(
                f"cluster_mounts: {mount.server} would export {mount.exported}: {why}",
                "export a directory of its own, as /srv/home",
                ("source", mount.source),
            )


def _require_no_round(mounts: Sequence[Mount], groups: Mapping[str, Sequence[str]]) -> None:
    """Refuse machines that export to each other what they have from each other: none could be the first to start."""
    served = [mount for mount in mounts if mount.server in groups.get("nfs_server", ())]
    rests_on = {
        mount: [
            other
            for other in served
            if other.server != mount.server
            and mount.server in machines_of(other.groups, groups)
            and below(mount.exported, other.path)
        ]
        for mount in served
    }
    for mount in served:
        ways = [[mount, other] for other in rests_on[mount]]
        seen: set[Mount] = set()
        while ways:
            way = ways.pop()
            if way[-1] == mount:
                told = " -> ".join(one.source for one in way)
                raise refusal(
                    f"cluster_mounts: each is exported from a place on the next: {told}",
                    "export directories of the servers' own disks",
                    ("source", mount.source),
                )
            if way[-1] not in seen:
                seen.add(way[-1])
                ways += [[*way, other] for other in rests_on[way[-1]]]


def machines_of(names: Collection[str], groups: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the machines that are in one of these groups."""
    return {host for name in names for host in groups.get(name, ())}


def refusal(problem: str, fix: str, said: tuple[str, str]) -> ClusterctlError:
    """Return the refusal of what stands in ``cluster_mounts``: ``said`` are its key and value there."""
    return ClusterctlError(problem, fix=fix, said=(*said, "" if said[0].startswith("cluster_") else "cluster_mounts"))
