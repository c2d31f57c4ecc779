"""Which parameters a release of Slurm reads, and which plain type their values have; what else they mean Slurm says."""

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

#: Parameters of slurm.conf with a value of their type; what Slurm alone can judge is taken as it is.
GOOD: list[tuple[str, Any]] = [
    ("MessageTimeout", 60), ("MessageTimeout", "0x3c"), ("MinJobAge", "UNLIMITED"), ("MaxJobCount", 4294967295),
    ("DisableRootJobs", True), ("DisableRootJobs", "no"), ("PriorityMaxAge", "7-0"), ("SlurmctldDebug", "debug2"),
    ("PriorityDecayHalfLife", "14-00:00:00"), ("SlurmctldPort", "6817-6820"), ("SrunPortRange", "60001-65535"),
    ("TaskPlugin", ["task/affinity", "task/cgroup"]), ("ReturnToService", 0), ("TreeWidth", 65533),
    ("SchedulerParameters", "bf_windw=10"), ("SelectType", "select/cons_tre"), ("Licenses", "ansys:many"),
    ("SuspendExcNodes", "node[1-9]:1"), ("PreemptType", "preempt/qos"), ("AccountingStorageTRES", "gres/gpuu"),
]  # fmt: skip

#: With one of another type, or none of its parameters.
BAD: list[tuple[str, Any, str]] = [
    ("MessageTimeout", -5, "from 1 to 65535"), ("MessageTimeout", "abc", "a whole number"),
    ("MessageTimeout", 70000, "a whole number"), ("MessageTimeout", 1.5, "a whole number"),
    ("MessageTimeout", 0, "from 1"), ("MaxJobCount", True, "a whole number"), ("MaxJobCount", [1, 2], "whole number"),
    ("MaxArraySize", "UNLIMITED", "from 0 to 4000001"), ("FirstJobId", 2**26, "from 1 to 67108863"),
    ("KillOnBadExit", 2, "from 0 to 1"), ("DisableRootJobs", "perhaps", "YES or NO"), ("DisableRootJobs", 2, "YES or"),
    ("PriorityDecayHalfLife", "7 days", "days-hours"), ("PriorityMaxAge", "1:2:3:4", "hours:minutes:seconds"),
    ("SlurmctldDebug", "loud", "one of quiet"), ("ReturnToService", 9, "one of 0, 1, 2"),
    ("EnforcePartLimits", "some", "one of ALL"), ("PriorityUsageResetPeriod", "HOURLY", "one of NONE, NOW"),
    ("SlurmdUser", "nobody", "one of root"),
    ("SlurmctldPort", "http", "a port, or a range"), ("SlurmctldPort", 80, "from 1024"), ("SlurmdPort", 22, "from 10"),
    ("SlurmctldPort", "6820-6817", "the lower one first"), ("SrunPortRange", 60001, "a range of ports"),
    ("SrunPortRange", "60001-70000", "to 65535"), ("AccountingStoragePort", "UNLIMITED", "from 1 to 65535"),
    ("MaxJobCount", {"a": 1}, "cannot hold that"), ("MaxJobCount", "", "cannot hold that"),
    ("TmpFS", "/tmp\n/x", "cannot hold that"), ("TmpFS", "/a#b", "cannot hold that"),
    ("MailDomain", "ü.de", "cannot hold that"), ("AccountingStorageHost", "db\nInclude=/x", "cannot hold that"),
    ("AuthInfo", "socket=/tmp/munge.socket", "munged's is /run/munge"), ("AuthInfo", "/tmp/m", "remove socket="),
]  # fmt: skip
BAD_PARTITIONS: list[tuple[str, Any, str]] = [
    ("MaxTime", "1d", "minutes"), ("MaxTime", {"a": 1}, "cannot hold that"), ("MaxTime", "1-0\nNodes=x", "cannot hold"),
    ("DefaultTime", "soon", "minutes"), ("State", "FOO", "one of UP"), ("PriorityTier", -3, "a whole number"),
    ("PriorityTier", 1.5, "a whole number"), ("MaxNodes", 0, "from 1"), ("DefMemPerGPU", "48G", "a whole number"),
    ("LLN", 7, "YES or NO"), ("Topology", "tree1", "it came with 25.05"), ("MaxTiem", 1, "did you mean MaxTime?"),
    ("JobDefaults", "DefCpuPerGPU=4", "write DefCpuPerGPU"), ("ConstrainCores", "yes", "it is one of cgroup.conf"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_what_is_of_a_parameters_type_is_taken(name: str, value: Any) -> None:
    assert name in cluster(slurm_conf_parameters={name: value}).slurm_parameters


@pytest.mark.parametrize(("name", "value", "said"), BAD)
def test_a_value_of_another_type_is_refused(name: str, value: Any, said: str) -> None:
    with pytest.raises(ClusterctlError, match=name) as refused:
        cluster(slurm_conf_parameters={name: value})

    assert said in f"{refused.value.problem}. {refused.value.fix}"
    assert refused.value.exit_code is ExitCode.BAD_REQUEST
    assert refused.value.entry == ("slurm_conf_parameters", None, name)


@pytest.mark.parametrize(("name", "value", "said"), BAD_PARTITIONS)
def test_a_partitions_value_of_another_type_is_refused(name: str, value: Any, said: str) -> None:
    with pytest.raises(ClusterctlError, match=name) as refused:
        cluster(slurm_partitions=[{"PartitionName": "gpu", name: value}])

    assert said in f"{refused.value.problem}. {refused.value.fix}"


@pytest.mark.parametrize(
    ("name", "value"),
    [("MaxTime", "1:30:00"), ("MaxTime", "2-12"), ("MaxTime", "INFINITE"), ("State", "up"), ("MaxNodes", "UNLIMITED"),
     ("Hidden", True), ("AllowGroups", ["a", "b"]), ("Alternate", "gpu2"), ("OverSubscribe", "FORCE:4")],
)  # fmt: skip
def test_a_partitions_value_of_its_type_is_taken(name: str, value: Any) -> None:
    (partition,) = cluster(slurm_partitions=[{"PartitionName": "gpu", name: value}]).partitions

    assert name in dict(partition.parameters)


@pytest.mark.parametrize(
    ("name", "version", "said"),
    [
        ("MetricsType", "24.11", "it came with 25.11"),
        ("PowerPlugin", "24.11", "23.11 was its last"),
        ("ConstrainSwapSpace", "24.11", "it is one of cgroup.conf"),
        ("MaxTime", "24.11", "it is one of a partition"),
        ("CoreSpecCount", "24.11", "it is one of a node"),
        ("MessageTimeot", "24.11", "did you mean MessageTimeout?"),
        ("Frobnicate", "24.11", "see slurm.conf(5)"),
        ("JobDefaults", "24.11", "write DefCpuPerGPU and DefMemPerGPU"),
        ("FastSchedule", "24.11", "what it did is SlurmdParameters: config_overrides"),
        ("KeepAliveTime", "24.11", "keepalivetime=SECONDS"),
        ("PluginDir", "24.11", "cannot set PluginDir"),
        ("PlugStackConfig", "24.11", "add its lines by slurm_conf_files"),
        ("NodeSet", "24.11", "name the nodes in slurm_partitions"),
    ],
)
def test_a_refusal_says_what_was_meant(name: str, version: str, said: str) -> None:
    with pytest.raises(ClusterctlError) as refused:
        cluster(slurm_conf_parameters={name: "x"}, slurm_version=version)

    assert said in f"{refused.value.problem}. {refused.value.fix}"


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
        ("slurm_partitions:\n  - PartitionName: a\n    MaxTime: 60\n  - PartitionName: b\n    MaxTime: '1:2:3:4'\n", 6),
        # What another mapping has, too, stands further up.
        ("slurm_partitions:\n  - {PartitionName: a, MaxTime: 60}\nslurm_conf_parameters:\n  MaxTime: 3\n", 5),
        ("slurm_qos:\n  - {name: a, Flags: NoDecay}\nslurm_conf_parameters: {Flags: x}\n", 4),
        ("slurm_conf_cgroup_parameters: {ConstrainCores: yes}\nslurm_conf_parameters: {ConstrainCores: yes}\n", 3),
        ("slurm_partitions:\n  - {PartitionName: a, Default: 'YES'}\n  - PartitionName: A\n", 4),
        ("slurm_partitions:\n  - PartitionName: a\n    MaxTime: 5\n    MAXTIME: 6\n", 5),
        ("slurm_partitions:\n  - PartitionName: a\n  - PartitionName: b\n", 2),
        # YAML makes a date of it.
        ("slurm_conf_parameters:\n  KillWait: 5\n  MessageTimeout: 2026-01-01\n", 4),
        ("slurm_conf_files:\n  mpi.conf: PMIxDebug=1\n  slurmdbd.conf: b\n", 4),
    ],
)
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


#: Ports on which two of Slurm's programs would listen.
SAME_PORTS: list[tuple[dict[str, Any], str]] = [
    ({"SlurmctldPort": 7000, "SlurmdPort": 7000}, "SlurmctldPort 7000 and SlurmdPort 7000 are the same ports"),
    ({"SlurmdPort": 6817}, "are the same ports"),
    ({"SrunPortRange": "6000-7000"}, "SlurmctldPort 6817 and SrunPortRange 6000-7000"),
    ({"SlurmdPort": 60500}, "SlurmdPort 60500 and SrunPortRange 60001-63000"),
    ({"MpiParams": "ports=60001-60100"}, "MpiParams 60001-60100"),
    ({"MpiParams": "ports=5000-4000"}, "the lower one first"), ({"MpiParams": "ports=70000-70010"}, "write a range"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "said"), SAME_PORTS)
def test_two_programs_have_no_port_in_common(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ClusterctlError) as refused:
        cluster(slurm_conf_parameters=given)

    assert said in f"{refused.value.problem}. {refused.value.fix}"


def test_ports_of_ones_own_are_taken() -> None:
    given = {"SlurmctldPort": "6817-6820", "MpiParams": "ports=20000-20999", "SrunPortRange": "7000-7100"}

    assert cluster(slurm_conf_parameters=given).slurm_parameters
