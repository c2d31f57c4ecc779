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


@pytest.mark.parametrize("name", ["all", "localhost", "Ungrouped", "DEFAULT", "none"])
def test_a_name_with_a_meaning_of_its_own_is_refused(name: str) -> None:
    assert "a meaning of its own" in refusal({name: A40}).problem


@pytest.mark.parametrize("name", ["127.0.0.1", "10", "node1.example.com"])
def test_an_address_or_a_full_name_is_no_host_name_and_the_fix_says_where_it_goes(name: str) -> None:
    assert "ansible_host=" in refusal({name: A40}).fix


@pytest.mark.parametrize("name", ["Node1", "GPU-03", "n_1", "1st"])
def test_upper_case_dashes_and_leading_digits_are_fine(name: str) -> None:
    assert [node.name for node in cluster({name: A40}).nodes] == [name]


def test_names_that_differ_in_case_only_are_refused() -> None:
    assert "are the same name" in refusal({"node1": A40, "Node1": A40}).problem


def test_the_same_address_twice_is_refused_with_both_names() -> None:
    error = refusal({"node1": {**A40, "ansible_host": "10.0.0.7"}, "node2": {**A40, "ansible_host": "10.0.0.7"}})

    assert error.problem == "node1 and node2 have the same address, 10.0.0.7"


def test_an_address_that_is_another_hosts_name_is_the_same_address() -> None:
    assert "same address, node1" in refusal({"node1": A40, "node2": {**A40, "ansible_host": "node1"}}).problem


@pytest.mark.parametrize("address", ["256.1.1.1", "0.0.0.0", "224.0.0.1", "10.0.0", "a b", "10.0.0.1\n", "fe80::zz"])  # noqa: S104 - refused
def test_an_address_that_no_machine_can_have_is_refused(address: str) -> None:
    assert "node1: ansible_host is" in refusal({"node1": {**A40, "ansible_host": address}}).problem


@pytest.mark.parametrize("address", ["fd00::1", "::ffff:10.0.0.5", "[fe80::1%eth0]"])
def test_an_address_that_slurms_daemons_would_not_use_is_refused_with_what_to_give(address: str) -> None:
    error = refusal({"node1": {**A40, "ansible_host": address}})

    assert "is of IPv6, which Slurm's daemons do not use here" in error.problem
    assert "address of IPv4" in error.fix


@pytest.mark.parametrize("address", ["10.0.18.11", "node1.example.com"])
def test_addresses_of_every_kind_are_kept_as_written(address: str) -> None:
    assert cluster({"node1": {**A40, "ansible_host": address}}).nodes[0].address == address


def test_no_controller_is_refused() -> None:
    groups, variables = inventory()

    with pytest.raises(ClusterctlError, match="no controller") as refused:
        cluster_from({**groups, "slurm_controller": ()}, variables)

    assert "[slurm_controller]" in refused.value.fix


def test_two_controllers_are_refused_by_name() -> None:
    groups, variables = inventory()

    with pytest.raises(ClusterctlError, match=r"2 controllers, head\[1-2\]"):
        cluster_from({**groups, "slurm_controller": ("head1", "head2")}, variables)


def test_no_compute_node_is_refused() -> None:
    assert "[slurm_compute]" in refusal({}).fix


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


def test_true_is_not_taken_for_one_because_another_node_says_one() -> None:
    problem = refusal({"node1": {**A40, "node_cpus": 1}, "node2": {**A40, "node_cpus": True}}).problem

    assert problem.startswith("node2: node_cpus is True")


@pytest.mark.parametrize("gres", ["gpu", "gpu:A40", "gpu:A40:-1", "gpu:A40:0", "gpu:0", "gpu:1.5", "gpu:A40:4(S:0)", 4])
def test_generic_resources_without_a_proper_count_are_refused(gres: object) -> None:
    error = refusal({"node1": {**A40, "node_gres": gres}})

    assert "node_gres" in error.problem


def test_gpus_with_and_without_a_type_on_one_node_are_refused() -> None:
    assert "a type to some gpu" in refusal({"node1": {**A40, "node_gres": "gpu:A40:2,gpu:2"}}).problem


def test_two_kinds_of_gpu_on_one_node_are_fine() -> None:
    hardware = cluster({"node1": {**A40, "node_gres": ["gpu:A40:2", "gpu:H100:2"]}}).nodes[0].hardware

    assert [str(gres) for gres in hardware.gres or ()] == ["gpu:A40:2", "gpu:H100:2"]


def test_an_empty_declaration_of_gpus_is_none_and_not_undeclared() -> None:
    assert cluster({"node1": {**A40, "node_gres": ""}}).nodes[0].hardware.gres == ()
    assert cluster({"node1": {}}).nodes[0].hardware.gres is None


def test_device_files_are_counted_against_the_gpus() -> None:
    error = refusal({"node1": {**A40, "node_gres_files": "/dev/nvidia[0-2]"}})

    assert "names 3 devices, node_gres counts 4" in error.problem


def test_a_topology_that_contradicts_the_processors_is_refused_with_both_numbers() -> None:
    node = {**A40, "node_sockets": 2, "node_cores_per_socket": 16, "node_threads_per_core": 2}

    assert "node_cpus is 48, but" in refusal({"node1": node}).problem
    assert "is 64" in refusal({"node1": node}).problem


def test_a_topology_may_count_cores_or_hyperthreads() -> None:
    node = {**A40, "node_sockets": 2, "node_cores_per_socket": 24, "node_threads_per_core": 2}

    assert cluster({"node1": {**node, "node_cpus": 48}, "node2": {**node, "node_cpus": 96}})


def test_undeclared_hardware_is_allowed_and_listed() -> None:
    declared = cluster({"node1": {}, "node2": A40})

    assert declared.undeclared == {"node1": ("node_cpus", "node_real_memory")}


@pytest.mark.parametrize("value", ["{{ 48 }}", "{{ lookup('pipe', 'id') }}", "{% raw %}"])
@pytest.mark.parametrize("variable", ["node_cpus", "node_gres", "ansible_host"])
def test_a_template_where_a_plain_value_is_needed_is_refused(variable: str, value: str) -> None:
    problem = refusal({"node1": {**A40, variable: value}}).problem

    assert problem.startswith(f"node1: {variable} holds a template")


def test_a_template_deep_inside_a_list_is_found() -> None:
    partitions = [{"PartitionName": "gpu", "MaxTime": "{{ x }}"}]

    assert "slurm_partitions holds a template" in refusal(slurm_partitions=partitions).problem


@pytest.mark.parametrize("name", ["Lab", "a b", "x" * 41, "a\nb", "", "-a", 1.5])
def test_a_cluster_name_that_slurm_would_change_or_refuse_is_refused(name: object) -> None:
    assert "cluster_name is" in refusal(cluster_name=name).problem


def test_a_missing_cluster_name_says_where_to_write_it() -> None:
    assert "[all:vars]" in refusal(cluster_name=None).fix


def test_a_site_wide_value_that_differs_between_hosts_is_refused() -> None:
    problem = refusal({"node1": {**A40, "cluster_name": "other"}, "node2": A40}).problem

    assert problem.startswith("cluster_name is 'lab' for head and 'other' for node1")


@pytest.mark.parametrize(
    ("value", "version"), [("24.11", "24.11"), (24.11, "24.11"), (25.05, "25.05"), (None, "24.11")]
)
def test_slurms_version_survives_being_taken_for_a_number(value: object, version: str) -> None:
    assert cluster(slurm_version=value).slurm_version == version


@pytest.mark.parametrize("value", ["24", "24.12", "latest", 24, "24.11.5"])
def test_what_is_no_release_of_slurm_is_refused(value: object) -> None:
    assert "slurm_version is" in refusal(slurm_version=value).problem


@pytest.mark.parametrize(
    ("value", "words"), [("gpu", ("gpu",)), ("gpu, rdma", ("gpu", "rdma")), ("", ()), (["gpu"], ("gpu",))]
)
def test_what_is_simulated_may_be_a_list_or_words_with_commas(value: object, words: tuple[str, ...]) -> None:
    assert cluster(cluster_simulated=value).simulated == words


def test_the_cluster_cannot_be_changed_afterwards() -> None:
    declared = cluster()

    with pytest.raises(ValueError, match="frozen"):
        declared.name = "other"  # type: ignore[misc]
