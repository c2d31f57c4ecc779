"""What a job gets that does not say it: an equal share of the partition's smallest node."""

from __future__ import annotations

from typing import Any

import pytest
from declare import A40, cluster

from provision.slurm.conf import slurm_values

TIMES = {"DefaultTime": "1-00:00:00", "MaxTime": "7-00:00:00"}
CPU_ONLY = {"node_cpus": 64, "node_real_memory": 512000, "node_gres": ""}
H100 = {"node_cpus": 192, "node_real_memory": 2000000, "node_gres": "gpu:H100:8", "node_mem_spec_limit": 80000}


def shares(nodes: dict[str, dict[str, Any]], partition: dict[str, Any] | None = None, **site: Any) -> dict[str, str]:
    """Return what stands on the one partition's line beside its name and nodes."""
    if partition is not None:
        site["slurm_partitions"] = [{"PartitionName": "p", **partition}]
    (line,) = slurm_values(cluster(nodes, **site))["partitions"]
    return {name: value for name, value in line.items() if name not in ("PartitionName", "Nodes", "Default")}


def test_a_job_that_says_nothing_gets_an_equal_share_of_a_node_and_a_day() -> None:
    assert shares({"node1": A40}) == {"DefMemPerCPU": "4000", "DefMemPerGPU": "48000", "DefCpuPerGPU": "12", **TIMES}


def test_what_is_kept_for_the_system_is_no_jobs_share() -> None:
    assert shares({"node1": H100}) == {"DefMemPerCPU": "10000", "DefMemPerGPU": "240000", "DefCpuPerGPU": "24", **TIMES}


def test_the_smallest_node_of_the_partition_decides() -> None:
    nodes = {"node1": A40, "node2": H100}

    assert shares(nodes, {"Nodes": "node2"})["DefMemPerGPU"] == "240000"
    assert shares(nodes, {"Nodes": "ALL"}) == {
        "DefMemPerCPU": "4000",
        "DefMemPerGPU": "48000",
        "DefCpuPerGPU": "12",
        **TIMES,
    }


def test_a_partition_with_nodes_without_gpus_shares_memory_by_processor_alone() -> None:
    assert shares({"node1": CPU_ONLY}) == {"DefMemPerCPU": "8000", **TIMES}
    assert shares({"node1": CPU_ONLY, "node2": A40}) == {"DefMemPerCPU": "4000", "DefCpuPerGPU": "12", **TIMES}


def test_parts_of_gpus_count_as_gpus() -> None:
    made = {
        "node_mig": "0-1:1g.10gb*7",
        "node_mig_devices": ",".join(f"{gpu}/{n}/0:1g.10gb" for gpu in (0, 1) for n in range(7, 14)),
    }
    node = {**A40, "node_gres": "gpu:a100:2,gpu:1g.10gb:14", **made}

    assert shares({"node1": node})["DefMemPerGPU"] == "12000"


@pytest.mark.parametrize(
    "kept", [{"CoreSpecCount": 4}, {"CoreSpecCount": "0x4"}, {"CPUSpecList": "0-5,48,49"}, {"CPUSpecList": "0-7"}]
)
def test_processors_that_are_kept_from_jobs_are_no_jobs_share(kept: dict[str, Any]) -> None:
    threads = {"node_sockets": 2, "node_cores_per_socket": 12, "node_threads_per_core": 2}
    found = shares({"node1": {**A40, **threads, "node_parameters": kept}})

    assert (found["DefCpuPerGPU"], found["DefMemPerCPU"]) == ("10", "4800")


def test_more_gpus_than_processors_leave_the_processors_to_slurm() -> None:
    assert "DefCpuPerGPU" not in shares({"node1": {**A40, "node_cpus": 2}})


@pytest.mark.parametrize("name", ["DefMemPerCPU", "DefMemPerGPU", "DefMemPerNode"])
def test_memory_that_the_site_sets_stays_alone(name: str) -> None:
    found = shares({"node1": A40}, {name: 1000})

    assert {key: value for key, value in found.items() if key.startswith("DefMem")} == {name: "1000"}
    everywhere = shares({"node1": A40}, slurm_conf_parameters={name: 1000})
    assert not [key for key in everywhere if key.startswith("DefMem")]


def test_processors_that_the_site_sets_stay() -> None:
    assert shares({"node1": A40}, {"DefCpuPerGPU": 4})["DefCPUPerGPU"] == "4"
    assert "DefCpuPerGPU" not in shares({"node1": A40}, slurm_conf_parameters={"DefCpuPerGPU": 4})


@pytest.mark.parametrize(
    ("declared", "other"),
    [
        ({"MaxTime": "INFINITE"}, {"DefaultTime": "1-00:00:00"}),
        ({"MaxTime": "3-0"}, {"DefaultTime": "1-00:00:00"}),
        ({"MaxTime": "24:00:00"}, {"DefaultTime": "1-00:00:00"}),
        ({"MaxTime": "4:00:00"}, {"DefaultTime": "4:00:00"}),
        ({"MaxTime": "60"}, {"DefaultTime": "60"}),
        ({"DefaultTime": "10"}, {"MaxTime": "7-00:00:00"}),
        ({"DefaultTime": "14-0"}, {"MaxTime": "14-0"}),
        ({"DefaultTime": "UNLIMITED"}, {"MaxTime": "UNLIMITED"}),
        ({"DefaultTime": "10", "MaxTime": "20"}, {}),
    ],
)
def test_where_the_site_sets_one_of_the_times_the_other_fits_it(
    declared: dict[str, str], other: dict[str, str]
) -> None:
    found = shares({"node1": A40}, declared)

    assert {name: found[name] for name in found if name.endswith("Time")} == {**declared, **other}
