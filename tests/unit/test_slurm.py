"""What stands in Slurm's files for which cluster. Pure functions: no file, no machine."""

from __future__ import annotations

from typing import Any

import pytest
from declare import A40, cluster

from provision.errors import ClusterctlError, ExitCode
from provision.slurm.conf import slurm_values, unconfined
from provision.slurm.render import render


def parameters(**site: Any) -> dict[str, str]:
    nodes = site.pop("nodes", None)
    return {line["name"]: line["value"] for line in slurm_values(cluster(nodes, **site))["parameters"]}


def test_equal_nodes_are_one_line() -> None:
    lines = slurm_values(cluster({f"node{number}": A40 for number in range(1, 65)}))["nodes"]

    assert lines == [{"NodeName": "node[1-64]", "CPUs": "48", "RealMemory": "192000", "Gres": "gpu:A40:4"}]


def test_the_same_hardware_written_differently_is_still_one_kind() -> None:
    nodes = {
        "node1": {**A40, "node_cpus": "48"},
        "node2": {**A40, "node_gres": ["gpu:A40:4"], "node_cgroup_version": 2},
    }

    assert [line["NodeName"] for line in slurm_values(cluster(nodes))["nodes"]] == ["node[1-2]"]


def test_each_kind_of_hardware_has_its_line() -> None:
    nodes = {"node1": A40, "node2": {**A40, "node_real_memory": 96000}, "node3": A40}

    assert [line["NodeName"] for line in slurm_values(cluster(nodes))["nodes"]] == ["node[1,3]", "node2"]


def test_a_nodes_line_has_what_else_the_site_says_and_equal_ones_stay_one() -> None:
    given = {"TRESWeights": "CPU=1.0,Mem=0.25G", "CORESpecCount": 2, "BcastAddr": None}
    nodes = {
        "node1": {**A40, "node_parameters": given},
        "node2": {**A40, "node_parameters": dict(reversed(given.items()))},
    }

    lines = slurm_values(cluster({**nodes, "node3": A40}))["nodes"]

    assert [list(line.items())[-2:] for line in lines[:1]] == [
        [("CoreSpecCount", "2"), ("TRESWeights", "CPU=1.0,Mem=0.25G")]
    ]
    assert [line["NodeName"] for line in lines] == ["node[1-2]", "node3"]


@pytest.mark.parametrize("of_the_site", ["", "AutoBasePath=true\nBasePath=/var/lib/clusterctl/jobtmp"])
def test_a_node_whose_jobs_share_its_tmp_is_named_after_what_is_said_of_all(of_the_site: str) -> None:
    site = {"slurm_conf_files": {"job_container.conf": of_the_site}} if of_the_site else {}
    new = {**A40, "node_private_tmp": "false"}
    nodes = {"node1": new, "node2": A40, "node3": {**A40, "node_private_tmp": "true"}, "node4": new}

    rendered = render(cluster(nodes, **site))

    lines = rendered["job_container.conf"].splitlines()
    assert lines[-1] == "NodeName=node[1,4] BasePath=none"
    assert "BasePath=/var/lib/clusterctl/jobtmp" in lines
    # It is no hardware: the nodes stay one kind.
    assert "NodeName=node[1-4] CPUs" in rendered["slurm.conf"]
    assert "NodeName" not in render(cluster(**site))["job_container.conf"]


def test_everything_that_is_declared_stands_on_the_line_in_slurms_words() -> None:
    node = {
        **A40,
        "node_sockets": 2,
        "node_cores_per_socket": 12,
        "node_threads_per_core": 2,
        "node_features": "ib,nvme",
        "node_weight": 5,
        "node_tmp_disk": 1000,
        "node_mem_spec_limit": 2000,
    }

    (line,) = slurm_values(cluster({"node1": node}))["nodes"]

    assert " ".join(f"{key}={value}" for key, value in line.items()) == (
        "NodeName=node1 CPUs=48 Sockets=2 CoresPerSocket=12 ThreadsPerCore=2 RealMemory=192000 MemSpecLimit=2000 "
        "TmpDisk=1000 Gres=gpu:A40:4 Feature=ib,nvme Weight=5"
    )


def test_several_boards_count_their_sockets_per_board() -> None:
    # Sockets and SocketsPerBoard exclude each other: slurm.conf(5).
    node = {"node_cpus": 64, "node_real_memory": 1000, "node_boards": 2, "node_sockets": 4, "node_cores_per_socket": 16}

    (line,) = slurm_values(cluster({"node1": node}))["nodes"]

    assert (line["Boards"], line["SocketsPerBoard"]) == ("2", "2")
    assert "Sockets" not in line


def test_undeclared_hardware_refuses_to_be_rendered_and_says_who_lacks_what() -> None:
    with pytest.raises(ClusterctlError) as refused:
        slurm_values(cluster({"node1": {}, "node2": {}, "node3": A40}))

    assert refused.value.problem == "node[1-2]: node_cpus and node_real_memory not declared"
    assert "clusterctl discover" in refused.value.fix
    assert refused.value.exit_code is ExitCode.BAD_REQUEST


def test_a_cluster_without_gpus_names_none() -> None:
    node = {"node_cpus": 2, "node_real_memory": 1000, "node_gres": ""}

    assert "GresTypes" not in parameters(nodes={"node1": node})


def test_jobs_are_confined_where_all_nodes_have_cgroup_v2() -> None:
    values = slurm_values(cluster())

    assert {line["name"]: line["value"] for line in values["cgroup"]} == {
        "IgnoreSystemd": "yes",
        "ConstrainCores": "yes",
        "ConstrainDevices": "yes",
        "ConstrainRAMSpace": "yes",
        "ConstrainSwapSpace": "yes",
    }
    assert parameters()["ProctrackType"] == "proctrack/cgroup"
    assert parameters()["TaskPlugin"] == "task/cgroup,task/affinity"


@pytest.mark.parametrize("others", [{}, {"node_cgroup_version": 2}, {"node_cgroup_version": 1}])
@pytest.mark.parametrize(
    "allowed", [{}, {"slurm_conf_cgroup_v1_allowed": False}, {"slurm_conf_cgroup_v1_allowed": "no"}]
)
def test_a_node_with_cgroup_v1_is_refused_by_name_with_both_ways_out(
    others: dict[str, Any], allowed: dict[str, Any]
) -> None:
    nodes = {"node1": {**A40, **others}, "node2": {**A40, "node_cgroup_version": 1}}

    with pytest.raises(ClusterctlError) as caught:
        slurm_values(cluster(nodes, **allowed))

    named = "node[1-2]" if others == {"node_cgroup_version": 1} else "node2"
    assert caught.value.problem.startswith(f"{named}: node_cgroup_version is 1")
    assert "unified_cgroup_hierarchy=1" in caught.value.fix
    assert "slurm_conf_cgroup_v1_allowed=true under [all:vars]" in caught.value.fix


@pytest.mark.parametrize("allowed", [True, "true", "yes"])
def test_a_site_may_do_without_confinement_for_all_and_is_told_that_it_does(allowed: Any) -> None:
    nodes = {"node1": {**A40, "node_cgroup_version": 1}, "node2": {**A40, "node_cgroup_version": 2}}
    site = {"slurm_conf_cgroup_v1_allowed": allowed}

    values = slurm_values(cluster(nodes, **site))

    assert [line for line in values["cgroup"] if line["name"].startswith("Constrain")] == []
    assert parameters(nodes=nodes, **site)["ProctrackType"] == "proctrack/linuxproc"
    assert parameters(nodes=nodes, **site)["TaskPlugin"] == "task/affinity"
    assert unconfined(cluster(nodes, **site)).startswith("node1: cgroup v1")


def test_jobs_count_as_confined_only_where_task_cgroup_is_in_use() -> None:
    assert unconfined(cluster()) == ""
    assert unconfined(cluster(slurm_conf_parameters={"TaskPlugin": "task/affinity,task/cgroup"})) == ""
    assert "TaskPlugin" in unconfined(cluster(slurm_conf_parameters={"Taskplugin": "task/affinity"}))
    assert "TaskPlugin" in unconfined(cluster(slurm_conf_parameters={"TaskPlugin": None}))


@pytest.mark.parametrize(("version", "written"), [("24.11", False), ("25.05", False), ("25.11", True), ("26.05", True)])
def test_http_is_switched_off_where_slurm_has_it_and_unknown_where_not(version: str, written: bool) -> None:
    # A key that a version never knew is fatal to it.
    assert (parameters(slurm_version=version).get("CommunicationParameters") == "disable_http") is written


@pytest.mark.parametrize(("version", "lines"), [("23.11", []), ("24.05", ["disabled"]), ("24.11", ["disabled"])])
def test_cgroups_are_disabled_by_name_where_slurm_knows_the_word(version: str, lines: list[str]) -> None:
    nodes = {"node1": {**A40, "node_cgroup_version": 1}}
    values = slurm_values(cluster(nodes, slurm_version=version, slurm_conf_cgroup_v1_allowed=True))

    assert [line["value"] for line in values["cgroup"]] == lines


@pytest.mark.parametrize(("version", "frequency"), [(1, "task=5"), (2, None)])
def test_short_steps_are_measured_also_where_no_control_group_counts(version: int, frequency: str | None) -> None:
    values = slurm_values(
        cluster({"node1": {**A40, "node_cgroup_version": version}}, slurm_conf_cgroup_v1_allowed=True)
    )

    assert {line["name"]: line["value"] for line in values["parameters"]}.get("JobAcctGatherFrequency") == frequency


def test_every_parameter_of_ours_has_a_reason() -> None:
    values = slurm_values(cluster())

    assert [line["name"] for line in values["parameters"] + values["cgroup"] if len(line["reason"]) < 15] == []


def test_nothing_needs_a_database_that_is_not_there() -> None:
    # slurmctld 24.11.5 ends with "slurmdbd is required to run with TRES gres/gpu"; tried.
    assert "AccountingStorageTRES" not in parameters()


def test_the_sites_parameters_replace_remove_and_add() -> None:
    found = parameters(slurm_conf_parameters={"ReturnToService": 1, "EnforcePartLimits": None, "MessageTimeout": 30})

    assert found["ReturnToService"] == "1"
    assert "EnforcePartLimits" not in found
    assert list(found)[-1] == "MessageTimeout"


def test_the_sites_spelling_of_a_parameter_does_not_make_it_twice() -> None:
    found = parameters(slurm_conf_parameters={"Returntoservice": 1})

    assert [name for name in found if name.lower() == "returntoservice"] == ["ReturnToService"]


@pytest.mark.parametrize("value", [None, "idle_on_node_suspend", "enable_configless,idle_on_node_suspend"])
def test_the_site_cannot_lose_what_brings_nodes_their_configuration(value: str | None) -> None:
    found = parameters(slurm_conf_parameters={"SlurmctldParameters": value})["SlurmctldParameters"].split(",")

    assert found.count("enable_configless") == 1
    assert value is None or "idle_on_node_suspend" in found


def test_partitions_keep_the_operators_words_and_order() -> None:
    partitions = [{"PartitionName": "gpu", "Nodes": "node[1-2]", "Default": "YES", "MaxTime": "INFINITE"}]

    (line,) = slurm_values(cluster(slurm_partitions=partitions))["partitions"]

    assert list(line.items())[:4] == list(partitions[0].items())


def test_ten_thousand_nodes_of_two_kinds_are_two_lines() -> None:
    nodes = {f"n{number:05d}": A40 if number % 2 else {**A40, "node_cpus": 96} for number in range(10_000)}

    assert len(slurm_values(cluster(nodes))["nodes"]) == 2


@pytest.mark.parametrize(("message", "unkillable"), [(100, 500), (30, 300)])
def test_a_step_that_cannot_be_killed_has_five_times_as_long_as_a_message(message: int, unkillable: int) -> None:
    text = render(cluster(slurm_conf_parameters={"MessageTimeout": message}))["slurm.conf"]

    assert f"\nUnkillableStepTimeout={unkillable}\n" in text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"CPUs": 4}, "it is node_cpus"), ({"CoreSpecCont": 2}, "did you mean CoreSpecCount?"),
        ({"NodeAddr": "10.0.0.1"}, "address and port from the inventory"), ({"State": "CLOUD"}, "none is CLOUD or"),
        ({"Topology": "a:b"}, "it came with 25.05"), ({"CoreSpecCount": "UNLIMITED"}, "from 0 to 65533"),
        ({"TRESWeights": "CPU=1 State=DOWN"}, "cannot hold that"), ({"TRESWeights": "a\nNodeName=x"}, "cannot hold"),
        ({"CoreSpecCount": 1, "CORESpecCount": 2}, "twice"), ("CoreSpecCount=2", "must map parameters of a node"),
    ],
)  # fmt: skip
def test_what_a_nodes_line_may_not_have_is_refused(given: Any, said: str) -> None:
    with pytest.raises(ClusterctlError) as refused:
        cluster({"node1": {**A40, "node_parameters": given}})

    assert said in f"{refused.value.problem}. {refused.value.fix}"
