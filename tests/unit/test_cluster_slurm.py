"""Partitions and parameters in Slurm's own words."""

from __future__ import annotations

from typing import Any

import pytest
from declare import cluster

from provision.errors import ClusterctlError


def refusal(**site: Any) -> ClusterctlError:
    with pytest.raises(ClusterctlError) as refused:
        cluster(**site)
    return refused.value


def test_without_a_declaration_there_is_one_default_partition_of_all_nodes() -> None:
    (partition,) = cluster().partitions

    assert (partition.name, partition.nodes, partition.parameters) == ("batch", None, (("Default", "YES"),))


@pytest.mark.parametrize("nodes", ["node[1-2]", "node1,node2", ["node1", "node2"]])
def test_a_partition_names_its_nodes_as_hostlist_or_list(nodes: object) -> None:
    (partition,) = cluster(slurm_partitions=[{"PartitionName": "gpu", "Nodes": nodes}]).partitions

    assert partition.nodes == ("node1", "node2")


def test_a_partition_with_an_unknown_node_is_refused_with_the_likely_one() -> None:
    error = refusal(slurm_partitions=[{"PartitionName": "gpu", "Nodes": "node1,nod2"}])

    assert "partition gpu names nod2" in error.problem
    assert error.fix == "did you mean node2?"


def test_a_padded_hostlist_for_unpadded_nodes_shows_both() -> None:
    problem = refusal(slurm_partitions=[{"PartitionName": "gpu", "Nodes": "node[01-02]"}]).problem

    assert "node[01-02]" in problem
    assert "node[1-2]" in problem


def test_two_default_partitions_are_refused() -> None:
    two = [{"PartitionName": "a", "Default": "YES"}, {"PartitionName": "b", "default": True}]

    assert refusal(slurm_partitions=two).problem == "partitions a and b are both Default=YES"


def test_a_partition_twice_is_refused() -> None:
    assert "twice" in refusal(slurm_partitions=[{"PartitionName": "a"}, {"PartitionName": "a"}]).problem
    assert "twice" in refusal(slurm_partitions=[{"PartitionName": "a"}, {"PartitionName": "A"}]).problem


def test_a_misspelt_partition_parameter_is_refused_with_a_suggestion() -> None:
    assert refusal(slurm_partitions=[{"PartitionName": "a", "MaxTiem": 1}]).fix == "did you mean MaxTime?"


def test_partition_parameters_may_be_written_in_any_case_as_slurm_reads_them() -> None:
    (partition,) = cluster(slurm_partitions=[{"partitionname": "a", "maxtime": "1-00:00:00"}]).partitions

    assert ("MaxTime", "1-00:00:00") in partition.parameters


def test_the_only_partition_is_the_default_unless_it_is_said_not_to_be() -> None:
    def default(**parameters: str) -> str | None:
        declared = cluster(slurm_partitions=[{"PartitionName": "a", **parameters}])
        return dict(declared.partitions[0].parameters).get("Default")

    assert default() == "YES"
    assert default(Default="NO") == "NO"
    assert default(Default="up") == "YES"


def test_partitions_without_a_default_are_refused_unless_each_says_so() -> None:
    def two(*defaults: str | None) -> list[dict[str, str]]:
        named = zip(("a", "b"), defaults, strict=True)
        return [{"PartitionName": name, **({"Default": value} if value else {})} for name, value in named]

    error = refusal(slurm_partitions=two(None, "NO"))

    assert error.problem.startswith("none of the partitions a, b is Default=YES: a job that names no partition")
    assert 'Default: "NO" at each' in error.fix
    assert cluster(slurm_partitions=two("NO", "NO"))
    assert cluster(slurm_partitions=two(None, "YES"))


@pytest.mark.parametrize(
    "value", ["batch", [], {}, ["batch"], [{}], [{"PartitionName": "a b"}], [{"PartitionName": True}]]
)
def test_partitions_of_another_shape_are_refused(value: object) -> None:
    assert "slurm_partitions" in refusal(slurm_partitions=value).problem


@pytest.mark.parametrize("value", ["a  b", "x\nNodeName=evil", "a#b", "'a'", '"a"', "", "a\\", {"a": 1}])
def test_a_value_that_could_end_early_or_begin_another_line_is_refused(value: object) -> None:
    assert "MailProg is" in refusal(slurm_conf_parameters={"MailProg": value}).problem


def test_a_value_of_several_words_stands_in_quotes_where_slurm_reads_to_their_end() -> None:
    declared = cluster(slurm_conf_parameters={"RebootProgram": "/opt/site/shutdown -r now"})

    assert declared.slurm_parameters["RebootProgram"] == '"/opt/site/shutdown -r now"'
    assert "no blanks" in refusal(slurm_partitions=[{"PartitionName": "a", "AllowGroups": "a b"}]).fix


@pytest.mark.parametrize(
    "name", ["NodeName", "nodename", "ClusterName", "Include", "GresTypes", "StateSaveLocation", "SlurmdLogFile"]
)
def test_a_parameter_that_the_inventory_says_elsewhere_is_refused(name: str) -> None:
    key = name[0].upper() + name[1:]

    assert f"cannot set {key}" in refusal(slurm_conf_parameters={key: "x"}).problem


@pytest.mark.parametrize("name", ["Message Timeout", "Foo=1", "#X", "message\n", "x" * 80])
def test_what_is_no_parameters_name_is_refused(name: str) -> None:
    assert "is no parameter of slurm.conf" in refusal(slurm_conf_parameters={name: 1}).problem


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "YES"), (False, "NO"), (60, "60"), (["a", "b"], "a,b"), ("CPU=1.0,Mem=0.25G", "CPU=1.0,Mem=0.25G")],
)
def test_values_become_slurms_words(value: object, text: str) -> None:
    assert cluster(slurm_conf_parameters={"JobCompParams": value}).slurm_parameters == {"JobCompParams": text}


@pytest.mark.parametrize(
    ("name", "meant"),
    [("SlurmdTimeot", "SlurmdTimeout"), ("Schedulerparameter", "SchedulerParameters"), ("KilWait", "KillWait")],
)
def test_a_misspelt_parameter_of_slurm_conf_is_refused_with_a_suggestion(name: str, meant: str) -> None:
    assert meant in refusal(slurm_conf_parameters={name: 30}).fix


@pytest.mark.parametrize("name", ["SlurmdTimeout", "slurmdtimeout", "SuspendRate"])
def test_a_parameter_that_the_release_has_is_taken_in_any_case(name: str) -> None:
    name = name[0].upper() + name[1:]
    assert cluster(slurm_conf_parameters={name: 30}).slurm_parameters == {name: "30"}


def test_a_site_may_not_keep_two_values_of_one_parameter() -> None:
    problem = refusal(slurm_conf_parameters={"MessageTimeout": 30, "Messagetimeout": 60}).problem

    assert "twice" in problem
