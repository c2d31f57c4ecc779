"""What a refusal says of a mistake: the word that is wrong, where it stands, and what was meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from declare import cluster

from provision.errors import ClusterctlError
from provision.inventory import loader
from provision.inventory.valid import declared


def account(**told: Any) -> dict[str, Any]:
    return {"database": True, "slurm_accounts": [{"name": "a", **told}]}


def qos(**told: Any) -> dict[str, Any]:
    return {"database": True, "slurm_qos": [{"name": "x", **told}]}


SAID: list[tuple[dict[str, Any], str]] = [
    (account(cluster="lab"), "'cluster', which is no parameter of it. leave it out: it is cluster_name"),
    (account(Partition="gpu"), "limit a partition by a QOS of its own"),
    (account(users=[{"user": "ada"}]), "a user of account a has no name, and has 'user'. write {name: ada}"),
    (account(users=["ada ben"]), "is 'ada ben': a comma is missing. write [ada, ben]"),
    (account(QOS=[]), "QOS is an empty list. leave QOS out"), (qos(UsageFactor=-2), "it must be a number"),
    (qos(UsageThreshold=1.5), "a number from 0 to 1"), (qos(UsageThreshold=-0.5), "a number from 0 to 1"),
    ({"slurm_conf_files": {"mpi.conf": "\ufeffPMIxDebug=1"}}, "begins with a byte order mark"),
]  # fmt: skip
TAKEN: list[dict[str, Any]] = [
    account(users=["ada", {"name": "ben"}]), account(users=[]), account(QOS="normal"), qos(UsageFactor=0.5),
    qos(UsageFactor=None), qos(UsageThreshold=0.5), qos(UsageThreshold=1), qos(LimitFactor=2),
]  # fmt: skip


@pytest.mark.parametrize(("variables", "words"), SAID)
def test_a_refusal_says_what_is_wrong_and_what_was_meant(variables: dict[str, Any], words: str) -> None:
    with pytest.raises(ClusterctlError) as error:
        cluster(**variables)

    assert words in f"{error.value.problem}. {error.value.fix}"


@pytest.mark.parametrize("variables", TAKEN)
def test_what_is_like_it_and_right_is_taken(variables: dict[str, Any]) -> None:
    assert cluster(**variables).nodes


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('cluster_users:\n  - {name: ada, uid: 2001}\n  - name: ben\n    uid: "{{ n }}"\n', 4),
        ('slurm_conf_parameters:\n  KillWait: 9\n  MessageTimeout: "{{ n }}"\n', 3),
        ('job_environment:\n  A: b\ncluster_simulated: ["{{ n }}"]\n', 3),
    ],
)
def test_a_template_is_refused_where_it_stands(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "inventory.ini").write_text(
        "[slurm_controller]\nhead\n[slurm_compute]\nnode1\n[all:vars]\ncluster_name=x\n"
    )
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.yml").write_text(text)

    with pytest.raises(ClusterctlError, match=rf"all.yml, line {line}: head: .* holds a template"):
        declared(loader.load(tmp_path / "inventory.ini"))
