"""Accounts, users and QOS as data: what is refused and where, what Slurm is told, and that the proof stays in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from declare import A40, cluster, inventory

from provision.errors import ClusterctlError
from provision.inventory import loader, valid
from provision.inventory.declared import cluster_from
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
        ([{"name": "a", "parent": "a"}], None, "in a circle: a -> a", ""),
        ([{"name": "physics"}, {"name": "b", "parent": "phisics"}], None, "below 'phisics', which is no", "physics?"),
        ([{"name": "a", "state": "absent"}, {"name": "b", "parent": "a"}], None, "below a, which is to be removed", ""),
        ([{"name": "a"}, {"name": "a"}], None, "a is there twice", ""),
        (None, [{"name": "x"}, {"name": "x"}], "x is there twice", ""),
        ([{"name": "a", "users": ["ada", "ada"]}], None, "account a has ada twice", ""),
        (None, [{"name": "x", "Flags": "NoDecay,DenyOnLimt"}], "Flags is 'NoDecay,DenyOnLimt'", "mean DenyOnLimit?"),
        (None, [{"name": "x", "PreemptMode": "REQUEU"}], "one of cluster, cancel, requeue", "did you mean requeue?"),
        ([{"name": "a", "GrpTRES": "cpus=4"}], None, "GrpTRES is 'cpus=4'", "did you mean cpu?"),
        ([{"name": "a", "FairSharee": 4}], None, "'FairSharee', which is no parameter", "did you mean Fairshare?"),
        ([{"name": "a", "Fairshare": 1, "fairshare": 2}], None, "has Fairshare twice", ""),
        (None, [{"name": "x", "MaxTresPerUsr": "cpu=1"}], "no parameter", "MaxTRESPU"),
        ([{"name": "a", "GrpTRES": "gpu=8"}], None, "it must be TRES with amounts", ""),
        ([{"name": "a", "GrpTRES": "gres/gpu:8"}], None, "it must be TRES", ""),
        ([{"name": "a", "GrpTRES": "cpu=4G"}], None, "it must be TRES", ""),
        ([{"name": "a", "GrpTRES": 8}], None, "it must be TRES", ""),
        ([{"name": "a", "MaxJobs": "many"}], None, "MaxJobs is 'many': it must be a whole number", ""),
        ([{"name": "a", "MaxJobs": True}], None, "MaxJobs is 'True'", ""),
        ([{"name": "a", "MaxWall": "soon"}], None, "it must be minutes", ""),
        ([{"name": "a", "QOS": ["normal", "lng"]}], [{"name": "long"}], "QOS 'lng', which nobody defines", "long?"),
        ([{"name": "a", "DefaultQOS": "x"}], None, "QOS 'x', which nobody defines", "slurm_qos"),
        ([{"name": "a", "QOS": "normal", "DefaultQOS": "x"}], [{"name": "x"}], "DefaultQOS is x", "add x to QOS"),
        ([{"name": "a", "users": [{"name": "ada", "QOS": "x"}]}], None, "QOS 'x', which nobody defines", ""),
        (None, [{"name": "x", "Preempt": "y"}], "QOS 'y', which nobody defines", ""),
        (None, [{"name": "x", "Flags": "Nonsense"}], "Flags is 'Nonsense'", ""),
        (None, [{"name": "normal", "state": "absent"}], "Slurm's own", ""),
        ([{"name": "Physics"}], None, "it must be lower-case letters", ""),
        ([{"name": "root"}], None, "Slurm's own", ""),
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


@pytest.mark.parametrize(
    ("site", "said"),
    [
        ({"database": False, "slurm_accounts": [GROUP]}, "no database that could keep it"),
        ({"database": False, "slurm_qos": [{"name": "x"}]}, "no database that could keep it"),
        ({"database": False, "slurm_partitions": [{"PartitionName": "p", "QOS": "gold"}]}, "QOS is gold, and there"),
        ({"database": False, "slurm_partitions": [{"PartitionName": "p", "AllowAccounts": "a"}]}, "AllowAccounts is a"),
        ({"database": False, "slurm_conf_parameters": {"AccountingStorageEnforce": "limits"}}, "let everybody in"),
        ({"slurm_accounts": [GROUP], "slurm_partitions": [{"PartitionName": "p", "AllowAccounts": "tst1267"}]},
         "AllowAccounts names account 'tst1267', which nobody defines"),
        ({"slurm_accounts": [GROUP], "slurm_partitions": [{"PartitionName": "p", "QOS": "partt"}]},
         "QOS names QOS 'partt', which nobody defines"),
        ({"slurm_conf_parameters": {"AccountingStorageHost": "db"}}, "a host under [slurm_database]"),
        ({"slurm_conf_parameters": {"AccountingStorageEnforce": "associations"}}, "declares no account: no job would"),
        ({"slurm_conf_parameters": {"ACCOUNTINGStorageEnforce": ["qos", "nosteps"]}}, "declares no account"),
        ({"slurm_accounts": [GROUP], "slurm_version": "22.05"}, "sacctmgr of Slurm 22.05 does not tell"),
        ({"slurm_qos": [{"name": "x", "Flags": "Relative"}], "slurm_version": "23.02"}, "slurm_qos is set, and"),
        ({"slurm_partitions": [{"PartitionName": "p", "AllowAccounts": "gold"}]}, "account 'gold', which nobody"),
        ({"slurm_partitions": [{"PartitionName": "p", "QOS": "gold"}]}, "QOS 'gold', which nobody defines"),
        ({"slurm_accounts": [GROUP], "cluster_users": [{"name": "eve", "uid": 2005}], "cluster_homes_shared": False},
         "cluster_users: eve is in no account, and could not submit a job"),
        ({"slurm_accounts": [GROUP], "cluster_users": [{"name": "ben", "state": "absent"}]},
         "cluster_users: ben is to be absent, and is in account test1267"),
    ],
)  # fmt: skip
def test_what_contradicts_the_cluster_is_refused(site: dict[str, Any], said: str) -> None:
    with pytest.raises(ClusterctlError) as refused:
        cluster(**{"database": True, **site})

    assert said in refused.value.problem


def test_gpus_that_are_still_to_be_discovered_may_be_limited() -> None:
    nodes = {"node1": {"node_cpus": 4}}

    assert cluster(nodes, database=True, slurm_accounts=[{"name": "a", "GrpTRES": "gres/gpu=1"}]).enforced


def test_partitions_may_name_accounts_and_qos_that_are_declared() -> None:
    partition = {"PartitionName": "p", "AllowAccounts": "test1267,slurmtest", "AllowQos": "ALL", "QOS": "part"}

    assert cluster(database=True, slurm_accounts=[GROUP], slurm_qos=[{"name": "part"}], slurm_partitions=[partition])


def only(name: str, **partition: Any) -> dict[str, Any]:
    """Return a cluster of one partition, in which accounts physics, test1267 below it and QOS short are declared."""
    accounts = [{"name": "physics", "DefaultQOS": "short", "users": ["eve"]}, {**GROUP, "parent": "physics"}]
    site = {"database": True, "slurm_accounts": accounts, "slurm_qos": [{"name": "short"}], "cluster_test_user": "ada"}
    return {**site, "slurm_partitions": [{"PartitionName": name, **partition}]}


GROUPS = {"cluster_groups": [{"name": "people", "gid": 3001}]}
OPEN: list[dict[str, Any]] = [
    {"AllowAccounts": "test1267"}, {"AllowAccounts": "physics"}, {"AllowAccounts": "ALL"},
    {"AllowQos": "short"}, {"DenyQos": "normal"}, {"AllocNodes": "head,node1"}, {"AllowGroups": "ada,people"},
    # Of the site's directory.
    {"AllowGroups": "hpc-users"}, {"RootOnly": "NO"},
]  # fmt: skip
CLOSED: list[tuple[dict[str, Any], str, str]] = [
    ({"AllowAccounts": "other"}, "AllowAccounts=other", "add test1267 to AllowAccounts"),
    ({"DenyAccounts": "physics"}, "DenyAccounts=physics", "take test1267 out of DenyAccounts"),
    ({"AllowQos": "normal"}, "AllowQos=normal", "add short to AllowQos"),
    ({"DenyQos": "short"}, "DenyQos=short", "take short out of DenyQos"),
    ({"AllowGroups": "people"}, "AllowGroups=people", "add ada to AllowGroups"),
    ({"AllocNodes": "node[1-2]"}, "AllocNodes=node[1-2]", "add head to AllocNodes"),
    ({"RootOnly": True}, "RootOnly=YES", "change that at one"),
    ({"ReqResv": "yes"}, "ReqResv=yes", "cluster_test_user"),
]


@pytest.mark.parametrize("partition", OPEN)
def test_a_partition_may_be_for_some_if_the_proofs_user_is_among_them(partition: dict[str, Any]) -> None:
    assert cluster(**only("gpu", **partition), **GROUPS).enforced


@pytest.mark.parametrize(("partition", "said", "fix"), CLOSED)
def test_a_cluster_is_refused_whose_partitions_keep_its_proofs_out(
    partition: dict[str, Any], said: str, fix: str
) -> None:
    site = only("gpu", **partition) | GROUPS
    site["slurm_accounts"] = [*site["slurm_accounts"], {"name": "other"}]

    with pytest.raises(ClusterctlError) as refused:
        cluster(**site)

    assert f"no partition is for ada, whose jobs prove the cluster: gpu has {said}" in refused.value.problem
    assert fix in refused.value.fix
    assert refused.value.entry == ("slurm_partitions", 0, next(iter(partition)))
    site["slurm_partitions"] = [*site["slurm_partitions"], {"PartitionName": "open", "Default": "YES"}]
    assert cluster(**site).partitions


def test_accounts_keep_no_proof_out_as_long_as_nothing_is_enforced() -> None:
    site = only("gpu", AllowAccounts="other")
    site["slurm_accounts"] = [*site["slurm_accounts"], {"name": "other"}]

    assert not cluster(**site, slurm_conf_parameters={"AccountingStorageEnforce": None}).enforced
    assert not cluster(**site, slurm_conf_parameters={"AccountingStorageEnforce": "nojobs"}).enforced


INVENTORY = """
[slurm_controller]
head ansible_host=10.0.0.1
[slurm_compute]
node1 ansible_host=10.0.0.2
[slurm_database]
head
[all:vars]
cluster_name=lab
"""
VARIABLES = """
slurm_qos:
  - {name: long, Priority: 10}
slurm_accounts:
  - name: physics
    Fairshare: 60
    users: [ada]
  - name: biology
    parent: physic
"""


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("parent: physic", "parent: physic", 9),
        ("Fairshare: 60", "Fairshare: lots", 6),
        ("users: [ada]", "users: [ada, ada]", 7),
        ("parent: physic", "QOS: [lung]", 9),
        ("Priority: 10", "Priorty: 10", 3),
    ],
)
def test_a_refusal_says_the_file_and_the_line(tmp_path: Path, old: str, new: str, line: int) -> None:
    (tmp_path / "inventory.ini").write_text(INVENTORY)
    (tmp_path / "group_vars").mkdir()
    file = tmp_path / "group_vars/all.yml"
    file.write_text(
        VARIABLES.replace(old, new).replace(
            "parent: physic\n", "parent: physics\n" if old[0] != "p" else "parent: physic\n"
        )
    )

    with pytest.raises(ClusterctlError) as refused:
        valid.declared(loader.load(tmp_path / "inventory.ini"))

    assert refused.value.problem.startswith(f"{file}, line {line}: "), refused.value.problem


def test_another_host_for_the_database_is_refused() -> None:
    groups, variables = inventory({"node1": A40})
    groups["slurm_database"] = ("node1",)

    with pytest.raises(ClusterctlError, match="another host than the controller"):
        cluster_from(groups, variables)
