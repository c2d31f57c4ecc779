"""Limits that Slurm does not count, that nobody means, or that keep the cluster's own proofs out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from declare import cluster

from provision.errors import ClusterctlError
from provision.inventory import loader
from provision.inventory.valid import declared


def site(
    account: dict[str, Any], *qos: dict[str, Any], user: dict[str, Any] | None = None, **rest: Any
) -> dict[str, Any]:
    """Return variables with an account ``a``, and the proof's account below it."""
    accounts = [
        {"name": "a", **account},
        {"name": "p", "parent": "a", "users": [{"name": "slurmtest", **(user or {})}]},
    ]
    return {"database": True, "slurm_accounts": accounts, "slurm_qos": list(qos), **rest}


def conf(**parameters: Any) -> dict[str, Any]:
    return {"slurm_conf_parameters": parameters}


NORMAL = {"name": "normal"}
BAD: list[tuple[dict[str, Any], str]] = [
    # What keeps the proof out: the user, the account, those above it, the QOS.
    (site({}, user={"MaxJobs": 0}), "slurmtest in account p: MaxJobs is 0: no job of slurmtest could run"),
    *((site({name: value}), f"account a: {name} is {told}") for name, value, told in (
        ("MaxSubmitJobs", 0, "0"), ("GrpJobs", 0, "0"), ("GrpSubmitJobs", 0, "0"), ("MaxWall", 0, "0"),
        ("MaxWall", "00:00:00", "00:00:00"), ("GrpTRES", "cpu=0", "cpu=0"), ("MaxTRES", "gres/gpu=0", "gres/gpu=0"),
        ("GrpTRESMins", "gres/gpu=5,cpu=0", "cpu=0"), ("MaxTRESPerNode", "mem=0", "mem=0"))),
    (site({}, {**NORMAL, "MaxJobsPU": 0}), "QOS normal: MaxJobsPU is 0"),
    (site({}, {**NORMAL, "MaxTRESPU": "node=0"}), "QOS normal: MaxTRESPU is node=0"),
    (site({}, {"name": "x", "MaxWall": 0}, user={"DefaultQOS": "x"}), "QOS x: MaxWall is 0"),
    (site({}, {**NORMAL, "MinTRES": "gres/gpu=4"}), "wants gres/gpu=4 of each job, and those of slurmtest"),
    (site({}, {**NORMAL, "MinTRES": "cpu=2"}), "let them have another QOS"),
    (site({"GrpJobs": 0}, user={"GrpJobs": 5}), "account a: GrpJobs is 0"),
    # A unit that was meant.
    (site({"GrpTRES": "cpu=4,mem=4"}), "give the unit: GrpTRES: mem=4G"),
    (site({}, {"name": "x", "MaxTRESPU": "mem=16"}), "that is in MB"),
    # What nobody counts.
    (site({"GrpTRES": "license/matlab=2"}), "'gres/gpu,gres/gpu:A40,license/matlab' in slurm_conf_parameters"),
    (site({"GrpTRES": "gres/gpu=2"}, **conf(AccountingStorageTRES="license/x")), "'license/x,gres/gpu' in"),
]  # fmt: skip
GOOD: list[dict[str, Any]] = [
    site({"MaxJobs": 1, "GrpTRES": "cpu=1,mem=4G,gres/gpu=1", "GrpJobsAccrue": 0, "MaxWall": "1:00"}),
    # The nearest decides of one job, and a QOS before all.
    site({"MaxJobs": 0}, user={"MaxJobs": 5}), site({"MaxJobs": 0}, {**NORMAL, "MaxJobsPU": 5}),
    site({"MaxWall": 0}, {**NORMAL, "MaxWall": "1-0"}), site({"GrpTRES": "cpu=0"}, {**NORMAL, "GrpTRES": "cpu=9"}),
    # Others' accounts and QOS.
    {"database": True, "slurm_accounts": [{"name": "closed", "MaxSubmitJobs": 0, "users": ["ada"]}]},
    site({}, {"name": "big", "MinTRES": "gres/gpu=8", "MaxJobsPU": 0}),
    site({}, {**NORMAL, "MinTRES": "cpu=1,gres/gpu=1"}), site({}, {**NORMAL, "MinTRES": "mem=4"}),
    site({}, {**NORMAL, "MinTRES": "cpu=2"}, **conf(DefCpuPerGPU=4)),
    site({"MaxJobs": 0}, **conf(AccountingStorageEnforce="associations")),
    site({"MaxJobs": None, "GrpTRES": "gres/gpu=-1"}), site({"GrpTRESMins": "mem=20"}),
    site({"GrpTRES": "license/matlab=2,gres/gpu=1"}, **conf(AccountingStorageTRES="gres/gpu,License/matlab")),
    site({"GrpTRES": "gres/gpu:A40=2,node=1,billing=9,fs/disk=1"}),
]  # fmt: skip


@pytest.mark.parametrize(("variables", "words"), BAD)
def test_a_limit_that_nobody_means_is_refused(variables: dict[str, Any], words: str) -> None:
    with pytest.raises(ClusterctlError) as error:
        cluster(**variables)

    assert error.value.entry[0] in ("slurm_accounts", "slurm_qos")
    assert words in f"{error.value.problem}. {error.value.fix}"


@pytest.mark.parametrize("variables", GOOD)
def test_a_limit_that_leaves_the_proof_in_is_taken(variables: dict[str, Any]) -> None:
    assert cluster(**variables).enforced


def test_the_refusal_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "inventory.ini").write_text(
        "[slurm_controller]\nhead\n[slurm_database]\nhead\n[slurm_compute]\nnode1\n[all:vars]\ncluster_name=x\n"
    )
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.yml").write_text("slurm_qos:\n  - name: normal\n    Priority: 1\n    MaxJobsPU: 0\n"
                                                 "slurm_accounts: [{name: a, users: [ada]}]\n")  # fmt: skip

    with pytest.raises(ClusterctlError, match=r"all.yml, line 4: slurm_qos: QOS normal: MaxJobsPU is 0"):
        declared(loader.load(tmp_path / "inventory.ini"))
