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


@pytest.mark.parametrize("value", ["a  b", "x\nNodeName=evil", "a#b", "'a'", '"a"', "", "a\\", {"a": 1}])
def test_a_value_that_could_end_early_or_begin_another_line_is_refused(value: object) -> None:
    assert "MailProg is" in refusal(slurm_conf_parameters={"MailProg": value}).problem


def test_a_value_of_several_words_stands_in_quotes_where_slurm_reads_to_their_end() -> None:
    declared = cluster(slurm_conf_parameters={"RebootProgram": "/opt/site/shutdown -r now"})

    assert declared.slurm_parameters["RebootProgram"] == '"/opt/site/shutdown -r now"'
    assert "no blanks" in refusal(slurm_partitions=[{"PartitionName": "a", "AllowGroups": "a b"}]).fix


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "YES"), (False, "NO"), (60, "60"), (["a", "b"], "a,b"), ("CPU=1.0,Mem=0.25G", "CPU=1.0,Mem=0.25G")],
)
def test_values_become_slurms_words(value: object, text: str) -> None:
    assert cluster(slurm_conf_parameters={"JobCompParams": value}).slurm_parameters == {"JobCompParams": text}


@pytest.mark.parametrize("name", ["SlurmdTimeout", "slurmdtimeout", "SuspendRate"])
def test_a_parameter_that_the_release_has_is_taken_in_any_case(name: str) -> None:
    name = name[0].upper() + name[1:]
    assert cluster(slurm_conf_parameters={name: 30}).slurm_parameters == {name: "30"}
