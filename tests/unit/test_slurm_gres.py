"""How slurmd learns of a node's GPUs: gres.conf for which cluster, and why. Pure functions."""

from __future__ import annotations

from typing import Any

import pytest
from declare import A40, cluster

from provision.errors import ClusterctlError
from provision.slurm.conf import slurm_values
from provision.slurm.render import render

H100 = {"node_cpus": 96, "node_real_memory": 1_000_000, "node_gres": "gpu:h100:8"}
# Two instances of 3g.40gb on the first GPU, as a driver places them; the second stays whole.
MIG = {**H100, "node_gres": "gpu:h100_3g.40gb:2,gpu:h100:1", "node_mig": "0:3g.40gb*2"}
INSTANCES = "0/1/0:3g.40gb,0/2/0:3g.40gb"


def gres(nodes: dict[str, dict[str, Any]] | None = None, **site: Any) -> str:
    """Return gres.conf without its first line, which says who made it."""
    return render(cluster(nodes, **site))["gres.conf"].partition("\n")[2]


def lines(nodes: dict[str, dict[str, Any]] | None = None, **site: Any) -> list[str]:
    return [line for line in gres(nodes, **site).splitlines() if not line.startswith("#")]


def refusal(nodes: dict[str, dict[str, Any]] | None = None, **site: Any) -> ClusterctlError:
    with pytest.raises(ClusterctlError) as refused:
        slurm_values(cluster(nodes, **site))
    assert refused.value.fix
    return refused.value


def test_slurm_asks_the_driver_where_it_can_and_the_file_says_so() -> None:
    assert gres() == (
        "# Detected from the driver, which needs no library; slurmd compares it with Gres= in slurm.conf\n"
        "NodeName=node[1-2] AutoDetect=nvidia\n"
    )


@pytest.mark.parametrize(
    ("nodes", "site", "reason"),
    [
        (None, {"cluster_simulated": "gpu"}, "simulated"),
        (None, {"slurm_version": "24.05"}, "before 24.11"),
        ({"node1": {**A40, "node_gres_files": "/dev/nvidia[0-3]"}}, {}, "node_gres_files names them"),
        (None, {"slurm_conf_gpu_detection": "files"}, "slurm_conf_gpu_detection says so"),
    ],
    ids=["simulated", "old Slurm", "declared files", "by hand"],
)
def test_device_files_are_named_where_nobody_can_be_asked_and_the_file_says_why(
    nodes: dict[str, dict[str, Any]] | None, site: dict[str, Any], reason: str
) -> None:
    comment, line = gres(nodes, **site).splitlines()

    assert reason in comment
    assert line.endswith(" Name=gpu Type=A40 File=/dev/nvidia[0-3]")


def test_the_library_is_asked_only_where_the_site_says_that_its_slurm_has_it() -> None:
    assert lines(slurm_conf_gpu_detection="nvml") == ["NodeName=node[1-2] AutoDetect=nvml"]


def test_gpus_are_device_files_folded_over_nodes_and_numbers() -> None:
    assert lines(slurm_conf_gpu_detection="files") == ["NodeName=node[1-2] Name=gpu Type=A40 File=/dev/nvidia[0-3]"]


def test_two_kinds_of_gpu_share_the_devices_in_order() -> None:
    found = lines({"node1": {**A40, "node_gres": "gpu:A40:3,gpu:H100:1"}}, slurm_conf_gpu_detection="files")

    assert found == [
        "NodeName=node1 Name=gpu Type=A40 File=/dev/nvidia[0-2]",
        "NodeName=node1 Name=gpu Type=H100 File=/dev/nvidia3",
    ]


def test_declared_device_files_are_used_in_their_order() -> None:
    assert lines({"node1": {**A40, "node_gres_files": "/dev/nvidia[4-7]"}})[0].endswith("File=/dev/nvidia[4-7]")


@pytest.mark.parametrize("how", ["nvidia", "files"])
def test_a_resource_without_a_device_is_counted(how: str) -> None:
    found = lines({"node1": {**A40, "node_gres": "gpu:2,nic:2"}}, slurm_conf_gpu_detection=how)

    assert found == [
        {"nvidia": "NodeName=node1 AutoDetect=nvidia", "files": "NodeName=node1 Name=gpu File=/dev/nvidia[0-1]"}[how],
        "NodeName=node1 Name=nic Count=2",
    ]


@pytest.mark.parametrize(
    ("declared", "node", "counted"),
    [
        ("nvme:3600", "nvme:3600", "Name=nvme Count=3600"),
        ("nvme:3600G", "nvme:3600G", f"Name=nvme Count={3600 * 2**30}"),
        ("scratch:local:2t", "scratch:local:2T", f"Name=scratch Type=local Count={2 * 2**40}"),
        ("NVMe-disk:16", "NVMe-disk:16", "Name=NVMe-disk Count=16"),
        ("link:lustre:no_consume:4G", "link:lustre:no_consume:4G", f"Name=link Type=lustre Count={4 * 2**30}"),
        ("link:no_consume:1", "link:no_consume:1", "Name=link Count=1"),
        ("mps:2048", "mps:2K", "Name=mps Count=2048"),
    ],
)
def test_what_has_no_device_is_counted_as_far_as_slurm_counts(declared: str, node: str, counted: str) -> None:
    files = render(cluster({"node1": {**A40, "node_gres": f"gpu:v100:4,{declared}"}}))

    assert f"Gres=gpu:v100:4,{node}" in files["slurm.conf"]
    assert files["gres.conf"].splitlines()[-1] == f"NodeName=node1 {counted}"


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ("gpu:v100:2K", "more than 1024 devices"),
        ("nvme:9000P", "more than Slurm counts"),
        ("nvme:5E", "must be name:type:count"),
        ("nvme:no_consume", "must be name:type:count"),
        ("gpu:no_consume:4", "no_consume for gpu"),
        ("gpu:4,shard:no_consume:40", "no_consume for shard"),
        ("GPU:4", "of which Slurm knows no devices"),
        ("a b:4", "must be name:type:count"),
    ],
)
def test_a_resource_that_slurm_would_not_read_so_is_refused(declared: str, problem: str) -> None:
    assert problem in refusal({"node1": {**A40, "node_gres": declared}}).problem


@pytest.mark.parametrize("kind", ["1g.10gb", "a100_1g.10gb", "A100_3g.20gb.me"])
@pytest.mark.parametrize("more", [{}, {"node_gres_files": "/dev/nvidia[0-6]"}])
def test_a_mig_profile_that_node_mig_does_not_make_is_refused_where_nobody_sees_its_instances(
    kind: str, more: dict[str, Any]
) -> None:
    declared = {**H100, "node_gres": f"gpu:{kind}:7", **more}

    error = refusal({"node1": declared})

    assert "node_mig makes no instance of" in error.problem
    assert "slurm_conf_gpu_detection=nvml" in error.fix
    if not more:
        assert lines({"node1": declared}, slurm_conf_gpu_detection="nvml") == ["NodeName=node1 AutoDetect=nvml"]


def test_a_cluster_without_gpus_names_none() -> None:
    assert gres({"node1": {"node_cpus": 2, "node_real_memory": 1000, "node_gres": ""}}) == ""


def test_a_reason_that_holds_for_several_kinds_of_nodes_stands_once() -> None:
    text = gres({"node1": A40, "node2": H100})

    assert text.count("#") == 1
    assert text.count("AutoDetect=nvidia") == 2


def test_nodes_that_slurm_can_detect_and_nodes_that_it_cannot_share_a_file() -> None:
    found = lines({"node1": A40, "node2": {**MIG, "node_mig_devices": INSTANCES}})

    assert found[0] == "NodeName=node1 AutoDetect=nvidia"
    assert all("AutoDetect" not in line for line in found[1:])


def test_a_mig_layout_without_its_devices_says_where_they_come_from() -> None:
    error = refusal({"node1": MIG})

    assert error.problem.startswith("node1: node_mig is declared and node_mig_devices is not")
    assert "clusterctl provision" in error.fix


def test_the_library_sees_mig_instances_by_itself() -> None:
    assert lines({"node1": MIG}, slurm_conf_gpu_detection="nvml") == ["NodeName=node1 AutoDetect=nvml"]


def test_a_word_that_is_no_detection_is_refused_with_the_words_that_are() -> None:
    assert "auto, files, nvidia, nvml" in refusal(slurm_conf_gpu_detection="off").problem
