"""Nodes that leave the cluster: lines of the inventory, and that a refused removal leaves them as they were."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from provision import content
from provision.cli import flow
from provision.cli.main import cli
from provision.errors import ClusterctlError, ExitCode
from provision.events.fold import RunReport
from provision.inventory.file import replace
from provision.inventory.loader import load
from provision.inventory.removed import move, moved
from provision.inventory.valid import declared

INVENTORY = """\
[slurm_controller]
head ansible_host=10.0.0.1

[slurm_compute:children]
thin

[thin]
node1 ansible_host=10.0.0.2
# the old one
node2 ansible_host=10.0.0.3 node_cpus=8

[rack1]
node2

[rack1:vars]
ansible_user=admin

[slurm_compute:vars]
node_cpus=4
node_real_memory=4000

[all:vars]
cluster_name=t
"""


def test_a_node_is_moved_with_its_variables_and_stays_in_the_sites_own_groups() -> None:
    text = moved(INVENTORY, ["node2"])

    assert text.endswith("\n[slurm_removed]\nnode2 ansible_host=10.0.0.3 node_cpus=8\n")
    assert "[thin]\nnode1 ansible_host=10.0.0.2\n# the old one\n\n[rack1]\nnode2\n" in text
    assert moved(moved(INVENTORY, ["node2"]), ["node1"]).count("[slurm_removed]") == 1


def test_a_removed_node_is_no_part_of_the_cluster(tmp_path: Path) -> None:
    path = tmp_path / "inventory.ini"
    path.write_text(INVENTORY, encoding="utf-8")

    assert move(path, ["node2"]) == {path: INVENTORY}
    inventory = load(path)

    assert [node.name for node in declared(inventory).nodes] == ["node1"]
    assert inventory.hostvars["node2"]["ansible_user"] == "admin"


def test_a_node_in_a_range_is_for_the_operator_to_move(tmp_path: Path) -> None:
    path = tmp_path / "inventory.ini"
    path.write_text(INVENTORY.replace("node1 ", "node[1:4] "), encoding="utf-8")

    with pytest.raises(ClusterctlError, match=r"no line for node3") as refused:
        move(path, ["node2", "node3"])

    assert "node3 under [slurm_removed]" in refused.value.fix
    assert "[slurm_removed]" not in path.read_text()


def test_a_node_that_is_removed_and_in_use_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "inventory.ini"
    path.write_text(INVENTORY + "\n[slurm_removed]\nnode2\n", encoding="utf-8")

    with pytest.raises(ClusterctlError, match=r"node2 is in the groups slurm_removed and slurm_compute"):
        declared(load(path))


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Any, ...]]]:
    """Have no playbook run: what would be is noted, and each ends with the code that stands in ``codes``."""
    found: list[tuple[Any, ...]] = []

    def play(command: str, playbooks: Any, request: Any, *, opened: Any, **_others: Any) -> Any:
        found.append((command, tuple(playbooks), opened.hosts))
        code = play.codes.get(tuple(playbooks), ExitCode.DONE)  # type: ignore[attr-defined]
        run = SimpleNamespace(directory=Path("/nowhere"))
        return SimpleNamespace(report=RunReport(), code=code, run=run, document={}, goes_with={}, judgement=None)

    play.codes = {}  # type: ignore[attr-defined]
    monkeypatch.setattr(flow, "play", play)
    found.append((play,))
    return found


def test_a_removal_changes_the_other_machines_first_and_then_the_nodes_own(tmp_path: Path, played: list[Any]) -> None:
    path = tmp_path / "inventory.ini"
    path.write_text(INVENTORY, encoding="utf-8")

    done = CliRunner().invoke(cli, ["node", "remove", "node2", "-i", str(path)])

    assert done.exit_code == 0, done.output
    assert played[1:] == [
        ("provision", ("preflight", "base", "containers", "slurm", "monitoring"), ("head", "node1")),
        ("node", ("reset",), ("node2",)),
    ]
    assert "node2 is out of the cluster" in done.output
    # Again, as after a run that was cut off: what is moved stays so.
    moved_once = path.read_text()
    assert CliRunner().invoke(cli, ["node", "remove", "node2", "-i", str(path)]).exit_code == 0
    assert path.read_text() == moved_once


@pytest.mark.parametrize(
    ("code", "kept", "reset"),
    [(ExitCode.PREFLIGHT_REFUSED, True, False), (ExitCode.INTERRUPTED, False, False),
     (ExitCode.MACHINE_FAILED, False, True), (ExitCode.MACHINE_UNREACHABLE, False, True)],
)  # fmt: skip
def test_what_is_refused_leaves_the_inventory_and_the_machine(
    tmp_path: Path, played: list[Any], code: ExitCode, kept: bool, reset: bool
) -> None:
    path = tmp_path / "inventory.ini"
    path.write_text(INVENTORY, encoding="utf-8")
    played[0][0].codes["preflight", "base", "containers", "slurm", "monitoring"] = code

    done = CliRunner().invoke(cli, ["node", "remove", "node2", "-i", str(path)])

    assert done.exit_code == code
    assert (path.read_text() == INVENTORY) == kept
    assert any("reset" in one[1] for one in played[1:]) == reset


def test_a_node_that_a_partition_names_stays(tmp_path: Path, played: list[Any]) -> None:
    path = tmp_path / "inventory.ini"
    text = INVENTORY + "slurm_partitions=[{'PartitionName': 'gpu', 'Nodes': 'node2', 'Default': 'YES'}]\n"
    path.write_text(text, encoding="utf-8")

    done = CliRunner().invoke(cli, ["node", "remove", "node2", "-i", str(path)])

    assert done.exit_code == ExitCode.BAD_REQUEST
    assert "node2" in done.output
    assert path.read_text() == text
    assert played[1:] == []


def test_a_dead_machine_is_named_with_what_is_left_to_do(tmp_path: Path, played: list[Any]) -> None:
    path = tmp_path / "inventory.ini"
    path.write_text(INVENTORY, encoding="utf-8")
    played[0][0].codes["reset",] = ExitCode.MACHINE_UNREACHABLE

    done = CliRunner().invoke(cli, ["node", "remove", "node2", "-i", str(path)])

    assert done.exit_code == ExitCode.MACHINE_UNREACHABLE
    assert "its machine is not reset yet. Next: clusterctl node remove node2" in done.output


#: What a machine keeps, or a node has not.
STAYS = re.compile(
    r"/etc/docker(/daemon\.json|/clusterctl-keys\.json|/certs\.d|$)"  # Docker, and what runs in it, stay
    r"|docker\.service\.d$|/etc/(exports|nfs\.conf)\.d$"
    r"|nvidia|cuda|clusterctl-gpus"  # the driver and its tools stay
    r"|/etc/(security/limits\.d|systemd/system\.conf\.d|modules-load\.d|udev/rules\.d)$|/sys|/proc|/dev|/tmp|/var/tmp"
)


def test_what_roles_leave_on_a_machine_is_removed_or_stays_on_purpose() -> None:
    said = yaml.safe_load((content.ROOT / "roles/machine_reset/vars/main.yml").read_text())
    lists = ("__machine_reset_paths", "__machine_reset_paths_of_servers", "__machine_reset_data")
    gone = [path for name in lists for path in said[name]] + [
        said["__machine_reset_docker_drop_in"],
        "/etc/munge/munge.key",
    ]
    left = set()
    for role in sorted((content.ROOT / "roles").glob("*/vars/main.yml")):
        if role.parts[-3] in ("machine_reset", "lab_machines"):
            continue
        waiting = [yaml.safe_load(role.read_text())]
        while waiting:
            one = waiting.pop()
            if isinstance(one, dict):
                left |= {one["path"]} if isinstance(one.get("path"), str) else set()
                waiting += one.values()
            elif isinstance(one, list):
                waiting += one
    left = {path for path in left if path.startswith("/") and not STAYS.search(path)}
    over = {path for path in left if not any(path == one or path.startswith(f"{one}/") for one in gone)}

    assert len(left) > 10
    assert over == set()


def test_a_replaced_file_keeps_its_mode_and_a_link_to_it_stays_a_link(tmp_path: Path) -> None:
    file, link = tmp_path / "real.ini", tmp_path / "inventory.ini"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)

    replace(link, "new")

    assert link.is_symlink()
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(tmp_path.iterdir()) == [link, file]
