"""What real sites write stays accepted: of Slurm's manual pages and its example files, and of clusters with GPUs."""

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
    # Slurm's etc/slurm.conf.example, what is the site's of it.
    conf(
        ReturnToService=1,
        InactiveLimit=0,
        KillWait=30,
        MinJobAge=300,
        SlurmctldTimeout=120,
        SlurmdTimeout=300,
        WaitTime=0,
        SchedulerType="sched/backfill",
        SwitchType="switch/none",
        MpiDefault="none",
        JobCompType="jobcomp/none",
        SlurmctldDebug="info",
        SlurmdDebug="info",
        SlurmctldPort=6817,
        SlurmdPort=6818,
        HealthCheckInterval=0,
    ),
    conf(
        DisableRootJobs="NO",
        FirstJobId=1,
        MaxJobId=67043328,
        JobRequeue=1,
        Licenses="foo:4,bar",
        MaxJobCount=10000,
        MaxStepCount=40000,
        MaxTasksPerNode=512,
        PrivateData="jobs",
        SlurmdUser="root",
        UnkillableStepTimeout=60,
    ),
    # A large cluster.
    conf(
        MessageTimeout=60,
        TCPTimeout=10,
        TreeWidth=128,
        SlurmctldParameters="enable_configless,node_reg_mem_percent=95,"
        "validate_nodeaddr_threads=64,rl_enable,rl_bucket_size=50",
        SlurmctldPort="6817-6820",
        MaxArraySize=100001,
    ),
    conf(
        SchedulerParameters="bf_window=10080,bf_resolution=600,bf_max_job_test=1000,bf_max_job_user=30,bf_interval=60,"
        "bf_continue,default_queue_depth=500,max_rpc_cnt=150,sched_min_interval=2000000,defer,bf_max_time=600"
    ),
    conf(
        SchedulerParameters=[
            "bf_interval=-1",
            "batch_sched_delay=10",
            "nohold_on_prolog_fail",
            "max_script_size=4194304",
        ]
    ),
    conf(LaunchParameters="use_interactive_step,enable_nss_slurm,ulimit_pam_adopt,slurmstepd_memlock"),
    conf(
        PrologFlags="Contain,X11",
        X11Parameters="home_xauthority",
        DebugFlags="NO_CONF_HASH,Gres",
        SlurmctldDebug="verbose",
    ),
    conf(PropagateResourceLimitsExcept="MEMLOCK"),
    conf(HealthCheckProgram="/opt/site/nhc", HealthCheckInterval=300, HealthCheckNodeState="ANY,CYCLE"),
    conf(TaskPluginParam="Autobind=cores", SelectTypeParameters="CR_Core_Memory,CR_ONE_TASK_PER_CORE"),
    conf(SelectTypeParameters="CR_CPU_Memory,CR_LLN"),
    conf(SelectType="select/linear", SelectTypeParameters="CR_Memory"),
    conf(JobCompType="jobcomp/filetxt", JobCompLoc="/var/spool/slurmctld/jobcomp.log"),
    conf(
        PriorityType="priority/multifactor",
        PriorityDecayHalfLife="14-0",
        PriorityMaxAge="7-0",
        PriorityFavorSmall="NO",
        PriorityWeightAge=1000,
        PriorityWeightFairshare=100000,
        PriorityWeightJobSize=1000,
        PriorityWeightPartition=1000,
        PriorityWeightQOS=10000,
        PriorityWeightTRES="CPU=1000,Mem=2000,GRES/gpu=3000",
        PriorityCalcPeriod=5,
    ),
    conf(PriorityDecayHalfLife=0, PriorityUsageResetPeriod="MONTHLY", PriorityFlags="NO_FAIR_TREE,ACCRUE_ALWAYS"),
    conf(AuthInfo="socket=/var/run/munge/munge.socket.2,cred_expire=300"),
    conf(AuthInfo="/var/run/munge/munge.socket.2"),
    conf(
        AuthAltTypes="auth/jwt", AuthAltParameters="jwt_key=/var/spool/slurmctld/jwt_hs256.key,max_token_lifespan=3600"
    ),
    conf(MpiParams="ports=12000-12999", MpiDefault="pmix"),
    conf(CommunicationParameters="NoCtldInAddrAny,keepalivetime=60"),
    conf(Prolog="/opt/site/prolog.d/*", Epilog=["/opt/site/epilog", "/home/admin/epilog"], PrologEpilogTimeout=120),
    {**conf(Prolog=["gpu-check.sh"]), "slurm_conf_files": {"gpu-check.sh": "#!/bin/bash\nnvidia-smi -L\n"}},
    conf(PreemptType="preempt/qos", PreemptMode="REQUEUE", PreemptParameters="min_exempt_priority=10,send_user_signal"),
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
    # A database of the site's own, of which nothing is known here.
    {
        **conf(
            AccountingStorageType="accounting_storage/slurmdbd",
            AccountingStorageHost="slurmdbd.site.example",
            AccountingStorageEnforce="limits,qos",
        ),
        "slurm_partitions": [{"PartitionName": "p", "AllowAccounts": "gold"}],
    },
    {
        "slurm_conf_cgroup_parameters": {
            "ConstrainCores": "yes",
            "ConstrainDevices": "yes",
            "ConstrainRAMSpace": "yes",
            "ConstrainSwapSpace": "yes",
            "AllowedSwapSpace": 0,
            "AllowedRAMSpace": 100,
            "MaxRAMPercent": 98,
            "MinRAMSpace": 30,
        }
    },
    # topology.conf(5).
    {
        **conf(TopologyPlugin="topology/tree", TopologyParam="TopoOptional,SwitchAsNodeRank"),
        "slurm_conf_files": {
            "topology.conf": "SwitchName=s0 Nodes=gpu[1-2]\nSwitchName=s1 Nodes=a40,cpu[1-2]\n"
            "SwitchName=s3 Switches=s[0-1]\n"
        },
    },
    {
        **conf(TopologyPlugin="topology/block"),
        "slurm_conf_files": {
            "topology.conf": "BlockName=block1 Nodes=gpu[1-2]\nBlockName=block2 Nodes=cpu[1-2]\nBlockSizes=2,4\n"
        },
    },
    {
        "slurm_conf_files": {"job_container.conf": "AutoBasePath=true\nBasePath=/scratch/jobs\nDirs=/tmp,/dev/shm\n"},
        "cluster_mounts": [{"path": "/scratch", "fstype": "local", "groups": ["slurm_compute"]}],
    },
    {"job_container_runtime": "pyxis", "slurm_conf_files": {"plugstack.conf": "required /opt/pyxis/spank_pyxis.so"}},
    # File systems.
    {
        "cluster_mounts": [
            {"path": "/home", "fstype": "nfs4", "source": "nas1.site.example:/export/home"},
            {
                "path": "/data",
                "fstype": "nfs4",
                "source": "[fd00::5]:/data",
                "options": "vers=4.2,hard,nconnect=8,noatime,nodev",
                "read_only": True,
            },
            {
                "path": "/lustre",
                "fstype": "lustre",
                "source": "10.0.0.5@o2ib:10.0.0.6@o2ib:/fs",
                "options": "flock,_netdev",
            },
            {"path": "/apps", "fstype": "present"},
        ]
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


def test_there_are_enough_of_them() -> None:
    assert len(SITES) >= 30
