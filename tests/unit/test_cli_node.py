"""Nodes of a running cluster on the command line: what is shown of them, and which names are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from provision.cli.main import cli
from provision.cli.node import require_new
from provision.cli.node_states import holding, on_each, row
from provision.errors import ClusterctlError, ExitCode

SLURM = {
    "nodes": [
        {
            "name": "node1",
            "state": ["IDLE", "DRAIN"],
            "reason": "clusterctl: fans",
            "reason_by": "slurm",
            "reason_at": 1,
        },
        {"name": "node2", "state": ["MIXED"], "reason": "", "reason_by": "", "reason_at": 0},
    ],
    "jobs": [
        {"id": 7, "user": "ada", "state": ["RUNNING"], "nodes": "node[2-3]", "ends": 0},
        {"id": 8, "user": "bob", "state": ["PENDING"], "nodes": "", "ends": 0},
        {"id": 9, "user": "cyd", "state": ["COMPLETING"], "nodes": "node2", "ends": 86400},
    ],
}


def test_a_node_is_shown_with_its_reason_and_jobs() -> None:
    drained, busy = (row(one, on_each(SLURM)) for one in SLURM["nodes"])

    assert (drained[0], drained[1], drained[3], drained[4], drained[5]) == (
        "node1", "idle+drain", "slurm", "clusterctl: fans", "",
    )  # fmt: skip
    assert busy == ("node2", "mixed", "", "", "", "7,9")


def test_what_holds_a_node_is_named_with_its_limit() -> None:
    assert holding(SLURM, ["node1"]) == []
    first, second = holding(SLURM, ["node1", "node2"])

    assert first == "job 7 (ada) on node[2-3], without a limit"
    assert second.startswith("job 9 (cyd) on node2, at the latest until 1970-01-0")


@pytest.mark.parametrize(
    ("state", "reservation", "new"),
    [
        (["IDLE"], "", False),
        (["IDLE", "RESERVED"], "course", False),
        (["IDLE", "DRAIN"], "", False),
        # Of a call that was stopped: after slurmctld knew the node, and after it was reserved.
        (["UNKNOWN"], "", True),
        (["DOWN", "NOT_RESPONDING"], "", True),
        (["IDLE", "RESERVED"], "clusterctl-new", True),
    ],
)
def test_a_node_in_the_cluster_is_not_added_and_one_that_was_begun_goes_on(
    state: list[str], reservation: str, new: bool
) -> None:
    nodes = [{"name": "node1", "state": ["IDLE"], "reservation": ""}]
    nodes.append({"name": "node2", "state": state, "reservation": reservation})

    require_new(nodes, ["node3"])
    if new:
        require_new(nodes, ["node2", "node3"])
        return
    with pytest.raises(ClusterctlError, match="node2 is in the cluster already") as refused:
        require_new(nodes, ["node2", "node3"])
    assert refused.value.exit_code is ExitCode.PREFLIGHT_REFUSED


@pytest.mark.parametrize("words", [["drain", "node9", "--reason", "x"], ["resume", "node[1-9]"], ["add", "node9"]])
def test_a_node_that_the_inventory_does_not_have_is_refused(tmp_path: Path, words: list[str]) -> None:
    inventory = tmp_path / "inventory.ini"
    inventory.write_text(
        "[slurm_controller]\nhead\n[slurm_compute]\nnode1 node_cpus=4 node_real_memory=4000\n"
        "[all:vars]\ncluster_name=t\n",
        encoding="utf-8",
    )

    done = CliRunner().invoke(cli, ["node", *words, "-i", str(inventory)])

    assert done.exit_code == 2
    assert "is no compute node of" in done.output
