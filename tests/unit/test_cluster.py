"""The declared cluster: what is accepted, and how what is wrong is said."""

from __future__ import annotations

from typing import Any

import pytest
from declare import A40, cluster, inventory

from provision.errors import ClusterctlError, ExitCode
from provision.inventory.declared import cluster_from


def refusal(nodes: dict[str, dict[str, Any]] | None = None, **site: Any) -> ClusterctlError:
    with pytest.raises(ClusterctlError) as refused:
        cluster(nodes, **site)
    assert refused.value.exit_code is ExitCode.BAD_REQUEST
    assert refused.value.fix
    # Nobody outside knows our classes, or pydantic's numbering.
    assert "validation error" not in refused.value.problem
    assert "nodes.0" not in refused.value.problem
    return refused.value


@pytest.mark.parametrize(
    "name",
    ["a\nNodeName=evil", "a b", "a=b", "a#b", "a/b", "../a", "a[1]", "a" * 64, "x" * 300, "", ".", "-n1", "a,b", "a;b"],
)
def test_a_host_name_that_could_mean_something_else_in_slurm_conf_is_refused(name: str) -> None:
    error = refusal({name: A40})

    assert "cannot be a host's name" in error.problem
    assert len(error.problem) < 250
    assert "\n" not in error.problem


@pytest.mark.parametrize("name", ["Node1", "GPU-03", "n_1", "1st"])
def test_upper_case_dashes_and_leading_digits_are_fine(name: str) -> None:
    assert [node.name for node in cluster({name: A40}).nodes] == [name]


@pytest.mark.parametrize("address", ["fd00::1", "::ffff:10.0.0.5", "[fe80::1%eth0]"])
def test_an_address_that_slurms_daemons_would_not_use_is_refused_with_what_to_give(address: str) -> None:
    error = refusal({"node1": {**A40, "ansible_host": address}})

    assert "is of IPv6, which Slurm's daemons do not use here" in error.problem
    assert "address of IPv4" in error.fix


@pytest.mark.parametrize("address", ["10.0.18.11", "node1.example.com"])
def test_addresses_of_every_kind_are_kept_as_written(address: str) -> None:
    assert cluster({"node1": {**A40, "ansible_host": address}}).nodes[0].address == address


def test_a_controller_may_also_compute() -> None:
    groups, variables = inventory({"node1": A40})

    both = cluster_from({**groups, "slurm_compute": ("node1", "head")}, {**variables, "head": variables["node1"]})

    assert [node.name for node in both.nodes] == ["node1", "head"]


@pytest.mark.parametrize("value", ["48.5", 48.5, "yes", True, "", "0x30", "1e3", "048", -1, 0, "-1", [48]])
def test_a_number_is_taken_only_if_it_is_exactly_one(value: object) -> None:
    problem = refusal({"node1": {**A40, "node_cpus": value}, "node2": {**A40, "node_cpus": value}}).problem

    assert problem.startswith(f"node[1-2]: node_cpus is {value!r}: it must be ")


@pytest.mark.parametrize("value", [48, "48", " 48 "])
def test_a_number_written_as_text_is_that_number(value: object) -> None:
    assert cluster({"node1": {**A40, "node_cpus": value}}).nodes[0].hardware.cpus == 48


def test_two_kinds_of_gpu_on_one_node_are_fine() -> None:
    hardware = cluster({"node1": {**A40, "node_gres": ["gpu:A40:2", "gpu:H100:2"]}}).nodes[0].hardware

    assert [str(gres) for gres in hardware.gres or ()] == ["gpu:A40:2", "gpu:H100:2"]


def test_an_empty_declaration_of_gpus_is_none_and_not_undeclared() -> None:
    assert cluster({"node1": {**A40, "node_gres": ""}}).nodes[0].hardware.gres == ()
    assert cluster({"node1": {}}).nodes[0].hardware.gres is None


def test_undeclared_hardware_is_allowed_and_listed() -> None:
    declared = cluster({"node1": {}, "node2": A40})

    assert declared.undeclared == {"node1": ("node_cpus", "node_real_memory")}


@pytest.mark.parametrize("value", ["{{ 48 }}", "{{ lookup('pipe', 'id') }}", "{% raw %}"])
@pytest.mark.parametrize("variable", ["node_cpus", "node_gres", "ansible_host"])
def test_a_template_where_a_plain_value_is_needed_is_refused(variable: str, value: str) -> None:
    problem = refusal({"node1": {**A40, variable: value}}).problem

    assert problem.startswith(f"node1: {variable} holds a template")


@pytest.mark.parametrize(
    ("value", "version"), [("24.11", "24.11"), (24.11, "24.11"), (25.05, "25.05"), (None, "24.11")]
)
def test_slurms_version_survives_being_taken_for_a_number(value: object, version: str) -> None:
    assert cluster(slurm_version=value).slurm_version == version


@pytest.mark.parametrize(
    ("value", "words"), [("gpu", ("gpu",)), ("gpu, rdma", ("gpu", "rdma")), ("", ()), (["gpu"], ("gpu",))]
)
def test_what_is_simulated_may_be_a_list_or_words_with_commas(value: object, words: tuple[str, ...]) -> None:
    assert cluster(cluster_simulated=value).simulated == words
