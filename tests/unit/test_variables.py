"""Misspelt variables and values of the wrong type: Ansible takes both without a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from declare import inventory

from provision import content
from provision.errors import ClusterctlError
from provision.inventory import variables
from provision.inventory.loader import Inventory


def declared(**own: Any) -> Inventory:
    groups, hostvars = inventory()
    for node in ("node1", "node2"):
        hostvars[node] = {**hostvars[node], **own}
    return Inventory(path=Path("inventory.ini"), groups=groups, hostvars=hostvars)


def refusal(**own: Any) -> ClusterctlError:
    with pytest.raises(ClusterctlError) as refused:
        variables.require_known(declared(**own))
    return refused.value


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("node_cpu", "node_cpus"),
        ("node_realmemory", "node_real_memory"),
        ("Node_gres", "node_gres"),
        ("slurm_partition", "slurm_partitions"),
        ("slurm_conf_paramters", "slurm_conf_parameters"),
        ("ansible_hots", "ansible_host"),
    ],
)
def test_a_misspelt_variable_is_refused_with_a_suggestion(name: str, meant: str) -> None:
    error = refusal(**{name: 1})

    assert name in error.problem
    assert error.problem.startswith("node[1-2]: ")
    assert error.fix == f"did you mean {meant}?"


def test_a_name_that_begins_like_a_role_but_is_none_of_its_variables_is_refused() -> None:
    error = refusal(slurm_conf_colour="red")

    assert error.problem == "node[1-2]: role slurm_conf has no variable slurm_conf_colour"
    assert "slurm_conf_directory" in error.fix


@pytest.mark.parametrize(
    "name", ["rack", "site_contact", "my_cluster_thing", "node_exporter_port", "ansible_network_os"]
)
def test_a_sites_own_variables_pass(name: str) -> None:
    variables.require_known(declared(**{name: "x"}))


def test_every_misspelling_is_told_at_once() -> None:
    error = refusal(node_cpu=1, node_gress="gpu:1")

    assert len(error.problem.splitlines()) == 2


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("node_cpus", "48.5", "whole number"),
        ("node_cpus", "many", "whole number"),
        ("node_cgroup_version", 3, "1 or 2"),
        ("slurm_conf_parameters", "MessageTimeout=3", "mapping"),
        ("slurm_conf_directory", ["/etc"], "text"),
        ("slurm_partitions", {"PartitionName": "a"}, "list"),
    ],
)
def test_a_value_of_the_wrong_type_is_told_with_its_variable(name: str, value: object, words: str) -> None:
    problem = refusal(**{name: value}).problem

    assert problem.startswith(f"node[1-2]: {name} is {value!r}: ")
    assert words in problem


def test_a_template_in_a_roles_variable_is_left_for_the_run_to_judge() -> None:
    variables.require_known(declared(slurm_conf_directory="{{ anything }}"))


def test_a_secret_of_the_wrong_type_is_never_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {**variables.options(), "munge_secret": {"type": "dict", "no_log": True}}
    monkeypatch.setattr(variables, "options", lambda: known)

    assert "hunter2" not in refusal(munge_secret="hunter2").problem


def test_every_site_variable_that_the_model_reads_is_described() -> None:
    from provision.inventory.declared import READ

    known = variables.options()

    assert [name for name in READ if not name.startswith("ansible_") and name not in known] == []
    assert [name for name, option in known.items() if not option.get("description")] == []


def test_the_examples_in_the_tree_know_their_variables() -> None:
    from provision.inventory.loader import load

    for example in ("a40", "lab"):
        variables.require_known(load(content.ROOT / "inventory" / example))
