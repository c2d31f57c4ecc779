"""Login hosts in the inventory: which machines may be one, and where it is said that one may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.errors import ClusterctlError
from provision.inventory import loader
from provision.inventory.valid import declared

SITE = "[slurm_controller]\nhead\n[slurm_compute]\nnode[1:2]\n{login}[all:vars]\ncluster_name=lab\n"
YAML = """
slurm_controller: {hosts: {head: {}}}
slurm_compute: {hosts: {node1: {}, node2: {}}}
slurm_login:
  hosts:
    login1: {}
    node2: {}
all: {vars: {cluster_name: lab}}
"""


def refusal(path: Path, text: str) -> ClusterctlError:
    path.write_text(text)
    with pytest.raises(ClusterctlError) as raised:
        declared(loader.load(path))
    return raised.value


def test_a_machine_for_logins_is_one_of_its_own_or_the_controller(tmp_path: Path) -> None:
    file = tmp_path / "inventory.ini"
    file.write_text(SITE.format(login="[slurm_login]\nhead\nlogin1\n"))

    assert [node.name for node in declared(loader.load(file)).nodes] == ["node1", "node2"]


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("inventory.ini", SITE.format(login="[slurm_login]\nlogin1\nnode2 ansible_host=10.0.0.2\n"), 7),
        ("inventory.ini", SITE.format(login="[slurm_login]\nnode[2:2]\n"), 5),
        ("inventory.ini", SITE.format(login="[slurm_login:children]\nslurm_compute\n"), 5),
        ("hosts.yml", YAML, 7),
    ],
)
def test_a_machine_on_which_jobs_run_is_refused_with_its_line(tmp_path: Path, name: str, text: str, line: int) -> None:
    error = refusal(tmp_path / name, text)

    assert f"{name}, line {line}: " in error.problem
    assert "in the groups slurm_login and slurm_compute" in error.problem
    assert "take it out of [slurm_login]" in error.fix


def test_a_single_machine_may_be_all_at_once(tmp_path: Path) -> None:
    file = tmp_path / "inventory.ini"
    file.write_text(
        "[slurm_controller]\nhead\n[slurm_compute]\nhead\n[slurm_login]\nhead\n[all:vars]\ncluster_name=lab\n"
    )

    assert declared(loader.load(file)).controller == "head"
