"""Mistakes of every kind in the inventory: types, ranges, releases, spelling, contradictions, and what is no text."""

from __future__ import annotations

from typing import Any

import pytest
from declare import A40, cluster

from provision.errors import ClusterctlError, ExitCode


def files(name: str, text: str) -> dict[str, Any]:
    return {"slurm_conf_files": {name: text}}


def partition(**parameters: Any) -> dict[str, Any]:
    return {"slurm_partitions": [{"PartitionName": "gpu", **parameters}]}


def database(**parameters: Any) -> dict[str, Any]:
    return {"database": True, "slurm_database_parameters": parameters}


def qos(**settings: Any) -> dict[str, Any]:
    return {"database": True, "slurm_qos": [{"name": "x", **settings}]}


MISTAKES: list[tuple[dict[str, Any], str]] = [
    # What is no text, or none that a file could hold.
    ({"slurm_partitions": [{"PartitionName": "gpü"}]}, "it must be a name"),
    ({"slurm_partitions": [{"PartitionName": "gpu,cpu"}]}, "it must be a name"),
    (partition(AllowGroups={"a": 1}), "cannot hold that"),
    ({"slurm_accounts": [{"name": "a", "users": ["slurmtest"], "description": True}], "database": True}, "use letters"),
    ({"slurm_version": "21.08"}, "22.05 or newer"), ({"slurm_version": "24.11.5"}, "releases, for example 24.11"),
    # The database: what would purge all of it, and what is elsewhere.
    (database(PurgeJobAfter="0"), "hours, days or months"), (database(PurgeJobAfter="99999999months"), "hours, days"),
    (database(JobPurge=12), "PurgeJobAfter"), (database(PurgeStepMonths=12), "PurgeStepAfter"),
    (database(AuthInfo="socket=/x"), "remove socket="), (database(DebugLevel="loud"), "one of quiet"),
    (qos(GrpTRES="cpu=1.5"), "it must be TRES"), (qos(MaxWall={"a": 1}), "it must be minutes"),
    # The proof.
    ({"cluster_test_user": "root"}, "not root's"), ({"cluster_test_user": "ada lovelace"}, "a user's name"),
    ({"cluster_test_uid": 0}, "1000 or more"), ({"cluster_test_account": "Gold x"}, "an account's name"),
    ({"cluster_simulated": "gpus"}, "did you mean gpu?"),
    # Files: where jobs would lose what they write, and programs that are not there.
    (files("job_container.conf", "BasePath=/var/tmp\nDirs=/tmp,/home"), "Dirs has /home"),
    (files("job_container.conf", "BasePath=/var/tmp\nInitScript=/etc/x.sh"), "/etc/x.sh is not in the container"),
    (files("job_container.conf", "BasePath=/var/tmp\nInitScript=/opt/../etc/x"), "/etc/x is not in the container"),
    (files("plugstack.conf", "# ours\nrequired /etc/slurm/x.so"), "its line 2: /etc/slurm/x.so is not in"),
    (files("plugstack.conf", "# ours\nrequired nosuch.so"), "its line 2: nosuch.so is not in"),
    (files("helpers.conf", "Feature=a Helper=/srv/a"), "/srv/a is not in"),
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
