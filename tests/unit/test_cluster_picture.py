"""What check says of a good inventory: the cluster as it was understood, and what is fetched for it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from provision.cli.main import cli
from provision.content import ROOT

A40 = {"node_cpus": 48, "node_real_memory": 192000, "node_gres": "gpu:A40:4"}


def test_a_cluster_is_told_by_machines_kinds_and_partitions() -> None:
    told = CliRunner().invoke(cli, ["check", str(ROOT / "tests/sites/mixed")]).stdout

    assert "runs        slurm-head: slurmctld and the registry of images\n" in told
    assert "            login-[1-4]: logins, with sackd\n" in told
    assert (
        "            cn-g[001-029] (29 nodes): 64 CPUs, 1020000 MB, gpu:a100l:4, features ampere,nvlink,80gb\n" in told
    )
    assert "partitions  long: all nodes, Default=YES, MaxTime=7-00:00:00\n" in told


@pytest.mark.parametrize(
    ("variables", "there", "gone"),
    [
        ({}, "NVIDIA's driver: nodes with GPUs, from https://developer.download.nvidia.com", "DOCA"),
        ({"cluster_simulated": ["gpu"]}, "PyTorch", "NVIDIA"),
        ({"nvidia_driver_source": "distribution"}, "NVIDIA's container toolkit", "NVIDIA's driver"),
        ({"container_images_mirror": "http://deb.site/debian"}, "head, from http://deb.site/debian", "apt sources; "),
        ({"node_gres": None}, "NVIDIA's driver: nodes with GPUs", "DOCA"),
        ({"node_gres": "", "rdma_userspace_ofed": "doca"}, "DOCA-OFED: nodes with RDMA", "NVIDIA"),
    ],
)
def test_what_is_fetched_follows_from_the_inventory(
    tmp_path: Any, variables: dict[str, Any], there: str, gone: str
) -> None:
    nodes = {
        "hosts": {"node1": {}},
        "vars": A40 | {key: variables[key] for key in variables if key.startswith("node_")},
    }
    nodes["vars"] = {name: value for name, value in nodes["vars"].items() if value is not None}
    own = {"cluster_name": "t"} | {key: variables[key] for key in variables if not key.startswith("node_")}
    groups = {"slurm_controller": {"hosts": {"head": {}}}, "slurm_compute": nodes}
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(yaml.safe_dump({"all": {"children": groups, "vars": own}}), encoding="utf-8")

    done = CliRunner().invoke(cli, ["check", str(inventory)])

    assert done.exit_code == 0, done.output
    assert there in done.stdout
    assert gone not in done.stdout
