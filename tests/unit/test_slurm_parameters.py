"""Which parameters a release of Slurm reads, and which plain type their values have; what else they mean Slurm says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from declare import cluster

from provision.errors import ClusterctlError
from provision.inventory import loader
from provision.inventory.valid import declared
from provision.slurm.render import render


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


#: Parameters of slurm.conf with a value of their type; what Slurm alone can judge is taken as it is.
GOOD: list[tuple[str, Any]] = [
    ("MessageTimeout", "0x3c"), ("MinJobAge", "UNLIMITED"), ("MaxJobCount", 4294967295), ("DisableRootJobs", True),
    ("PriorityDecayHalfLife", "14-00:00:00"), ("SlurmctldPort", "6817-6820"), ("SrunPortRange", "60001-65535"),
    ("TaskPlugin", ["task/affinity", "task/cgroup"]), ("ReturnToService", 0), ("SchedulerParameters", "bf_windw=10"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_what_is_of_a_parameters_type_is_taken(name: str, value: Any) -> None:
    assert name in cluster(slurm_conf_parameters={name: value}).slurm_parameters


@pytest.mark.parametrize(
    ("name", "value"),
    [("MaxTime", "1:30:00"), ("MaxTime", "2-12"), ("MaxTime", "INFINITE"), ("MaxNodes", "UNLIMITED"),
     ("AllowGroups", ["a", "b"]), ("OverSubscribe", "FORCE:4")],
)  # fmt: skip
def test_a_partitions_value_of_its_type_is_taken(name: str, value: Any) -> None:
    (partition,) = cluster(slurm_partitions=[{"PartitionName": "gpu", name: value}]).partitions

    assert name in dict(partition.parameters)


def test_a_time_of_which_yaml_makes_a_number_is_refused_in_its_line(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.ini"
    inventory.write_text("[slurm_controller]\nhead\n[slurm_compute]\nnode1\n[all:vars]\ncluster_name=x\n")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.yml").write_text("slurm_partitions:\n  - PartitionName: a\n    MaxTime: 1:30:00\n")

    with pytest.raises(ClusterctlError, match=r"group_vars/all.yml, line 3: YAML makes a number of 1:30:00"):
        declared(loader.load(inventory))
