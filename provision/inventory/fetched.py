"""What a provision fetches from outside the cluster, and from where, as far as the inventory says. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provision.model.cluster import Cluster
from provision.nvidia.driver_packages import REPOSITORIES

#: The columns of a row: what, which machines ask, where, and the variable that redirects it.
COLUMNS = ("what", "who", "where", "variable")


def fetched(cluster: Cluster, hostvars: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return a row of ``COLUMNS`` for each source outside the cluster that a provision asks.

    The page about closed networks in docs/ has the same table for every inventory.
    """
    # A node whose hardware is still to be discovered may have GPUs.
    kinds = {node.name: node.hardware.gres for node in cluster.nodes}
    gpus = [name for name, kind in kinds.items() if kind is None or any(gres.name == "gpu" for gres in kind)]
    rows = [("packages", "each machine", "its own apt sources", "")]
    if gpus and "gpu" not in cluster.simulated:
        rows += _of_gpus(hostvars.get(gpus[0], {}))
    if any(own.get("rdma_userspace_ofed") == "doca" for own in hostvars.values()):
        rows.append(_row("DOCA-OFED", "nodes with RDMA", "linux.mellanox.com", "rdma_userspace_ofed_repository", {}))
    rows += _of_the_controller(cluster, hostvars.get(cluster.controller, {}))
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def _row(what: str, who: str, usual: str, variable: str, own: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return what, who, str(own.get(variable) or usual), variable


def _of_gpus(own: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    nodes = "nodes with GPUs"
    if own.get("nvidia_driver_source") != "distribution":
        yield _row("NVIDIA's driver", nodes, REPOSITORIES, "nvidia_driver_repository", own)
    if own.get("cuda_toolkit_versions"):
        yield _row("CUDA toolkits", nodes, REPOSITORIES, "cuda_toolkit_repository", own)
    usual = "https://nvidia.github.io/libnvidia-container"
    yield _row("NVIDIA's container toolkit", nodes, usual, "nvidia_containers_repository", own)


def _of_the_controller(cluster: Cluster, own: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    who = cluster.controller
    if shared := own.get("container_images_shared"):
        yield "images built before", who, str(shared), "container_images_shared"
    usual = "the Debian mirror of its apt sources; without one, the public image debian"
    yield _row("Debian, for Slurm's image", who, usual, "container_images_mirror", own)
    variable = "ddp_validation_wheels" if own.get("ddp_validation_wheels") else "ddp_validation_image"
    yield _row("PyTorch, for the training job", who, "pip's package index", variable, own)
    for image in cluster.job_images:
        if image.kind == "reference":
            yield f"job image {image.name}", who, image.source, "job_images"
