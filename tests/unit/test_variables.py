"""Misspelt variables and values of the wrong type: Ansible takes both without a word."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from declare import inventory

from provision import content
from provision.errors import ClusterctlError
from provision.inventory import variables
from provision.inventory.declared_proxy import require_proxy
from provision.inventory.loader import Inventory, load


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


#: Names like those of secrets, of what is none: counts and modes, and where public keys are.
NO_SECRETS = frozenset({
    "cluster_users_login", "cuda_toolkit_key", "lab_machines_login", "munge_key_bytes", "munge_key_mode",
    "node_private_tmp", "nvidia_containers_key", "nvidia_driver_keyring", "nvidia_driver_signing_key_enrolled",
    "rdma_userspace_ofed_key", "shared_key_group", "shared_key_mode", "shared_key_owner", "shared_key_path",
})  # fmt: skip


def every(options: Any) -> Iterator[tuple[str, Any]]:
    """Yield all options, those of mappings too."""
    for name, option in options.items():
        yield name, option
        yield from every(option.get("options") or {})


def test_every_option_that_is_named_like_a_secret_is_one_or_is_known_to_be_none() -> None:
    like = re.compile(r"pass(word|wd|phrase)?$|pass_|login|secret|token|credential|_key|private")
    found = {name: option for name, option in every(variables.options()) if like.search(name)}

    assert {name for name, option in found.items() if not option.get("no_log")} == NO_SECRETS
    assert {"container_images_password", "job_images_logins"} <= set(found)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("job_images_logins", ["robot:hunter2"]),
        ("job_images_logins", "robot:hunter2"),
        ("container_images_password", {"robot": "hunter2"}),
        ("container_images_password", ["hunter2"]),
    ],
)
def test_a_password_of_the_wrong_type_is_never_printed(name: str, value: object) -> None:
    error = refusal(**{name: value})

    assert error.problem.startswith(f"node[1-2]: {name}: it must be ")
    assert "hunter2" not in error.problem + error.fix


def test_a_secret_in_a_mapping_hides_the_whole_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    part = {"type": "dict", "options": {"password": {"type": "str", "no_log": True}}}
    known = {**variables.options(), "munge_list": {"type": "list", "options": {"one": part}}}
    monkeypatch.setattr(variables, "options", lambda: known)

    assert "hunter2" not in refusal(munge_list={"one": {"password": "hunter2"}}).problem


def test_every_site_variable_that_the_model_reads_is_described() -> None:
    from provision.inventory.declared import READ

    known = variables.options()

    assert [name for name in READ if not name.startswith("ansible_") and name not in known] == []
    assert [name for name, option in known.items() if not option.get("description")] == []


def test_the_examples_in_the_tree_know_their_variables() -> None:
    for example in ("a40", "lab"):
        variables.require_known(load(content.ROOT / "inventory" / example))


@pytest.mark.parametrize("name", ["http_proxy", "HTTPS_PROXY", "no_proxy"])
def test_a_proxy_that_nothing_would_read_is_refused_with_the_variable_that_is_read(name: str) -> None:
    error = refusal(**{name: "http://proxy.site:3128"})

    assert f"{name} has no effect here" in error.problem
    assert "cluster_proxy" in error.fix


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("container_images_users_size", "users push to the site's registry, or share archives"),
        ("job_lint", "clusterctl lint-job FILE"),
    ],
)
def test_a_variable_of_an_earlier_release_is_refused_with_what_to_do_instead(name: str, way_out: str) -> None:
    error = refusal(**{name: "false"})

    assert f"{name} has no effect here" in error.problem
    assert way_out in error.fix


@pytest.mark.parametrize(
    "value",
    [
        {"http": "http://proxy.site:3128"},
        {"http": "http://me:p%40ss@10.0.0.1:3128/", "https": "https://[fd00::1]:3129", "no_proxy": ".site,10.0.0.0/8"},
        {"http": "http://proxy", "no_proxy": [".site", "*.lab"]},
        {},
    ],
)  # fmt: skip
def test_a_proxy_is_an_address(value: Any) -> None:
    require_proxy({"node1": {"cluster_proxy": value}})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("http://proxy:3128", "it must be a mapping"),
        ({"https": "http://proxy:3128"}, "it must be a mapping of http"),
        ({"http": "proxy:3128"}, "http is no address"),
        ({"http": "http://u:se cret@proxy"}, "http is no address"),
        ({"http": 'http://proxy"; evil'}, "http is no address"),
        ({"http": "http://proxy", "no_proxy": "$(id)"}, "no_proxy: '$(id)'"),
    ],
)
def test_what_is_no_proxy_is_refused_and_no_password_is_shown(value: Any, said: str) -> None:
    with pytest.raises(ClusterctlError) as refused:
        require_proxy({"node1": {"cluster_proxy": value}})

    assert said in refused.value.problem
    assert "cret" not in refused.value.problem
