"""What real sites write of several things at once stays accepted: partitions, accounts, topology."""

from __future__ import annotations

from typing import Any

import pytest
from declare import A40, cluster

from provision.slurm.render import render

H100 = {"node_cpus": 224, "node_sockets": 2, "node_cores_per_socket": 56, "node_threads_per_core": 2}
H100 |= {"node_real_memory": 2000000, "node_gres": "gpu:h100:8", "node_features": "h100,nvlink", "node_weight": 20}
CPU = {"node_cpus": 128, "node_real_memory": "515000", "node_mem_spec_limit": 8192, "node_tmp_disk": 900000}
#: Nodes of three kinds.
NODES = {"gpu1": H100, "gpu2": H100, "a40": A40, "cpu1": CPU, "cpu2": CPU}
GROUPS = [
    {"name": "physics", "Fairshare": 60, "GrpTRES": "gres/gpu=16,cpu=256", "users": ["slurmtest"]},
    {"name": "particle", "parent": "physics", "Fairshare": "parent", "MaxJobs": 50, "MaxWall": "2-00:00:00"},
    {"name": "teaching", "Fairshare": 5, "GrpTRESMins": "gres/gpu=100000", "users": [{"name": "lea", "MaxJobs": 10}]},
]
QOS = [
    {"name": "low", "Priority": 0, "PreemptMode": "requeue", "GraceTime": "00:05:00", "PreemptExemptTime": "30"},
    {
        "name": "high",
        "Priority": 1000,
        "Preempt": ["low"],
        "MaxTRESPU": "gres/gpu=8",
        "Flags": "DenyOnLimit,OverPartQOS",
    },
    {"name": "part-gpu", "GrpTRES": "gres/gpu=20", "MinTRES": "gres/gpu=1", "MaxTRES": "gres/gpu=16"},
]
ACCOUNTED = {"database": True, "slurm_accounts": GROUPS, "slurm_qos": QOS}


def conf(**parameters: Any) -> dict[str, Any]:
    return {"slurm_conf_parameters": parameters}


SITES: list[dict[str, Any]] = [
    # Power saving, with the programs in the image.
    {
        **conf(
            SuspendProgram="/usr/sbin/node-off",
            ResumeProgram="/usr/sbin/node-on",
            SuspendTime=1800,
            SuspendTimeout=120,
            SuspendExcParts="batch",
            SuspendRate=10,
        ),
        "slurm_image_extra_packages": ["site-power"],
    },
    # Partitions.
    {
        "slurm_partitions": [
            {
                "PartitionName": "gpu",
                "Nodes": "gpu[1-2],a40",
                "Default": "YES",
                "MaxTime": "2-00:00:00",
                "DefaultTime": "1:00:00",
                "DefMemPerGPU": 48000,
                "DefCpuPerGPU": 12,
                "TRESBillingWeights": "CPU=0.5,Mem=0.1G,GRES/gpu=8",
                "State": "UP",
            },
            {"PartitionName": "cpu", "Nodes": "cpu[1-2]", "MaxNodes": 2, "OverSubscribe": "NO", "MaxMemPerCPU": 8000},
            {
                "PartitionName": "debug",
                "Nodes": "ALL",
                "MaxTime": 30,
                "PriorityTier": 10,
                "MaxNodes": 1,
                "Hidden": "NO",
            },
            {"PartitionName": "all", "Nodes": "ALL"}
            | {"PartitionName": "every", "Hidden": "YES", "AllowGroups": ["hpc-admins"]},
        ]
    },
    {
        "slurm_partitions": [
            {"PartitionName": "high", "Default": "YES", "PriorityTier": 10, "PreemptMode": "OFF"},
            {
                "PartitionName": "scavenge",
                "PriorityTier": 1,
                "PreemptMode": "REQUEUE",
                "GraceTime": 120,
                "OverSubscribe": "FORCE:1",
            },
        ],
        **conf(PreemptType="preempt/partition_prio", PreemptMode="REQUEUE"),
    },
    {
        **ACCOUNTED,
        "slurm_partitions": [
            {
                "PartitionName": "gpu",
                "Default": "YES",
                "AllowAccounts": "physics",
                "AllowQos": "normal,high,low",
                "QOS": "part-gpu",
            },
            {"PartitionName": "course", "AllowAccounts": "teaching", "DenyQos": "high", "MaxTime": "4:00:00"},
        ],
    },
    {
        **ACCOUNTED,
        **conf(
            AccountingStorageEnforce="associations,limits,qos,safe",
            AccountingStoreFlags="job_script,job_env",
            AccountingStorageTRES="gres/gpu,gres/gpumem,gres/gpuutil",
        ),
    },
    {
        **ACCOUNTED,
        "slurm_database_parameters": {
            "PurgeEventAfter": "12months",
            "PurgeJobAfter": "36months",
            "PurgeStepAfter": "6months",
            "PrivateData": "accounts,users,usage,jobs",
            "TrackWCKey": "yes",
            "DefaultQOS": "normal,high",
            "MaxQueryTimeRange": "60-0",
            "CommitDelay": 1,
            "DebugLevel": "verbose",
            "MessageTimeout": 300,
        },
    },
    # topology.conf(5).
    {
        **conf(TopologyPlugin="topology/block"),
        "slurm_conf_files": {
            "topology.conf": "BlockName=block1 Nodes=gpu[1-2]\nBlockName=block2 Nodes=cpu[1-2]\nBlockSizes=2,4\n"
        },
    },
]


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("release", ["24.11", "25.05"])
def test_what_sites_write_is_taken_and_stands_in_the_files(site: dict[str, Any], release: str) -> None:
    told = render(cluster(NODES, slurm_version=release, **site))

    for name, value in (site.get("slurm_conf_parameters") or {}).items():
        if isinstance(value, str | int) and not isinstance(value, bool):
            assert f"\n{name}=" in told["slurm.conf"]
    for one in site.get("slurm_partitions") or ():
        assert f"\nPartitionName={one['PartitionName']} " in told["slurm.conf"]
