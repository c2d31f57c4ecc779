"""The one way from what an operator wrote to a cluster that can be worked on, whoever has read it."""

from __future__ import annotations

from provision.inventory.connections import require_safe
from provision.inventory.declared import cluster_from
from provision.inventory.loader import Inventory
from provision.inventory.variables import require_known
from provision.model.cluster import Cluster


def declared(inventory: Inventory) -> Cluster:
    """Return the cluster that an inventory declares.

    Raises:
        ClusterctlError: a connection would be weakened, a variable is misspelt or of the wrong type, or what is
            declared contradicts itself.
    """
    require_safe(inventory)
    require_known(inventory)
    return cluster_from(inventory.groups, inventory.hostvars)
