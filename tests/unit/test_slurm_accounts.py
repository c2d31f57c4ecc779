"""Accounts, users and QOS as data: what is refused and where, what Slurm is told, and that the proof stays in."""

from __future__ import annotations

from typing import Any

import pytest
from declare import cluster

from provision.errors import ClusterctlError
from provision.slurm.accounts import Accounts
from provision.slurm.accounts_read import accounts_from
from provision.slurm.conf import slurm_values
from provision.slurm.limits import ASSOCIATION, QOS, same

GROUP = {"name": "test1267", "Fairshare": 40, "GrpTRES": "gres/gpu=8", "users": ["ada", "ben"]}
DEFAULT = {"name": "u", "default": True}


def declared(accounts: Any, qos: Any = None) -> Accounts:
    return accounts_from(accounts, qos, user="slurmtest", account="slurmtest")


def parameters(**site: Any) -> dict[str, str]:
    return {line["name"]: line["value"] for line in slurm_values(cluster(**site))["parameters"]}


def test_without_a_database_nothing_is_accounted_for() -> None:
    assert [name for name in parameters() if name.startswith(("Accounting", "Priority"))] == []


def test_with_a_database_what_jobs_use_is_kept_and_nobody_is_kept_out() -> None:
    found = parameters(database=True)

    assert found["AccountingStorageType"] == "accounting_storage/slurmdbd"
    assert found["AccountingStorageHost"] == "head"
    assert found["AccountingStorageTRES"] == "gres/gpu,gres/gpu:A40"
    assert "AccountingStorageEnforce" not in found
    assert "PriorityWeightFairshare" not in found


def test_accounts_are_enforced_and_who_has_used_less_comes_first() -> None:
    found = parameters(database=True, slurm_accounts=[GROUP])

    assert found["AccountingStorageEnforce"] == "associations,limits,qos,safe"
    assert (found["PriorityType"], found["PriorityWeightFairshare"]) == ("priority/multifactor", "10000")


def test_enforcement_can_wait() -> None:
    site = {"slurm_conf_parameters": {"AccountingStorageEnforce": None}}

    assert "AccountingStorageEnforce" not in parameters(database=True, slurm_accounts=[GROUP], **site)
    assert cluster(
        database=True,
        slurm_accounts=[GROUP],
        cluster_users=[{"name": "eve", "uid": 2005}],
        cluster_homes_shared=False,
        **site,
    )


def test_where_accounts_are_the_proof_has_its_own() -> None:
    (_, proof) = declared([GROUP]).accounts

    assert (proof.name, [member.name for member in proof.members]) == ("slurmtest", ["slurmtest"])
    assert declared([GROUP]).default_accounts == {"ada": "test1267", "ben": "test1267", "slurmtest": "slurmtest"}
    assert declared([], []).accounts == ()


def test_an_account_of_that_name_gets_the_proofs_user() -> None:
    (own,) = declared([{"name": "slurmtest", "Fairshare": 1}]).accounts

    assert [member.name for member in own.members] == ["slurmtest"]


def test_the_default_account_is_the_first_or_the_one_that_says_so() -> None:
    first = [GROUP, {"name": "b", "users": ["ada"]}]
    second = [GROUP, {"name": "b", "users": [{"name": "ada", "default": True}]}]

    assert declared(first).default_accounts["ada"] == "test1267"
    assert declared(second).default_accounts["ada"] == "b"


def test_words_are_sacctmgrs_whatever_their_case_or_length() -> None:
    (account, _) = declared(
        [{"Name": "a", "grptres": "cpu=4", "MaxTRESPerJob": "gres/gpu=1", "MaxJobs": None}]
    ).accounts

    assert dict(account.settings) == {"GrpTRES": "cpu=4", "MaxTRES": "gres/gpu=1", "MaxJobs": "-1"}


def test_a_qos_has_all_words_of_sacctmgr_that_all_releases_know() -> None:
    (level,) = declared(
        None, [{"name": "x", "PreemptExemptTime": "1-12", "MaxTRESPN": "cpu=4", "Flags": "Relative"}]
    ).qos

    assert dict(level.settings) == {"PreemptExemptTime": "1-12", "MaxTRESPerNode": "cpu=4", "Flags": "Relative"}
    assert same(QOS["PreemptExemptTime"], "1-12", "1-12:00:00")
    assert same(QOS["PreemptExemptTime"], "30", "00:30:00")
    assert same(QOS["PreemptExemptTime"], "-1", "")


#: What sacctmgr 24.11 shows after it was told.
SHOWN = [
    ("MaxWall", "1:30", "00:02:00"), ("GrpWall", "0:30", "00:01:00"), ("MaxWall", "35791393", "24855-03:13:00"),
    ("PreemptExemptTime", "1:30", "00:01:30"), ("PreemptExemptTime", "24855-3:14:07", "24855-03:14:07"),
    ("GraceTime", "1:00", "00:01:00"), ("GraceTime", "2147483647", "24855-03:14:07"), ("GraceTime", "-1", "00:00:00"),
    ("GrpTRES", "mem=1536G", "mem=1.50T"), ("GrpTRES", "mem=1536,cpu=4", "cpu=4,mem=1.50G"),
    ("GrpTRES", "mem=8000p", "mem=8000P"), ("GrpTRES", "vmem=100", "vmem=100"),
    ("PreemptMode", "-1", "cluster"),
    ("UsageFactor", "0.1234567", "0.123457"), ("Priority", "-1", "0"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "shown"), SHOWN)
def test_a_value_is_the_declared_one_however_the_database_shows_it(name: str, value: str, shown: str) -> None:
    assert same(QOS[name], value, shown)
    assert not same(QOS[name], value, "00:07:00" if "Wall" in name or "Time" in name else "x=1")


def test_an_association_without_a_priority_is_shown_without_one() -> None:
    assert not same(ASSOCIATION["Priority"], "-1", "0")


def test_parents_come_first() -> None:
    found = declared([{"name": "c", "parent": "b"}, {"name": "b", "parent": "a"}, {"name": "a"}])

    assert [account.name for account in found.parents_first][-2:] == ["b", "c"]


@pytest.mark.parametrize(
    ("accounts", "qos", "said", "fix"),
    [
        ([{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}], None, "in a circle: a -> b -> a", "another"),
        ([{"name": "physics"}, {"name": "b", "parent": "phisics"}], None, "below 'phisics', which is no", "physics?"),
        ([{"name": "a", "state": "absent"}, {"name": "b", "parent": "a"}], None, "below a, which is to be removed", ""),
        ([{"name": "a"}, {"name": "a"}], None, "a is there twice", ""),
        ([{"name": "a", "users": ["ada", "ada"]}], None, "account a has ada twice", ""),
        (None, [{"name": "x", "Flags": "NoDecay,DenyOnLimt"}], "Flags is 'NoDecay,DenyOnLimt'", "mean DenyOnLimit?"),
        ([{"name": "a", "GrpTRES": "cpus=4"}], None, "GrpTRES is 'cpus=4'", "did you mean cpu?"),
        ([{"name": "a", "FairSharee": 4}], None, "'FairSharee', which is no parameter", "did you mean Fairshare?"),
        ([{"name": "a", "Fairshare": 1, "fairshare": 2}], None, "has Fairshare twice", ""),
        ([{"name": "a", "GrpTRES": "gres/gpu:8"}], None, "it must be TRES", ""),
        ([{"name": "a", "MaxJobs": "many"}], None, "MaxJobs is 'many': it must be a whole number", ""),
        ([{"name": "a", "MaxWall": "soon"}], None, "it must be minutes", ""),
        ([{"name": "a", "QOS": ["normal", "lng"]}], [{"name": "long"}], "QOS 'lng', which nobody defines", "long?"),
        ([{"name": "a", "QOS": "normal", "DefaultQOS": "x"}], [{"name": "x"}], "DefaultQOS is x", "add x to QOS"),
        (None, [{"name": "normal", "state": "absent"}], "Slurm's own", ""),
        ([{"name": "Physics"}], None, "it must be lower-case letters", ""),
        ([{"Fairshare": 4}], None, "an account has no name, and has 'Fairshare'", ""),
        ([{"name": "a", "users": "ada"}], None, "users is 'ada': it must be a list", ""),
        ([{"name": "a", "users": ["ada;rm"]}], None, "'ada;rm'", ""),
        ([{"name": "a", "description": "x|y"}], None, "description", "use letters"),
        ([{"name": "a", "state": "gone"}], None, "state is 'gone'", "absent"),
        ([{"name": "a", "users": [DEFAULT]}, {"name": "b", "users": [DEFAULT]}], None, "u has two default", ""),
        ([{"name": "slurmtest", "state": "absent"}], None, "that of the proof's user", "cluster_test_account"),
        ({"a": 1}, None, "it must be a list of mappings", ""),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(accounts: Any, qos: Any, said: str, fix: str) -> None:
    with pytest.raises(ClusterctlError) as refused:
        declared(accounts, qos)

    assert said in refused.value.problem
    assert fix in refused.value.fix
