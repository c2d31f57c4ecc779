"""Clusters for tests: groups and variables as Ansible's loader returns them, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.inventory.declared import cluster_from
from provision.model.cluster import Cluster

A40 = {"node_cpus": 48, "node_real_memory": 192000, "node_gres": "gpu:A40:4"}


def inventory(
    nodes: Mapping[str, Mapping[str, Any]] | None = None, *, database: bool = False, **site: Any
) -> tuple[dict[str, tuple[str, ...]], dict[str, dict[str, Any]]]:
    """Return groups and variables of a controller ``head`` and compute nodes (default: two with A40 GPUs)."""
    nodes = {"node1": A40, "node2": A40} if nodes is None else nodes
    common = {"cluster_name": "lab", **site}
    variables = {"head": dict(common), **{name: {**common, **own} for name, own in nodes.items()}}
    groups = {"all": tuple(variables), "slurm_controller": ("head",), "slurm_compute": tuple(nodes)}
    if database:
        groups["slurm_database"] = ("head",)
    return groups, variables


def cluster(nodes: Mapping[str, Mapping[str, Any]] | None = None, **site: Any) -> Cluster:
    return cluster_from(*inventory(nodes, **site))
