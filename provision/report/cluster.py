"""The cluster as an inventory describes it, in a few lines for the person who wrote it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from provision import hostlist
from provision.model.cluster import Cluster, Hardware, Partition

#: What runs on the machines of each group, besides the container engine.
RUNS = {
    "slurm_controller": "slurmctld and the registry of images",
    "slurm_database": "slurmdbd and its database",
    "slurm_login": "logins, with sackd",
    "slurm_compute": "slurmd",
    "nfs_server": "the NFS server",
    "monitoring": "monitoring",
    "slurm_removed": "nothing: removed from the cluster",
}
_SHOWN = ("Default", "MaxTime", "MaxNodes", "AllowAccounts", "AllowGroups", "AllowQos", "QOS")


def picture(
    cluster: Cluster, groups: Mapping[str, Sequence[str]], fetched: Sequence[Mapping[str, str]]
) -> Iterator[tuple[str, str]]:
    """Yield (title, text) for each line; the title is empty where it is the one before."""
    for group, runs in RUNS.items():
        hosts = [cluster.database] if group == "slurm_database" else groups.get(group, ())
        if any(hosts):
            yield ("runs", "")[group != "slurm_controller"], f"{hostlist.fold(hosts)}: {runs}"
    for number, (names, hardware) in enumerate(cluster.kinds(_hardware)):
        count = f" ({len(names)} nodes)" if len(names) > 1 else ""
        yield ("nodes", "")[number > 0], f"{hostlist.fold(names)}{count}: {hardware}"
    for number, partition in enumerate(cluster.partitions):
        yield ("partitions", "")[number > 0], _partition(partition)
    for number, row in enumerate(fetched):
        redirect = f"  ({row['variable']} redirects it)" if row["variable"] else ""
        yield ("fetched", "")[number > 0], f"{row['what']}: {row['who']}, from {row['where']}{redirect}"


def _hardware(hardware: Hardware) -> str:
    if hardware.undeclared:
        return f"hardware to be discovered ({', '.join(hardware.undeclared)} not declared)"
    resources = ", ".join(map(str, hardware.gres or ())) or "no GPUs"
    parts = [f"{hardware.cpus} CPUs", f"{hardware.real_memory} MB", resources]
    return ", ".join(parts + ([f"features {hardware.features}"] if hardware.features else []))


def _partition(partition: Partition) -> str:
    nodes = "all nodes" if partition.nodes is None else hostlist.fold(partition.nodes)
    given = dict(partition.parameters)
    return ", ".join([f"{partition.name}: {nodes}", *(f"{name}={given[name]}" for name in _SHOWN if name in given)])
