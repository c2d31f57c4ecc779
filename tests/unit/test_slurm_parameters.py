"""What no release of Slurm would read is refused where it is written, before any daemon meets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from declare import cluster

from provision.errors import ClusterctlError, ExitCode
from provision.inventory import loader
from provision.inventory.valid import declared
from provision.slurm import parameters
from provision.slurm.render import render

#: Parameters of slurm.conf with a value that Slurm takes.
GOOD: list[tuple[str, Any]] = [
    ("MessageTimeout", 60), ("MessageTimeout", "60"), ("MessageTimeout", "0x3c"), ("MinJobAge", "UNLIMITED"),
    ("MaxJobCount", 4294967295), ("DisableRootJobs", True), ("DisableRootJobs", "no"), ("PriorityMaxAge", "7-0"),
    ("PriorityDecayHalfLife", "14-00:00:00"), ("SlurmctldDebug", "debug2"), ("SlurmctldDebug", 4),
    ("TaskPlugin", "task/affinity,task/cgroup"), ("TaskPlugin", ["task/affinity", "task/cgroup"]),
    ("ReturnToService", 0), ("SlurmctldPort", "6817-6820"), ("AccountingStorageTRES", "gres/gpu"),
    ("SuspendTime", "INFINITE"), ("PreemptMode", "GANG"), ("Prolog", "/opt/site/prolog"),
    ("SrunPortRange", "60001-65535"), ("SlurmctldPort", 6817), ("DebugFlags", "gres,NO_CONF_HASH"),
    ("TaskProlog", "/opt/site/task"),  ("DefMemPerNode", 1000),
    ("SelectTypeParameters", "CR_CORE_memory,CR_ONE_TASK_PER_CORE"), ("JobSubmitPlugins", "throttle"),
    ("LaunchParameters", ["use_interactive_step", "enable_nss_slurm"]), ("PrivateData", "jobs,usage"),
    ("SchedulerParameters", "bf_window=4320,defer,bf_hetjob_prio=min"), ("TaskPluginParam", "Autobind=threads"),
    ("PropagateResourceLimitsExcept", "MEMLOCK,RLIMIT_NOFILE"), ("SlurmctldParameters", "enable_configless,rl_enable"),
    ("AccountingStorageTRES", "gres/gpu,gres/gpu:a100,license/matlab,gres/gpumem,fs/lustre,cpu"),
    ("MpiDefault", "pmix"), ("MpiDefault", "pmix_v4"), ("MpiDefault", "none"), ("JobAcctGatherFrequency", 30),
    ("JobAcctGatherFrequency", "task=30,network=60"), ("JobAcctGatherFrequency", "Task=0"), ("MaxArraySize", 4000001),
    ("Licenses", "ansys:10,matlab=3;idl"), ("JobFileAppend", 1), ("RequeueExit", "1-9,18"), ("CpuFreqDef", "ondemand"),
    ("CpuFreqDef", 2400000), ("CpuFreqGovernors", "OnDemand,SchedUtil"), ("GpuFreqDef", "medium,memory=high"),
    ("AcctGatherEnergyType", "acct_gather_energy/gpu,acct_gather_energy/ipmi"), ("SwitchType", "switch/none"),
    ("AcctGatherProfileType", "acct_gather_profile/hdf5"), ("SwitchType", "switch/nvidia_imex"),
    ("SwitchParameters", "vnis=10-99,def_tles=4,max_txqs=9,job_vni"), ("AuthAltTypes", "auth/jwt"),
    ("AuthInfo", "cred_expire=300"),
    ("TmpFS", "/scratch"), ("SrunProlog", "/usr/local/bin/begin"),
    ("PriorityWeightTRES", "CPU=1000,Mem=2000,GRES/gpu=3000"), ("TreeWidth", 65533), ("FirstJobId", 1000),
    ("PreemptExemptTime", "1:00:00"), ("TopologyPlugin", "topology/default"),
    ("LogTimeFormat", "iso8601,format_stderr"),
    ("BcastExclude", "/lib,/usr/lib"), ("BcastExclude", "NONE"),
    ("SchedulerParameters", "delay_boot=5:00,sched_interval=-1"), ("MpiParams", "ports=20000-20099"),
    ("SlurmctldParameters", "node_reg_mem_percent=99.5,conmgr_threads=8"), ("SuspendExcStates", "DRAIN,DOWN"),
    ("SuspendExcNodes", "node[1-2]:1,node1"), ("SuspendExcParts", "batch"), ("DownNodes", "node1"),
    ("HashPlugin", "hash/k12"), ("CommunicationParameters", "EnableIPv6,DisableIPv4"),
]  # fmt: skip

#: With one that it does not take, or that is none of its parameters.
BAD: list[tuple[str, Any]] = [
    ("Frobnicate", 3), ("MessageTimeot", 3), ("ConstrainSwapSpace", "yes"), ("ConstrainRAMSpace", "yes"),
    ("MaxTime", "1:00"), ("State", "UP"), ("MetricsType", "metrics/openmetrics"), ("NamespaceType", "namespace/linux"),
    ("HealthCheckTimeout", 10), ("PowerPlugin", "power/none"), ("ExtSensorsType", "x"),
    ("MessageTimeout", -5), ("MessageTimeout", "abc"), ("MessageTimeout", 70000), ("MessageTimeout", "1m"),
    ("MessageTimeout", 1.5), ("UnkillableStepTimeout", "abc"), ("ReturnToService", 9), ("ReturnToService", "yes"),
    ("DisableRootJobs", "perhaps"), ("DisableRootJobs", 2), ("PriorityDecayHalfLife", "1:2:3:4"),
    ("PriorityMaxAge", "aweek"), ("SlurmctldDebug", "loud"), ("SlurmdDebug", 12),
    ("TaskPlugin", "task/nonsense"), ("TaskPlugin", "task/cgroup;task/affinity"), ("SchedulerType", "sched/nonsense"),
    ("SelectType", "select/cons_res"), ("ProctrackType", "cgroup"), ("JobAcctGatherType", "linux"),
    ("PriorityType", "priority/fair"), ("PreemptType", "preempt/yes"), ("PreemptMode", "KILL"),
    ("EnforcePartLimits", "some"), ("SlurmctldPort", "http"), ("SrunPortRange", 60001), ("SuspendTime", "never"),
    ("AccountingStorageEnforce", "limit"), ("AccountingStorageType", "mysql"), ("TopologyPlugin", "tree"),
    ("SlurmctldPort", 70000), ("SlurmctldPort", "6820-6817"), ("SrunPortRange", "63000-60001"), ("SlurmctldPort", 0),
    ("SrunPortRange", "60001-70000"), ("DebugFlags", "Gres,Nonsense"), ("PrologFlags", "Contain,Foo"),
    ("TaskProlog", "site.sh"),
    ("TaskEpilog", "./end"), ("HealthCheckProgram", "nhc"), ("PriorityDecayHalfLife", "7 days"),
    ("JobCompType", "jobcomp/text"), ("MaxJobCount", 4294967296), ("PriorityUsageResetPeriod", "HOURLY"),
    ("SelectTypeParameters", "CR_Cor_Memory"), ("SelectTypeParameters", "CR_Core,CR_CPU_Memory"),
    ("SelectTypeParameters", "CR_CPU,CR_ONE_TASK_PER_CORE"), ("PreemptMode", "CANCEL,REQUEUE"),
    ("PreemptMode", "REQUEUE"), ("PreemptType", "preempt/qos"), ("JobSubmitPlugins", "luaa"),
    ("LaunchParameters", "use_interactive_steps"), ("SchedulerParameters", "bf_windw=10"), ("PrivateData", "job"),
    ("SlurmctldParameters", "enable_configles"), ("PropagateResourceLimits", "MEMLOK"), ("CliFilterPlugins", "lau"),
    ("AccountingStorageTRES", "gres/gpuu"), ("AccountingStorageTRES", "gpu"), ("AccountingStorageTRES", "gres"),
    ("MpiDefault", "pmix_v9"), ("MpiDefault", "foo"), ("SchedulerParameters", "bf_window=abc"),
    ("SchedulerParameters", "bf_window"), ("SchedulerParameters", "defer,bf_max_job_test="),
    ("JobAcctGatherFrequency", "tsk=30"), ("JobAcctGatherFrequency", "task=abc"), ("JobAcctGatherFrequency", "30s"),
    ("MaxArraySize", 99999999), ("MaxArraySize", "UNLIMITED"), ("Licenses", "ansys:many"), ("Licenses", "ansys:"),
    ("JobFileAppend", 2), ("RequeueExit", "abc"), ("RequeueExitHold", "1-"), ("CpuFreqDef", "Fast"),
    ("CpuFreqGovernors", "OnDemand,Fast"), ("GpuFreqDef", "fast"), ("AcctGatherEnergyType", "acct_gather_energy/foo"),
    ("AcctGatherEnergyType", "gpu"), ("AcctGatherProfileType", "acct_gather_profile/hdf"),
    ("AcctGatherInterconnectType", "acct_gather_interconnect/ib"), ("SwitchType", "switch/foo"),
    ("SwitchParameters", "foo="), ("SwitchParameters", "vnis="), ("SwitchParameters", "def_foo=1"),
    ("AuthAltTypes", "auth/foo"), ("AuthAltParameters", "jwtkey=/x"), ("AuthInfo", "sockett=/x"),
    ("NodeFeaturesPlugins", "node_features/foo"), ("TmpFS", "rel"), ("MailProg", "mail"),  ("RebootProgram", "reboot"),
    ("ResumeProgram", "resume"), ("TreeWidth", 0), ("FirstJobId", 0), ("MessageTimeout", 0), ("MaxJobCount", 0),
    ("MaxStepCount", 0), ("MaxDBDMsgs", 100), ("PropagatePrioProcess", 3), ("MaxJobId", 2**26), ("KillOnBadExit", 2),
    ("SchedulerTimeSlice", 1), ("SlurmdPort", 70000), ("SlurmdPort", 0), ("MaxNodeCount", 70000),
    ("PriorityWeightTRES", "CPU=a"), ("PreemptExemptTime", "soon"), ("HashPlugin", "hash/md5"),
    ("TopologyPlugin", "topology/flat"), ("SelectType", "select/cons_tre"), ("TLSType", "tls/s3n"),
    ("PluginDir", "lib/slurm"), ("LogTimeFormat", "iso"), ("BcastExclude", "lib"), ("SuspendExcStates", "DRAINED"),
    ("SlurmctldParameters", "conmgr_threads=many"), ("MpiParams", "port=1-2"), ("BurstBufferType", "burst_buffer/nfs"),
    ("PrEpPlugins", "prep/foo"), ("CommunicationParameters", "DisableIPv4"), ("MCSPlugin", "mcs/group"),
    ("MCSParameters", "enforced"), ("PriorityDecayHalfLife", 0),
    ("LaunchParameters", "enable_nss_slurm,disable_send_gids"),
    ("JobAcctGatherParams", "UsePss,NoShared"), ("FastSchedule", 1), ("SallocDefaultCommand", "bash"),
    ("ControlMachine", "head"), ("CryptoType", "crypto/munge"), ("AccountingStoreJobComment", "YES"),
    ("SuspendExcNodes", "node[1-9]:1"), ("SuspendExcNodes", "node["), ("SuspendExcParts", "bach"),
    ("DownNodes", "nod1"),
    ("SlurmSchedLogLevel", 1), ("AccountingStorageHost", "a,b"), ("DataParserParameter", "x"),
]  # fmt: skip

BAD_PARTITIONS: list[tuple[str, Any]] = [
    ("MaxTime", "1:2:3:4"), ("MaxTime", "1d"), ("MaxTime", "1-2-3"), ("DefaultTime", "soon"), ("State", "FOO"),
    ("PriorityTier", -3), ("PriorityTier", 70000), ("GraceTime", "abc"), ("Default", "maybe"), ("MaxNodes", "two"),
    ("OverSubscribe", "ALWAYS"), ("OverSubscribe", "FORCE:x"), ("OverTimeLimit", "1:00"), ("PreemptMode", "KILL"),
    ("DefMemPerGPU", "48G"), ("Topology", "tree1"), ("Exclusive", "USER"), ("SlurmdTimeout", 30), ("MaxTiem", 1),
    ("ConstrainCores", "yes"), ("LLN", 7),
    ("PreemptMode", "GANG"), ("PreemptMode", "OFF,CANCEL"), ("SelectTypeParameters", "CR_CPU"),
    ("TRESBillingWeights", "CPU=a"), ("TRESBillingWeights", "CPU"), ("TRESBillingWeights", "CPUs=1"),
    ("Alternate", "nobody"), ("CpuBind", "numa"), ("JobDefaults", "DefCpuPerGPU=4"), ("DefCpuPerGp", 4),
]  # fmt: skip

GOOD_PARTITIONS: list[tuple[str, Any]] = [
    ("MaxTime", "60"), ("MaxTime", "1:30:00"), ("MaxTime", "2-12"), ("MaxTime", "7-00:00:00"), ("MaxTime", "INFINITE"),
    ("State", "up"), ("OverSubscribe", "FORCE:4"), ("OverSubscribe", "exclusive"), ("MaxNodes", "UNLIMITED"),
    ("TRESBillingWeights", "CPU=1.0,Mem=0.25G,GRES/gpu=2.0"), ("TRESBillingWeights", "cpu=.5"), ("CpuBind", "cores"),
    ("PriorityTier", 10), ("Hidden", True), ("AllowGroups", ["a", "b"]), ("ExclusiveTopo", "YES"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_what_slurm_takes_is_taken(name: str, value: Any) -> None:
    assert name in cluster(slurm_conf_parameters={name: value}).slurm_parameters


@pytest.mark.parametrize(("name", "value"), GOOD_PARTITIONS)
def test_what_slurm_takes_of_a_partition_is_taken(name: str, value: Any) -> None:
    (partition,) = cluster(slurm_partitions=[{"PartitionName": "gpu", name: value}]).partitions

    assert name in dict(partition.parameters)


@pytest.mark.parametrize(("name", "value"), BAD)
def test_what_slurm_would_not_take_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ClusterctlError, match=name) as refused:
        cluster(slurm_conf_parameters={name: value})

    assert refused.value.exit_code is ExitCode.BAD_REQUEST
    assert refused.value.entry == ("slurm_conf_parameters", None, name)


@pytest.mark.parametrize(("name", "value"), BAD_PARTITIONS)
def test_what_slurm_would_not_take_of_a_partition_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ClusterctlError, match=name):
        cluster(slurm_partitions=[{"PartitionName": "gpu", name: value}])


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"slurm_conf_parameters": {"DefMemPerCPU": 1, "DefMemPerNode": 2}}, "Slurm ignores DefMemPerCPU"),
        ({"slurm_partitions": [{"PartitionName": "a", "MaxMemPerCPU": 1, "MaxMemPerNode": 2}]}, "Slurm ignores"),
        (
            {"slurm_conf_parameters": {"PreemptType": "preempt/qos", "PreemptMode": "SUSPEND"}},
            "PreemptMode SUSPEND needs GANG",
        ),
        (
            {"slurm_partitions": [{"PartitionName": "a", "DefaultTime": "2-0", "MaxTime": "47:00:00"}]},
            "partition a: DefaultTime 2-0 is longer than MaxTime 47:00:00",
        ),
        (
            {"slurm_partitions": [{"PartitionName": "a", "MinNodes": 8, "MaxNodes": 2}]},
            "MinNodes 8 is more than MaxNodes",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(variables: dict[str, Any], said: str) -> None:
    with pytest.raises(ClusterctlError, match=said) as refused:
        cluster(**variables)

    assert refused.value.entry[2] in ("MinNodes", "DefMemPerCPU", "MaxMemPerCPU", "DefaultTime", "PreemptMode")


@pytest.mark.parametrize(
    ("default", "most"),
    [("60", "1:00:00"), ("1-12", "36:00:00"), ("UNLIMITED", "60"), ("60", "INFINITE"), ("5:00", "5")],
)
def test_a_default_time_may_be_as_long_as_the_longest(default: str, most: str) -> None:
    assert cluster(slurm_partitions=[{"PartitionName": "a", "DefaultTime": default, "MaxTime": most}]).partitions


@pytest.mark.parametrize(
    ("name", "version", "said"),
    [
        ("MetricsType", "24.11", "it came with 25.11"),
        ("PowerPlugin", "24.11", "23.11 was its last"),
        ("ConstrainSwapSpace", "24.11", "it is one of cgroup.conf"),
        ("MaxTime", "24.11", "it is one of a partition"),
        ("MessageTimeot", "24.11", "did you mean MessageTimeout?"),
        ("Frobnicate", "24.11", "see slurm.conf(5)"),
        ("JobDefaults", "24.11", "write DefCpuPerGPU and DefMemPerGPU"),
        ("FastSchedule", "24.11", "what it did is SlurmdParameters: config_overrides"),
    ],
)
def test_a_refusal_says_what_was_meant(name: str, version: str, said: str) -> None:
    with pytest.raises(ClusterctlError) as refused:
        cluster(slurm_conf_parameters={name: "x"}, slurm_version=version)

    assert said in f"{refused.value.problem}. {refused.value.fix}"


def test_a_misspelt_word_is_answered_with_the_nearest() -> None:
    with pytest.raises(ClusterctlError, match="did you mean bf_window") as refused:
        cluster(slurm_conf_parameters={"SchedulerParameters": "defer,bf_windw=10"})

    assert refused.value.entry == ("slurm_conf_parameters", None, "SchedulerParameters")
    assert cluster(slurm_conf_parameters={"SchedulerParameters": "bf_new"}, slurm_version="26.11").slurm_parameters


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("PrologFlags", "Contian", "Contain"),
        ("TaskPlugin", "task/affinity,task/cgrup", "task/cgroup"),
        ("TaskPlugin", "cgroup", "task/cgroup"),
        ("DebugFlags", "Backfill,Gress", "Gres"),
        ("AccountingStorageEnforce", "limit", "limits"),
        ("AcctGatherEnergyType", "acct_gather_energy/impi", "acct_gather_energy/ipmi"),
        ("MpiDefault", "pmx", "pmix"),
        ("JobAcctGatherFrequency", "tsk=30", "task"),
        ("CpuFreqDef", "Performence", "Performance"),
        ("SchedulerType", "sched/backfil", "sched/backfill"),
        ("SlurmctldDebug", "debgu", "debug"),
        ("SwitchParameters", "vni=1-2", "vnis"),
        ("PriorityWeightTRES", "cpuu=1", "cpu"),
    ],
)
def test_a_value_is_answered_with_the_nearest(name: str, value: str, meant: str) -> None:
    with pytest.raises(ClusterctlError, match=rf"did you mean {meant}\?"):
        cluster(slurm_conf_parameters={name: value})


@pytest.mark.parametrize(
    ("name", "value", "release", "taken"),
    [
        ("TopologyPlugin", "topology/flat", "25.05", True),
        ("TopologyPlugin", "topology/3d_torus", "25.05", False),
        ("NamespaceType", "namespace/linux", "25.11", True),
        ("NodeFeaturesPlugins", "node_features/knl_generic", "25.05", True),
        ("NodeFeaturesPlugins", "node_features/knl_generic", "25.11", False),
        ("AuthAltTypes", "auth/slurm", "23.02", False),
        ("SwitchType", "switch/nvidia_imex", "23.11", False),
        ("SwitchType", "switch/new", "26.11", True),
    ],
)
def test_a_plugin_is_known_by_the_release(name: str, value: str, release: str, taken: bool) -> None:
    assert (parameters.misfit("slurm.conf", name, value, release) == "") is taken


def test_a_parameter_is_known_by_the_release_that_the_cluster_runs() -> None:
    assert cluster(slurm_conf_parameters={"MetricsType": "metrics/openmetrics"}, slurm_version="25.11").slurm_parameters


def test_what_a_release_after_the_newest_one_here_reads_is_slurms_to_judge() -> None:
    assert cluster(slurm_conf_parameters={"ANewOne": "x"}, slurm_version="26.11").slurm_parameters == {"ANewOne": "x"}
    assert parameters.NEWEST == "26.05"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("slurm_partitions:\n  - PartitionName: a\n    MaxTime: 1:30:00\n", 4),
        ("slurm_conf_parameters: {PriorityMaxAge: 7:00}\n", 2),
        ("slurm_conf_parameters:\n  PriorityMaxAge: 7 days\n", 3),
        ("node_cpus: 4\nnode_gres: gpu::2\n", 3),
        ("slurm_conf_parameters:\n  messagetimeout: 30\n", 3),
        ("slurm_conf_parameters:\n  MessageTimeout: 30\n  MessageTIMEOUT: 3\n", 4),
        ("slurm_partitions:\n  - PartitionName: a\n    Nodes: node[1-3]\n", 4),
        ("slurm_partitions:\n  - PartitionName: a\n    Nodes: node[1-\n", 4),
        ("slurm_partitions:\n  - {PartitionName: a, Default: YES}\n  - {PartitionName: b, Default: YES}\n", 4),
        ("slurm_conf_parameters:\n  MessageTimeout: 30\n  Frobnicate: 3\n", 4),
        ("slurm_partitions:\n  - PartitionName: a\n    MaxTime: 60\n  - PartitionName: b\n    MaxTime: '1:2:3:4'\n", 6),
        # What another mapping has, too, stands further up.
        ("slurm_partitions:\n  - {PartitionName: a, MaxTime: 60}\nslurm_conf_parameters:\n  MaxTime: 3\n", 5),
        ("slurm_qos:\n  - {name: a, Flags: NoDecay}\nslurm_conf_parameters: {Flags: x}\n", 4),
        ("slurm_conf_cgroup_parameters: {ConstrainCores: yes}\nslurm_conf_parameters: {ConstrainCores: yes}\n", 3),
        ("slurm_conf_parameters: {PreemptMode: REQUEUE, PreemptType: preempt/qos}\nslurm_partitions:\n"
         "  - {PartitionName: a, PreemptMode: 'OFF'}\n  - {PartitionName: b, preemptmode: KILL}\n", 5),
        ("slurm_conf_parameters: {MaxMemPerNode: 9, DefMemPerCPU: 9}\nslurm_partitions:\n"
         "  - {PartitionName: a, Nodes: node1}\n  - {PartitionName: b, MaxMemPerCPU: 9, MaxMemPerNode: 9}\n", 5),
        ("slurm_partitions:\n  - {PartitionName: a, Default: 'YES'}\n  - PartitionName: A\n", 4),
        ("slurm_partitions:\n  - PartitionName: a\n    MaxTime: 5\n    MAXTIME: 6\n", 5),
        ("slurm_partitions:\n  - {PartitionName: a, Default: 'YES'}\n  - {PartitionName: b, Alternate: c}\n", 4),
        ("slurm_partitions:\n  - PartitionName: a\n  - PartitionName: b\n", 2),
        # YAML makes a date of it.
        ("slurm_conf_parameters:\n  KillWait: 5\n  MessageTimeout: 2026-01-01\n", 4),
    ],
)  # fmt: skip
def test_a_refusal_names_file_and_line(tmp_path: Path, text: str, line: int) -> None:
    inventory = tmp_path / "inventory.ini"
    inventory.write_text("[slurm_controller]\nhead\n[slurm_compute]\nnode1\n[all:vars]\ncluster_name=x\n")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.yml").write_text(f"---\n{text}")

    with pytest.raises(ClusterctlError) as refused:
        declared(loader.load(inventory))

    assert refused.value.problem.startswith(f"{tmp_path}/group_vars/all.yml, line {line}: ")


def test_what_salloc_expands_for_its_user_stands_as_it_is() -> None:
    options = "--interactive --preserve-env --pty $SHELL"

    assert (
        f'InteractiveStepOptions="{options}"'
        in render(cluster(slurm_conf_parameters={"InteractiveStepOptions": options}))["slurm.conf"].splitlines()
    )
    with pytest.raises(ClusterctlError, match="cannot hold that"):
        cluster(slurm_conf_parameters={"MailDomain": "$HOME"})


@pytest.mark.parametrize(("value", "name"), [("all", "all"), ("ALL", "ALL"), (1, "1"), ("2024", "2024")])
def test_a_partition_may_have_any_name_that_slurm_takes(value: Any, name: str) -> None:
    (partition,) = cluster(slurm_partitions=[{"PartitionName": value}]).partitions

    assert partition.name == name
