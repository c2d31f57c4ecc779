"""For which machines the plays of a stage are: worked out from groups and variables, without a machine."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleLookupError
from machines import plugin

from provision.model.discovered import ALWAYS

pending = plugin("plugins/lookup/pending.py").LookupModule()
undeclared = plugin("plugins/lookup/undeclared.py").LookupModule()

GROUPS = {
    "slurm_controller": ["head"],
    "slurm_compute": ["node1", "node2", "node3"],
    "pending_munge": ["node2", "head"],
    "pending_slurm_conf": ["node1", "node2"],
}
WHOLE = dict.fromkeys(ALWAYS, 1)


@pytest.mark.parametrize(
    ("roles", "on", "hosts"),
    [
        (["munge"], "all", ["node2", "head"]),
        (["munge"], "controller", ["head"]),
        (["munge"], "others", ["node2"]),
        (["munge", "slurm_conf"], "all", ["node2", "head", "node1"]),
        (["slurm_conf"], "controller", []),
        (["container_engine"], "all", []),
        ([], "all", []),
    ],
)
def test_a_role_is_run_on_the_machines_that_are_pending_for_it(roles: list[str], on: str, hosts: list[str]) -> None:
    assert pending.run(roles, {"groups": GROUPS}, on=on) == hosts


def test_without_a_controller_all_machines_are_others() -> None:
    groups = {"pending_munge": ["node1"]}

    assert pending.run(["munge"], {"groups": groups}) == ["node1"]
    assert pending.run(["munge"], {"groups": groups}, on="others") == ["node1"]
    assert pending.run(["munge"], {"groups": groups}, on="controller") == []


@pytest.mark.parametrize("options", [{"on": "nodes"}, {"only": "controller"}])
def test_a_word_that_pending_does_not_know_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(AnsibleLookupError, match="all, controller or others"):
        pending.run(["munge"], {"groups": GROUPS}, **options)


def test_undeclared_are_the_compute_nodes_that_lack_a_value_which_every_machine_has() -> None:
    hostvars: dict[str, dict[str, Any]] = {
        "node1": WHOLE,
        "node2": {**WHOLE, "node_cpus": None},
        "node3": {},
        "head": {},
    }

    assert undeclared.run([], {"groups": GROUPS, "hostvars": hostvars}) == ["node2", "node3"]
    # A syntax check reads the playbooks without any machine's variables.
    assert undeclared.run([], {"groups": GROUPS}) == []
