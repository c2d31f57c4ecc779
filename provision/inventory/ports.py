"""Every port that machines of a provisioned cluster need from one another: a table that follows from the inventory.

Where programs choose their ports themselves (NCCL, Gloo, MPI, what users write), it says ``all``: no range is made up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from ipaddress import IPv4Address, IPv4Network, collapse_addresses
from typing import Any

from provision.inventory.declared_mirrors import mirrors_from
from provision.inventory.loader import GROUPS
from provision.model.addresses import parsed
from provision.model.cluster import Cluster
from provision.model.mounts import Mount
from provision.slurm.ports import PORTS as SLURM
from provision.slurm.ports import ports_of_mpi

#: Where the cluster's registry and its mirrors listen, with their defaults.
REGISTRY = {"container_images_port": 5000, "container_images_mirror_port": 5002}
_MONITORING, _DCGM = "cluster_monitoring_port", "cluster_dcgm_port"
#: Variables of the controller that it rests on, beside the cluster's own.
READ = (*REGISTRY, "container_images_registry", "container_images_mirrors", "container_images_mirror_size",
        "slurm_conf_files", "job_docker_overlay_networks", "rdma_userspace_port", _MONITORING, _DCGM)  # fmt: skip
#: Of each machine.
READ_OF_EACH = ("ansible_port", "ansible_ssh_port")

#: Who is no machine of the cluster.
CONTROL, USERS = "control node", "users"
#: RoCE: adapters send and receive it past a machine's own firewall, switches do not.
ROCE = "4791"

_RDMA_PORT = 18514
_CONTROLLER, _COMPUTE, _LOGIN = ("slurm_controller",), ("slurm_compute",), ("slurm_login",)
_BOTH, _READERS = (*_CONTROLLER, *_COMPUTE), (*_COMPUTE, *_LOGIN)


@dataclass(frozen=True)
class Port:
    """One row. ``port`` is a number, a range, or ``all``; ``sources`` connect, ``targets`` listen: groups of the
    inventory, machines, or who is outside of it. ``variable`` decides on the port, or on whether it is used.
    """

    port: str
    protocol: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    purpose: str
    variable: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return it as documents and roles have it."""
        plain = asdict(self)
        return {**plain, "sources": list(self.sources), "targets": list(self.targets)}


def ports_from(
    groups: Mapping[str, Sequence[str]], hostvars: Mapping[str, Mapping[str, Any]], cluster: Cluster
) -> list[Port]:
    """Return the table of a cluster, whose inventory was found good.

    ``hostvars`` has each machine's variables of ``READ_OF_EACH``, and the controller's of ``READ``. A group without
    machines is in no row, and a row between one machine and itself is none.
    """
    site = hostvars.get(cluster.controller, {})
    rows = [
        *_ssh(groups, hostvars),
        *_slurm(cluster),
        *_images(site, [node.name for node in cluster.nodes], cluster.controller),
        *(row for mount in cluster.mounts for row in _storage(mount, groups)),
        *_jobs(site),
        Port(str(site.get(_MONITORING) or 9100), "tcp", ("monitoring",), GROUPS, "node exporter", _MONITORING),
    ]
    if (dcgm := str(site.get(_DCGM) or 0)) != "0":
        rows.append(Port(dcgm, "tcp", ("monitoring",), _COMPUTE, "DCGM exporter", _DCGM))
    return list(dict.fromkeys(kept for row in rows if (kept := _between_machines(row, groups))))


def hosts_of(names: Sequence[str], groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the machines at one end of a row; who is no machine of the cluster's is left out."""
    known = {host for group in GROUPS for host in groups.get(group, ())}
    found = (groups.get(name, ()) if name in GROUPS else {name} & known for name in names)
    return list(dict.fromkeys(host for hosts in found for host in hosts))


def _between_machines(row: Port, groups: Mapping[str, Sequence[str]]) -> Port | None:
    """Return a row without its empty groups; None where no machine is left that another one connects to."""
    sources, targets = (
        tuple(name for name in names if name not in GROUPS or groups.get(name)) for names in (row.sources, row.targets)
    )
    ends = {*hosts_of(sources, groups), *hosts_of(targets, groups)}
    outside = any(not hosts_of((name,), groups) for name in (*sources, *targets))
    needed = sources and targets and (outside or len(ends) > 1)
    return replace(row, sources=sources, targets=targets) if needed else None


def _ssh(groups: Mapping[str, Sequence[str]], hostvars: Mapping[str, Mapping[str, Any]]) -> Iterator[Port]:
    submitting = (*_CONTROLLER, *_LOGIN)
    for source, ends, purpose in ((CONTROL, GROUPS, "sshd: clusterctl"), (USERS, submitting, "sshd: logins")):
        by_port: dict[str, list[str]] = {}
        for host in hosts_of(ends, groups):
            told = hostvars.get(host, {})
            by_port.setdefault(str(told.get("ansible_ssh_port") or told.get("ansible_port") or 22), []).append(host)
        for port, hosts in by_port.items():
            targets = tuple(ends) if len(by_port) == 1 else tuple(hosts)
            yield Port(port, "tcp", (source,), targets, purpose, "ansible_port")


def _slurm(cluster: Cluster) -> Iterator[Port]:
    given = {name.lower(): value for name, value in cluster.slurm_parameters.items()}
    said = {name: str(given.get(name.lower()) or usual) for name, usual in SLURM.items()}
    variables = {name: f"slurm_conf_parameters: {name}" for name in (*SLURM, "MpiParams")}
    controller, daemon, srun = "SlurmctldPort", "SlurmdPort", "SrunPortRange"
    yield Port(said[controller], "tcp", (*_COMPUTE, *_LOGIN), _CONTROLLER, "slurmctld", variables[controller])
    asking = (*_CONTROLLER, *_COMPUTE, *_LOGIN)
    yield Port(said[daemon], "tcp", asking, _COMPUTE, "slurmd", variables[daemon])
    yield Port(said[daemon], "tcp", _CONTROLLER, _LOGIN, "sackd", variables[daemon])
    if cluster.database:
        name = "AccountingStoragePort"
        yield Port(said[name], "tcp", asking, ("slurm_database",), "slurmdbd", variables[name])
    # Without a range, srun listens on what the kernel gives it.
    open_ended = srun.lower() in given and given[srun.lower()] is None
    where = "all" if open_ended else said[srun]
    yield Port(where, "tcp", _COMPUTE, asking, "srun, salloc: nodes call back", variables[srun])
    if mpi := ports_of_mpi(str(given.get("mpiparams") or "")):
        yield Port(mpi, "tcp", _COMPUTE, _COMPUTE, "ports that Slurm reserves for steps of MPI", variables["MpiParams"])


def _images(site: Mapping[str, Any], compute: Sequence[str], controller: str) -> Iterator[Port]:
    def port(name: str) -> str:
        return str(site.get(name) or REGISTRY[name])

    if own := str(site.get("container_images_registry") or ""):
        name, _, number = own.partition("/")[0].partition(":")
        ends = (*_CONTROLLER, *_READERS), (f"the site's {name}",)
        yield Port(number or "443", "tcp", *ends, "registry of images", "container_images_registry")
    else:
        yield Port(port(name := "container_images_port"), "tcp", _READERS, _CONTROLLER, "registry of images", name)
    if mirrors := sorted(set(mirrors_from(site, compute, controller).values())):
        name = "container_images_mirror_port"
        yield Port(port(name), "tcp", _COMPUTE, tuple(mirrors), "mirrors of the registry", name)


def _storage(mount: Mount, groups: Mapping[str, Sequence[str]]) -> Iterator[Port]:
    if mount.fstype in ("nfs", "nfs4"):
        target = mount.server if mount.server in hosts_of((mount.server,), groups) else f"the site's {mount.server}"
        yield Port("2049", "tcp", mount.groups, (target,), f"NFS: {mount.path}", "cluster_mounts")
        if any(option.partition("=")[::2] in (("vers", "3"), ("nfsvers", "3")) for option in mount.options):
            what = f"NFS 3 of {mount.path}: rpcbind; mountd, lockd and statd besides (rpcinfo -p {mount.server})"
            yield Port("111", "tcp", mount.groups, (target,), what, "cluster_mounts")
    if mount.fstype == "lustre" and "@tcp" in mount.source:
        ends = mount.groups, ("the site's Lustre",)
        yield Port("988", "tcp", *ends, f"Lustre: {mount.path}; and back", "cluster_mounts")


def _jobs(site: Mapping[str, Any]) -> Iterator[Port]:
    first = str(site.get("rdma_userspace_port") or _RDMA_PORT)
    both = f"{first}-{int(first) + 1}" if first.isdecimal() else f"{first}, and the next"
    yield Port("10000-29999", "tcp", _COMPUTE, _COMPUTE, "torchrun-slurm; verify's training (20000-29999)")
    what = "jobs: NCCL, Gloo, MPI, users' programs choose"
    yield Port("all", "tcp", _COMPUTE, _COMPUTE, what)
    what = "transfers by which verify proves RDMA"
    yield Port(both, "tcp", _COMPUTE, _COMPUTE, what, "rdma_userspace_port")
    what = "RoCE v2, past the machines' own firewalls"
    yield Port(ROCE, "udp", _COMPUTE, _COMPUTE, what)
    if networks := site.get("job_docker_overlay_networks"):
        name = "job_docker_overlay_networks"
        yield Port("2377", "tcp", _COMPUTE, _CONTROLLER, "Docker's swarm: its manager", name)
        yield Port("7946", "tcp", _BOTH, _BOTH, "Docker's swarm: who is there", name)
        yield Port("7946", "udp", _BOTH, _BOTH, "Docker's swarm: who is there", name)
        yield Port("4789", "udp", _BOTH, _BOTH, "Docker's overlay networks", name)
        if any(isinstance(one, Mapping) and one.get("encrypted") for one in networks):
            yield Port("all", "esp", _BOTH, _BOTH, "Docker's encrypted networks (protocol 50)", name)


def ways_in(
    rows: Sequence[Mapping[str, Any]],
    groups: Mapping[str, Sequence[str]],
    entries: Sequence[Mapping[str, Any]],
    machine: str,
) -> dict[str, Any]:
    """Return how the cluster's other machines come in at one machine: what its own firewall has to let in.

    ``rows`` are the table's, ``entries`` the machines' addresses and names. Of a machine whose address the inventory
    does not give, nothing is known. ``ways`` are the rows that end at the machine; ``sources`` the networks of each of
    their groups as a text, and ``machines`` those of all: exactly the machines' addresses, as few networks as possible.
    """
    addresses = {name: str(entry["address"]) for entry in entries for name in entry["names"]}
    ways = [
        {name: row[name] for name in ("port", "protocol", "sources", "purpose")}
        for row in rows
        if machine in hosts_of(row["targets"], groups)
        and set(hosts_of(row["sources"], groups)) - {machine}
        and row["protocol"] in ("tcp", "udp")
        and row["port"] != ROCE
    ]
    names = dict.fromkeys(name for way in ways for name in way["sources"])
    others = {name: [host for host in hosts_of((name,), groups) if host != machine] for name in names}
    return {
        "ways": ways,
        "sources": {
            name: " ".join(networks(addresses.get(host, "") for host in hosts)) for name, hosts in others.items()
        },
        "machines": networks(address for name, address in addresses.items() if name != machine),
    }


def networks(addresses: Iterable[str]) -> list[str]:
    """Return IPv4 addresses as few networks; what is none is left out."""
    found = (IPv4Network(address) for text in addresses if isinstance(address := parsed(text), IPv4Address))
    return [str(block).removesuffix("/32") for block in collapse_addresses(found)]
