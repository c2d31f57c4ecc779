"""What is wrong of machines and of the whole cluster is refused with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.errors import ClusterctlError
from provision.inventory import loader
from provision.inventory.valid import declared

TEXT = "[slurm_controller]\nhead\n[slurm_compute]\nnode1\n\n[slurm_login]\nlogin1\n[all:vars]\ncluster_name=x\n"


@pytest.mark.parametrize(
    ("was", "now", "line", "said"),
    [
        ("cluster_name=x", "cluster_name=My Cluster", 9, "must be lower-case letters"),
        ("cluster_name=x", "cluster_name=x\nslurm_version=24.13", 10, "must be one of Slurm's releases"),
        ("node1", "node1 ansible_host=10.0.0.300", 4, "neither an address nor a name"),
        ("node1", "node1 ansible_host=10.0.0.3\nnode2 ansible_host=10.0.0.3", 4, "have the same address"),
        ("head", "head\nhead2", 3, "has 2 controllers"),
        ("node1", "node1.example.com", 4, "cannot be a host's name"),
        ("[slurm_compute]", "[slurm_compute:children]\ngpus\n[gpus]\nlocalhost", 6, "a meaning of its own"),
        ("[slurm_login]", "[slurm_logn]", 7, "did you mean slurm_login?"),
        ("node1", "node1 node_cpus=48 node_sockets=3 node_cores_per_socket=5", 4, "node_cpus is 48, but"),
        ("node1", "node1 node_real_memory=9 node_mem_spec_limit=99", 4, "must be below node_real_memory"),
    ],
)
def test_what_is_wrong_of_machines_is_named_with_its_line(
    tmp_path: Path, was: str, now: str, line: int, said: str
) -> None:
    (tmp_path / "inventory.ini").write_text(TEXT.replace(was, now, 1))

    with pytest.raises(ClusterctlError) as refused:
        declared(loader.load(tmp_path / "inventory.ini"))

    assert said in f"{refused.value.problem} {refused.value.fix}"
    assert refused.value.problem.startswith(f"{tmp_path}/inventory.ini, line {line}: ")


def test_a_group_of_the_sites_own_is_its_own(tmp_path: Path) -> None:
    """Though it is called like one of ours, where its machines are in ours, and where it is called otherwise."""
    own = TEXT.replace("node1\n", "node1\n[slurm_computes]\nnode1\n[printers]\nlaser\n")
    (tmp_path / "inventory.ini").write_text(own)

    assert declared(loader.load(tmp_path / "inventory.ini")).name == "x"
