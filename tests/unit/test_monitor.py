"""How an operator reaches Prometheus: the address, and the ssh command of the inventory's own connection."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from provision.cli.main import cli
from provision.errors import ExitCode

INVENTORY = """\
[slurm_controller]
head ansible_host=10.0.0.1

[slurm_compute]
node1 ansible_host=10.0.0.2 node_cpus=4 node_real_memory=4000

[monitoring]
watch ansible_host=10.0.0.3 ansible_port=2222 ansible_ssh_common_args="-J jump@gate.example.org"

[all:vars]
cluster_name=t
ansible_user=admin
"""


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "inventory.ini"
    path.write_text(INVENTORY, encoding="utf-8")
    return path


def test_the_way_to_prometheus_is_that_of_the_inventory(inventory: Path) -> None:
    done = CliRunner().invoke(cli, ["monitor", "open", str(inventory)], catch_exceptions=False)

    assert done.output.splitlines() == [
        "ssh -N -L 9090:127.0.0.1:9090 -o Port=2222 -o 'User=\"admin\"' -J jump@gate.example.org 10.0.0.3",
        "http://127.0.0.1:9090/consoles/clusterctl.html    # while that runs",
    ]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("[monitoring]", "[others]", "no machine is in [monitoring]"),
        ("ansible_port=2222", "ansible_connection=local", "reached by connection 'local'"),
    ],
)
def test_where_there_is_no_way_it_says_why(inventory: Path, old: str, new: str, problem: str) -> None:
    inventory.write_text(INVENTORY.replace(old, new), encoding="utf-8")

    done = CliRunner().invoke(cli, ["monitor", "open", str(inventory)])

    assert done.exit_code == ExitCode.BAD_REQUEST
    assert problem in done.output
    assert "Fix: " in done.output
