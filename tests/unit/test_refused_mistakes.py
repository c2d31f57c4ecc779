"""Mistakes of every kind in the inventory: types, ranges, releases, spelling, contradictions, and what is no text."""

from __future__ import annotations

from typing import Any

import pytest
from declare import A40, cluster

from provision.errors import ClusterctlError, ExitCode


def conf(**parameters: Any) -> dict[str, Any]:
    return {"slurm_conf_parameters": parameters}


def files(name: str, text: str, **parameters: Any) -> dict[str, Any]:
    return {"slurm_conf_files": {name: text}, **conf(**parameters)}


def partition(**parameters: Any) -> dict[str, Any]:
    return {"slurm_partitions": [{"PartitionName": "gpu", **parameters}]}


def database(**parameters: Any) -> dict[str, Any]:
    return {"database": True, "slurm_database_parameters": parameters}


def qos(**settings: Any) -> dict[str, Any]:
    return {"database": True, "slurm_qos": [{"name": "x", **settings}]}


MISTAKES: list[tuple[dict[str, Any], str]] = [
    # What is no text, or none that a file could hold.
    (conf(MaxJobCount=True), "a whole number"), (conf(MaxJobCount=[1, 2]), "a whole number"),
    (conf(MaxJobCount={"a": 1}), "cannot hold that"), (conf(MaxJobCount=""), "cannot hold that"),
    (conf(MaxJobCount="1e6"), "a whole number"), (conf(TmpFS="/tmp\n/x"), "cannot hold that"),
    (conf(TmpFS="/a#b"), "cannot hold that"), (conf(MailDomain="ü.de"), "cannot hold that"),
    (conf(AccountingStorageHost="db\nInclude=/x"), "cannot hold that"), (conf(JobCompHost="x" * 300), "host's name"),
    (conf(SlurmctldAddr="999.1.1.1"), "a host's name or address"), (conf(JobCompHost="10.0.0"), "host's name"),
    (partition(MaxTime={"a": 1}), "cannot hold that"), (partition(MaxTime="1-0\nNodes=x"), "cannot hold that"),
    (partition(PriorityTier=1.5), "a whole number"), (partition(AllowGroups={"a": 1}), "cannot hold that"),
    ({"slurm_partitions": [{"PartitionName": "gpü"}]}, "it must be a name"),
    ({"slurm_partitions": [{"PartitionName": "gpu,cpu"}]}, "it must be a name"),
    ({"slurm_accounts": [{"name": "a", "users": ["slurmtest"], "description": True}], "database": True}, "use letters"),
    # Numbers of words, and what is on by being there.
    (conf(SchedulerParameters="bf_interval=-5"), "a number"), (conf(SchedulerParameters="bf_interval=0"), "a number"),
    (conf(SchedulerParameters="bf_interval=20000"), "from -1 to 10800"),
    (conf(SchedulerParameters="bf_window=99999"), "from 1 to 43200"),
    (conf(SchedulerParameters="bf_max_job_test=999999999"), "from 1 to 1000000"),
    (conf(SchedulerParameters="max_script_size=99999999999"), "from 0 to 536870912"),
    (conf(SchedulerParameters="bf_continue=no"), "is on whatever its value: leave bf_continue out"),
    (conf(SlurmctldParameters="rl_enable=false"), "leave rl_enable out"),
    (conf(SlurmctldParameters="rl_bucket_size=x"), "must be a number"),
    (conf(SlurmctldParameters="max_dbd_msg_action=exti"), "did you mean exit?"),
    (conf(CommunicationParameters="keepalivetime=99999999999999"), "must be a number from"),
    (conf(AuthInfo="cred_expire=abc"), "must be a number"), (conf(AuthInfo="cred_expire=1"), "from 5 to"),
    # Of other releases.
    (conf(SlurmctldParameters="cloud_reg_addrs"), "does nothing since 23.11"),
    (conf(CommunicationParameters="NoAddrCache"), "does nothing since 23.11"),
    (conf(CommunicationParameters="disable_http"), "it came with 25.11"),
    (conf(DebugFlags="AuditTLS"), "one or more of Accrue"),
    ({"slurm_version": "23.11", **conf(PrologFlags="Contain,RunInJob")}, "one or more of Alloc"),
    ({"slurm_version": "23.02", **conf(AuthInfo="disable_sack")}, "it came with 23.11"),
    (conf(SelectTypeParameters="CR_Core_Memory,OTHER_CONS_TRES"), "23.11 was its last"),
    (conf(JobSubmitPlugins="cray_aries"), "23.11 was its last"),
    ({"slurm_version": "21.08"}, "22.05 or newer"), ({"slurm_version": "24.11.5"}, "releases, for example 24.11"),
    # Lists that contradict themselves.
    (conf(TaskPlugin="task/cgroup,task/cgroup"), "a plugin twice"), (conf(RequeueExit="300"), "no range of exit codes"),
    (conf(RequeueExitHold="5-1"), "no range of exit codes"), (conf(PropagateResourceLimits="NONE,ALL"), "stands alone"),
    (conf(PropagateResourceLimits="NONE", PropagateResourceLimitsExcept="MEMLOCK"), "exclude each other"),
    (conf(PriorityWeightTRES="CPU=1,cpu=2"), "cpu is there twice"),
    (partition(TRESBillingWeights="CPU=1.0,CPU=2.0"), "cpu is there twice"),
    (partition(CpuBind="threads,cores"), "exclude each other"),
    (conf(LogTimeFormat="iso8601,rfc5424"), "exclude each other"),
    (conf(MCSPlugin="mcs/account", MCSParameters="enforced,selct"), "did you mean select?"),
    (conf(MpiParams="ports=5000-4000"), "the lower one first"), (conf(MpiParams="ports=70000-70010"), "write a range"),
    (conf(MpiParams="ports=abc"), "ports=LOW-HIGH"), (conf(SlurmctldPort=80), "from 1024"),
    (conf(SrunPortRange="1-1023"), "from 1024"), (conf(SlurmdPort=22), "from 1024"),
    # One without the other.
    (conf(AuthAltParameters="jwt_key=/var/spool/slurmctld/jwt"), "set AuthAltTypes: auth/jwt"),
    (conf(AuthAltTypes="auth/jwt", AuthAltParameters="jwt_key=/etc/jwt.key"), "write jwt_key=/var/spool/slurmctld"),
    (conf(HealthCheckNodeState="IDLE"), "set without HealthCheckProgram"),
    (conf(AcctGatherNodeFreq=30), "without AcctGatherEnergyType"),
    (conf(PriorityType="priority/basic", PriorityWeightAge=5), "read with priority/multifactor alone"),
    (conf(PriorityCalcPeriod=0), "PriorityCalcPeriod is 0"), (conf(TCPTimeout=0), "from 1"),
    (conf(NodeFeaturesPlugins="node_features/helpers"), "reads helpers.conf"),
    (partition(PreemptMode="REQUEUE"), "without PreemptType"), (partition(PowerDownOnIdle="YES"), "no node would be"),
    ({**conf(PreemptType="preempt/partition_prio", PreemptMode="REQUEUE"), **partition(PreemptMode="SUSPEND")},
     "needs GANG for the whole cluster"),
    (partition(MinNodes="UNLIMITED"), "from 0 to 65536"), (partition(MaxMemPerCPU=4), "it is in MB"),
    (partition(DefMemPerGPU=24), "it is in MB"),
    # The database.
    (database(PurgeJobAfter="0"), "hours, days or months"), (database(PurgeJobAfter="99999999months"), "hours, days"),
    (database(MaxQueryTimeRange="0"), "every question would be refused"), (database(JobPurge=12), "PurgeJobAfter"),
    (database(PurgeStepMonths=12), "PurgeStepAfter"), (database(StorageParameters="foo=x"), "no word 'foo=x'"),
    (database(AuthInfo="socket=/x"), "remove socket="), (database(DebugLevel="loud"), "one of quiet"),
    (qos(MinTRES="cpu=10", MaxTRES="cpu=5"), "more cpu than MaxTRES"), (qos(GrpTRES="cpu=1.5"), "it must be TRES"),
    (qos(MaxWall={"a": 1}), "it must be minutes"),
    # The proof.
    ({"cluster_test_user": "root"}, "not root's"), ({"cluster_test_user": "ada lovelace"}, "a user's name"),
    ({"cluster_test_uid": 0}, "1000 or more"), ({"cluster_test_account": "Gold x"}, "an account's name"),
    ({"cluster_simulated": "gpus"}, "did you mean gpu?"),
    # Files.
    (files("topology.conf", "SwitchName=s1 Nodes=node1 Nodes=node2", TopologyPlugin="topology/tree"), "nodes is there"),
    (files("mpi.conf", "PMIxDebug=1 PMIxDebug=2"), "pmixdebug is there twice"),
    (files("job_container.conf", "BasePath=/var/tmp/../../etc"), "written plainly"),
    (files("job_container.conf", "BasePath=/var/tmp\nDirs=/,/etc"), "a job would see empty"),
    (files("job_container.conf", "BasePath=/var/tmp\nDirs=/tmp,/home"), "Dirs has /home"),
    (files("job_container.conf", "BasePath=/var/tmp\nInitScript=/etc/x.sh"), "/etc/x.sh is not in the container"),
    (files("job_container.conf", "BasePath=/var/tmp\nInitScript=/opt/../etc/x"), "/etc/x is not in the container"),
    (files("plugstack.conf", "# ours\nrequired /etc/slurm/x.so"), "its line 2: /etc/slurm/x.so is not in"),
    (files("helpers.conf", "Feature=a Helper=/srv/a", NodeFeaturesPlugins="node_features/helpers"), "/srv/a is not in"),
    (files("acct_gather.conf", "ProfileHDF5Dir=rel"), "a whole path"),
]  # fmt: skip

NODES: list[tuple[dict[str, Any], str]] = [
    ({"node_cpus": True}, "node_cpus"), ({"node_cpus": 48.5}, "node_cpus"),
    ({"node_cpus": "\uff14\uff18"}, "node_cpus"),
    ({"node_cpus": "48\nNodeName=x"}, "node_cpus"), ({"node_real_memory": "192G"}, "node_real_memory"),
    ({"node_gres": "mps:100"}, "without a gpu"), ({"node_gres": {"gpu": 4}}, "node_gres"),
    ({"node_gres": "GPU:A40:4"}, "node_gres"), ({"node_gres_files": "/dev/../etc/passwd,/dev/nvidia[0-2]"}, "no GPU"),
    ({"node_gres_files": "/dev/nvidiactl,/dev/nvidia[0-2]"}, "no GPU"), ({"node_features": "a b"}, "node_features"),
    ({"node_mem_spec_limit": 191990}, "less than 256 MB"), ({"node_cgroup_version": "v2"}, "node_cgroup_version"),
    ({"node_private_tmp": "none"}, "node_private_tmp is 'none': it must be true or false"),
    ({"node_private_tmp": ["no"]}, "it must be true or false"),
]  # fmt: skip
MOUNTS: list[tuple[dict[str, Any], str]] = [
    ({"source": "nas:/srv/../etc"}, "it has '..'"),
    ({"path": "/hömé"}, "written plainly"), ({"source": ["nas:/srv"]}, "is mounted from a server"),
]  # fmt: skip


def refused(nodes: dict[str, dict[str, Any]] | None, **variables: Any) -> str:
    with pytest.raises(ClusterctlError) as error:
        cluster(nodes, **variables)
    assert error.value.exit_code is ExitCode.BAD_REQUEST
    assert error.value.fix
    return f"{error.value.problem}. {error.value.fix}"


@pytest.mark.parametrize(("variables", "words"), MISTAKES)
def test_a_mistake_is_refused_with_what_to_do(variables: dict[str, Any], words: str) -> None:
    assert words in refused(None, **variables)


@pytest.mark.parametrize(("hardware", "words"), NODES)
def test_a_mistake_about_a_node_is_refused(hardware: dict[str, Any], words: str) -> None:
    assert words in refused({"node1": {**A40, **hardware}})


@pytest.mark.parametrize(("mount", "words"), MOUNTS)
def test_a_mistake_about_a_mount_is_refused(mount: dict[str, Any], words: str) -> None:
    home = {"path": "/home", "fstype": "nfs4", "source": "nas:/srv/home"}

    assert words in refused(None, cluster_mounts=[{**home, **mount}])
