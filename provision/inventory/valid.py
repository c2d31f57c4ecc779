"""The one way from what an operator wrote to a cluster that can be worked on, whoever has read it."""

from __future__ import annotations

import difflib

from provision.errors import ClusterctlError
from provision.inventory.connections import require_safe
from provision.inventory.declared import cluster_from
from provision.inventory.declared_images import require_sources
from provision.inventory.loader import GROUPS, Inventory, cluster_hosts
from provision.inventory.variables import require_known
from provision.inventory.where import counted_by_sixty, entry_written, member_written, written
from provision.model.cluster import Cluster

#: Variables whose values YAML may take for numbers of another base.
_IN_YAML = (
    "slurm_partitions",
    "slurm_conf_parameters",
    "cluster_users",
    "cluster_groups",
    "slurm_accounts",
    "slurm_qos",
)


def declared(inventory: Inventory) -> Cluster:
    """Return the cluster that an inventory declares.

    Raises:
        ClusterctlError: a connection would be weakened, a variable is misspelt or of the wrong type, or what is
            declared contradicts itself.
    """
    require_safe(inventory)
    require_known(inventory)
    for spot, text in counted_by_sixty(inventory.path, _IN_YAML):
        raise ClusterctlError(f"{spot}: YAML makes a number of {text}", fix=f'put it in quotes: "{text}"')
    try:
        _require_groups(inventory)
        cluster = cluster_from(inventory.groups, inventory.hostvars)
        require_sources(cluster.job_images, inventory.path if inventory.path.is_dir() else inventory.path.parent)
        return cluster
    except ClusterctlError as error:
        spot = written(inventory.path, *error.said) if error.said[0] else ""
        spot = entry_written(inventory.path, *error.entry, row=error.row) if error.entry[0] else spot
        spot = member_written(inventory.path, *error.member) if error.member[0] else spot
        if not spot:
            raise
        raise ClusterctlError(f"{spot}: {error.problem}", fix=error.fix, exit_code=error.exit_code) from None


def _require_groups(inventory: Inventory) -> None:
    """Refuse a group that is called almost as one of ours, of machines in none of ours: they would be left out."""
    left = inventory.hostvars.keys() - set(cluster_hosts(inventory))
    for group, hosts in inventory.groups.items():
        near = difflib.get_close_matches(group, GROUPS, n=1, cutoff=0.85)
        if near and group not in GROUPS and (out := [host for host in hosts if host in left]):
            raise ClusterctlError(
                f"group {group} has no meaning here, and {out[0]} is in no other",
                fix=f"did you mean {near[0]}? Give a group of your own another name",
                member=(group, out[0]),
            )
