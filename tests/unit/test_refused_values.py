"""Values that Slurm takes and a cluster cannot run with, or that mean nothing: refused, with what was meant."""

from __future__ import annotations

from typing import Any

import pytest
from declare import A40, cluster

from provision.errors import ClusterctlError, ExitCode
from provision.slurm.render import render

BAD: list[tuple[dict[str, Any], str]] = [
    ({"Prolog": "/etc/slurm/prolog.sh"}, "write 'Prolog: prolog.sh'"),
    ({"Epilog": ["/opt/a", "/srv/end"]}, "Epilog is /srv/end"),
    ({"TaskProlog": "/usr/local/sbin/t.sh"}, "here as /run/slurm/conf/t.sh"),
    ({"TaskProlog": "/run/slurm/conf/site.sh"}, "not in the container of slurmd"),
    ({"TaskEpilog": "/optional/x"}, "not in the container of slurmd"),
    ({"TaskEpilog": "/opt/../srv/x"}, "not in the container of slurmd"),
    ({"HealthCheckProgram": "/usr/sbin/nhc", "HealthCheckInterval": 60}, "slurm_image_extra_packages"),
    ({"HealthCheckProgram": "/opt/nhc -v"}, "a whole path without arguments"),
    ({"RebootProgram": "/sbin/reboot"}, "not in the container of slurmd"),
    ({"MailProg": "/usr/bin/mail"}, "not in the container of slurmctld"),
    ({"MailProg": "/home/mail"}, "not in the container of slurmctld"),
    ({"ResumeProgram": "/opt/site/resume"}, "not in the container of slurmctld"),
    ({"PrologSlurmctld": "site.sh"}, "it must be a path"),
    ({"EpilogSlurmctld": "/etc/slurm/end.sh"}, "not in the container of slurmctld"),
    ({"PluginDir": "/usr/lib/slurm"}, "cannot set PluginDir"),
    ({"PlugStackConfig": "/etc/slurm/plugstack.conf"}, "add its lines by slurm_conf_files"),
    ({"SlurmctldPort": 7000, "SlurmdPort": 7000}, "SlurmctldPort 7000 and SlurmdPort 7000 are the same ports"),
    ({"SlurmdPort": 6817}, "are the same ports"),
    ({"SrunPortRange": "6000-7000"}, "SlurmctldPort 6817 and SrunPortRange 6000-7000"),
    ({"SlurmdPort": 60500}, "SlurmdPort 60500 and SrunPortRange 60001-63000"),
    ({"MpiParams": "ports=60001-60100"}, "MpiParams 60001-60100"),
    ({"TaskPluginParam": "Autobind=foo"}, "autobind= and one of none, threads, cores, sockets"),
    ({"TaskPluginParam": "Autobind=core"}, "did you mean cores?"),
    ({"TaskPluginParam": "Cores,Sockets"}, "exclude each other"),
    ({"TaskPluginParam": "OOMKillStep", "TaskPlugin": "task/affinity"}, "needs task/cgroup"),
    ({"AuthInfo": "socket=/tmp/munge.socket"}, "remove socket= from AuthInfo"),
    ({"SlurmdUser": "nobody"}, "remove SlurmdUser"),
    ({"SelectType": "select/linear"}, "set SelectTypeParameters: CR_Memory"),
    ({"SelectType": "select/linear", "SelectTypeParameters": "CR_CPU"}, "gives whole nodes"),
    ({"SuspendTime": 600}, "without SuspendProgram and ResumeProgram"),
    ({"SuspendTime": 600, "SuspendProgram": "/bin/true"}, "without ResumeProgram"),
    ({"JobCompType": "jobcomp/filetxt"}, "set JobCompLoc: /var/spool/slurmctld/jobcomp.log"),
    ({"JobCompType": "jobcomp/filetxt", "JobCompLoc": "/var/log/jobcomp"}, "is read-only there"),
    ({"JobCompType": "jobcomp/filetxt", "JobCompLoc": "/var/spool/slurmctld/../x"}, "is read-only there"),
    ({"JobCompLoc": "/var/spool/slurmctld/x"}, "with a JobCompType alone"),
    ({"JobCompType": "jobcomp/elasticsearch", "JobCompLoc": "elastic:9200"}, "needs an address"),
    ({"UnkillableStepTimeout": 0}, "set it to 50 or more"),
    ({"UnkillableStepTimeout": 300, "MessageTimeout": 100}, "set it to 500 or more"),
    ({"JobAcctGatherParams": "NoShared"}, "which jobacct_gather/linux reads"),
    ({"HealthCheckProgram": "/opt/nhc"}, "never run without HealthCheckInterval"),
    ({"HealthCheckInterval": 60}, "set without HealthCheckProgram"),
    ({"KeepAliveTime": 30}, "keepalivetime=SECONDS"),
    ({"CliFilterPlugins": "none,lua"}, "remove none"),
    ({"PrologFlags": "X11", "ProctrackType": "proctrack/linuxproc"}, "needs proctrack/cgroup"),
    ({"PriorityWeightQOS": 4000000000, "PriorityWeightAge": 4000000000}, "a priority would overflow"),
    ({"AccountingStorageEnforce": "none"}, "one or more of all, associations, limits"),
]
GOOD: list[dict[str, Any]] = [
    {"RebootProgram": "/opt/site/reboot -f"}, {"UnkillableStepProgram": "/usr/bin/logger"}, {"MailProg": None},
    {"TaskEpilog": "/run/slurm/conf/job_task"}, {"Prolog": "/home/admin/prolog.d/*"}, {"SrunProlog": "/bin/b"},
    {"PrologSlurmctld": "/usr/bin/true"}, {"HealthCheckProgram": "/opt/nhc", "HealthCheckInterval": 300},
    {"SlurmctldPort": "6817-6820"}, {"UnkillableStepTimeout": 60},
    {"MessageTimeout": 100, "UnkillableStepTimeout": 500},
    {"MessageTimeout": 100}, {"SelectType": "select/linear", "SelectTypeParameters": "CR_Memory"},
    {"SelectType": "select/linear", "SelectTypeParameters": None}, {"TaskPluginParam": "Cores,Verbose"},
    {"TaskPluginParam": ["Autobind=none", "OOMKillStep"]}, {"AuthInfo": "socket=/var/run/munge/munge.socket.2,ttl=60"},
    {"SlurmdUser": "root"},
    {"JobCompType": "jobcomp/filetxt", "JobCompLoc": "/var/spool/slurmctld/jobs.txt"},
    {"JobCompType": "jobcomp/elasticsearch", "JobCompLoc": "http://elastic:9200/slurm/_doc"},
    {"SuspendTime": "INFINITE"}, {"SuspendTime": -1}, {"MpiParams": "ports=20000-20999"},
    {"SrunPortRange": "7000-7100"},
    {"JobAcctGatherType": "jobacct_gather/linux", "JobAcctGatherParams": "UsePss"}, {"MinJobAge": 0},
    {"SuspendTime": 600, "SuspendProgram": "/bin/true", "ResumeProgram": "/bin/true"},
    {"PriorityWeightQOS": 2000000000, "PriorityWeightAge": 2000000000},
]  # fmt: skip


#: The same of a partition of two nodes with 192 GB, 48 processors and 4 GPUs each.
BAD_PARTITIONS: list[tuple[dict[str, Any], str]] = [
    ({"DefMemPerNode": 2000, "MaxMemPerNode": 1000}, "DefMemPerNode 2000 is more than MaxMemPerNode 1000"),
    ({"DefMemPerCPU": 2000, "MaxMemPerCPU": 1000}, "lower DefMemPerCPU, or raise MaxMemPerCPU"),
    ({"DefMemPerNode": 192001}, "no node has more than 192000"),
    ({"DefMemPerGPU": 200000}, "no node has more than 192000"),
    ({"DefCpuPerGPU": 49}, "no node has more than 48"),
    ({"MinNodes": 100}, "MinNodes is 100, and it has 2 nodes"),
    ({"MaxNodes": 0}, "a whole number from 1"),
    ({"MaxCPUsPerNode": 0}, "a whole number from 1"),
    ({"MaxTime": 0}, "MaxTime is 0: no job could start"),
    ({"MaxTime": "00:00:00"}, "no job could start"),
    ({"OverSubscribe": "FORCE:0"}, "FORCE:1 and more"),
    ({"OverSubscribe": "YES:1"}, "YES:2 and more"),
    ({"Shared": "SOMETIMES"}, "NO, EXCLUSIVE, YES"),
    ({"Shared": "NO", "OverSubscribe": "NO"}, "remove Shared"),
    ({"AllocNodes": "head,nod1"}, "did you mean node1?"),
    ({"AllocNodes": "login7"}, "login7 under [slurm_login]"),
    ({"AllocNodes": "node["}, "AllocNodes: "),
    ({"AllowQos": "normal", "DenyQos": "normal"}, "Slurm ignores DenyQos"),
    ({"TRESBillingWeights": "CPU=1,GRES/gpuu=2"}, "did you mean gres/gpu?"),
    ({"SuspendTime": 600}, "without SuspendProgram and ResumeProgram"),
]
GOOD_PARTITIONS: list[dict[str, Any]] = [
    {"DefMemPerNode": 1000, "MaxMemPerNode": 0}, {"DefMemPerNode": 192000}, {"MinNodes": 2, "MaxNodes": "UNLIMITED"},
    {"OverSubscribe": "FORCE:1"}, {"OverSubscribe": "YES:4"}, {"AllocNodes": "head,node[1-2]"}, {"Shared": "FORCE"},
    {"TRESBillingWeights": "CPU=1,Mem=0.25G,GRES/gpu:a40=2"}, {"SuspendTime": "INFINITE"}, {"DefaultTime": "0"},
]  # fmt: skip

HARDWARE: list[tuple[dict[str, Any], str]] = [
    ({"node_gres": "gpus:A40:4"}, "did you mean gpu?"),
    ({"node_gres": "gpu:A40:4,shards:8"}, "did you mean shard?"),
    ({"node_gres_files": "/dev/sda[0-3]"}, "/dev/sda0, which is no GPU"),
    ({"node_gres_files": "/dev/nvidia[0-2],/dev/null"}, "/dev/null, which is no GPU"),
    ({"node_real_memory": 1}, "node_real_memory is 1: it is in MB"),
    ({"node_real_memory": "192"}, "as 192000 for 192 GB"),
]
USERS: list[tuple[int, str]] = [(65535, "no user's")]


@pytest.mark.parametrize(("partition", "words"), BAD_PARTITIONS)
def test_a_partition_in_which_no_job_could_start_is_refused(partition: dict[str, Any], words: str) -> None:
    with pytest.raises(ClusterctlError) as refused:
        cluster(slurm_partitions=[{"PartitionName": "gpu", **partition}])

    assert words in f"{refused.value.problem}. {refused.value.fix}"
    assert refused.value.entry[:2] == ("slurm_partitions", 0)
    assert refused.value.entry[2].lower() in map(str.lower, partition)


@pytest.mark.parametrize("partition", GOOD_PARTITIONS)
def test_a_partition_in_which_jobs_can_start_is_taken(partition: dict[str, Any]) -> None:
    assert cluster(slurm_partitions=[{"PartitionName": "gpu", **partition}]).partitions


def test_memory_that_slurm_conf_sets_for_all_partitions_is_compared_too() -> None:
    with pytest.raises(ClusterctlError, match="partition a: DefMemPerNode 9000 is more than MaxMemPerNode 8000") as one:
        cluster(slurm_conf_parameters={"DefMemPerNode": 9000}, slurm_partitions=[
            {"PartitionName": "a", "MaxMemPerNode": 8000}])  # fmt: skip
    with pytest.raises(ClusterctlError, match="PriorityWeightTRES is 'GRES/gpuu=1': no node has gres/gpuu") as two:
        cluster(slurm_conf_parameters={"PriorityWeightTRES": "GRES/gpuu=1"})

    assert one.value.entry == ("slurm_conf_parameters", None, "DefMemPerNode")
    assert two.value.fix == "did you mean gres/gpu?"


CPU_ONLY = {"node_cpus": 16, "node_real_memory": 64000, "node_gres": ""}


@pytest.mark.parametrize("common", [{"DefMemPerGPU": 100000}, {"DefCpuPerGPU": 32}])
def test_what_a_job_has_of_each_gpu_is_compared_with_nodes_that_have_one(common: dict[str, Any]) -> None:
    partitions = [
        {"PartitionName": "gpu", "Nodes": "node1", "Default": "YES"},
        {"PartitionName": "cpu", "Nodes": "node2"},
    ]

    large = {**A40, "node_real_memory": 512000}

    assert cluster({"node1": large, "node2": CPU_ONLY}, slurm_partitions=partitions, slurm_conf_parameters=common)
    with pytest.raises(ClusterctlError, match=r"partition gpu: .*no node has more than"):
        cluster({"node1": {**CPU_ONLY, "node_gres": "gpu:A40:1"}, "node2": A40}, slurm_partitions=partitions,
                slurm_conf_parameters=common)  # fmt: skip


def test_memory_of_slurm_conf_is_no_partitions_that_sets_its_own_in_another_way() -> None:
    per_node = {"DefMemPerNode": 8000, "MaxMemPerNode": 4000}

    for own in ({"DefMemPerCPU": 1000}, {"MaxMemPerCPU": 4000}):
        assert cluster(slurm_conf_parameters=per_node, slurm_partitions=[{"PartitionName": "a", **own}])
    with pytest.raises(ClusterctlError, match="DefMemPerNode 8000 is more than MaxMemPerNode 4000"):
        cluster(slurm_conf_parameters=per_node, slurm_partitions=[{"PartitionName": "a", "MaxNodes": 1}])


def test_one_of_allow_and_deny_is_ignored_by_slurm() -> None:
    rules = {"AllowAccounts": "a", "DenyAccounts": "a"}
    site = {"database": True, "slurm_accounts": [{"name": "a", "users": ["slurmtest"]}]}

    with pytest.raises(ClusterctlError, match="AllowAccounts and DenyAccounts exclude each other: Slurm ignores Deny"):
        cluster(**site, slurm_partitions=[{"PartitionName": "gpu", **rules}])
    assert cluster(**site, slurm_partitions=[{"PartitionName": "gpu", **rules, "DenyAccounts": None}])


@pytest.mark.parametrize(("hardware", "words"), HARDWARE)
def test_hardware_that_nobody_means_is_refused(hardware: dict[str, Any], words: str) -> None:
    with pytest.raises(ClusterctlError) as refused:
        cluster({"node1": {**A40, **hardware}})

    assert words in f"{refused.value.problem}. {refused.value.fix}"


@pytest.mark.parametrize(
    "hardware",
    [
        {"node_gres": "vgpu:2"},
        {"node_gres": "gpu:A40:4,nvme:2", "node_gres_files": "/dev/nvidia[0-3],/dev/nvme[0-1]"},
        {"node_gres": "gpu:mi300:2", "node_gres_files": "/dev/dri/renderD[128-129]"}, {"node_real_memory": 900},
    ],
)  # fmt: skip
def test_hardware_of_other_kinds_is_taken(hardware: dict[str, Any]) -> None:
    assert cluster({"node1": {**A40, **hardware}}).nodes


@pytest.mark.parametrize(("uid", "words"), USERS)
def test_a_number_that_is_the_systems_is_no_users(uid: int, words: str) -> None:
    with pytest.raises(ClusterctlError, match=words) as refused:
        cluster(cluster_users=[{"name": "ada", "uid": uid}], cluster_homes_shared=False)

    assert refused.value.entry == ("cluster_users", 0, "uid")


@pytest.mark.parametrize(("parameters", "words"), BAD)
def test_a_parameter_that_could_not_work_here_is_refused(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(ClusterctlError) as refused:
        cluster(slurm_conf_parameters=parameters)

    assert words in f"{refused.value.problem}. {refused.value.fix}"
    assert refused.value.exit_code is ExitCode.BAD_REQUEST
    assert refused.value.entry in [("slurm_conf_parameters", None, name) for name in parameters]


def test_a_step_that_cannot_be_killed_has_five_times_as_long_as_a_message() -> None:
    assert (
        "\nUnkillableStepTimeout=500\n" in render(cluster(slurm_conf_parameters={"MessageTimeout": 100}))["slurm.conf"]
    )
    assert (
        "\nUnkillableStepTimeout=300\n" in render(cluster(slurm_conf_parameters={"MessageTimeout": 30}))["slurm.conf"]
    )


@pytest.mark.parametrize("parameters", GOOD)
def test_a_parameter_that_works_here_is_taken(parameters: dict[str, Any]) -> None:
    assert cluster(slurm_conf_parameters=parameters).slurm_parameters.keys() == parameters.keys()
