"""Who submits the cluster's own proofs, by what the inventory says."""

from __future__ import annotations

from typing import Any

import declare
import pytest

from provision.errors import ClusterctlError
from provision.inventory.declared_proof import proof_from
from provision.model.proof import ProofUser
from provision.model.users_declared import users_from

ADA = {"name": "ada", "uid": 2001, "group": "physics", "groups": ["video"]}
GROUPS = [{"name": "physics", "gid": 3001}]
ACCOUNTS = [
    {"name": "physics", "DefaultQOS": "short"},
    {"name": "test1267", "parent": "physics", "users": ["ada"]},
    {"name": "own", "users": [{"name": "eve", "DefaultQOS": "normal"}]},
]
SHORT = [{"name": "short", "Priority": 10}]


def proof(users: list[dict[str, Any]] | None = None, **site: Any) -> ProofUser:
    return proof_from(site, users_from(users, GROUPS))


def test_where_nobody_is_declared_a_user_of_the_proofs_own_is_made() -> None:
    found = proof()

    assert (found.name, found.uid, found.gid, found.declared) == ("slurmtest", 64031, 64031, False)
    assert (found.groups, found.home, found.options) == (("slurmtest",), "/home/slurmtest", ())


def test_a_declared_user_proves_with_the_declared_numbers_groups_home_account_and_qos() -> None:
    found = proof([ADA], cluster_test_user="ada", slurm_accounts=ACCOUNTS, slurm_qos=SHORT)

    assert (found.uid, found.gid, found.groups, found.home) == (2001, 3001, ("physics", "video"), "/home/ada")
    assert found.declared
    assert found.options == ("--account=test1267", "--qos=short")


def test_a_users_own_default_qos_goes_before_the_accounts() -> None:
    assert proof(cluster_test_user="eve", slurm_accounts=ACCOUNTS, slurm_qos=SHORT).qos == "normal"


def test_who_is_in_no_account_has_one_of_the_own_name_or_the_one_that_is_named() -> None:
    assert proof(slurm_accounts=ACCOUNTS, slurm_qos=SHORT).account == "slurmtest"
    named = {"cluster_test_account": "test1267", "slurm_accounts": ACCOUNTS, "slurm_qos": SHORT}
    assert proof(**named).options == ("--account=test1267", "--qos=short")


@pytest.mark.parametrize("users", [None, [{"name": "slurmtest", "uid": 64031}]])
def test_jobs_use_the_reservation_that_is_named(users: list[dict[str, Any]] | None) -> None:
    assert proof(users, cluster_test_reservation="clusterctl-new").options == ("--reservation=clusterctl-new",)
    with pytest.raises(ClusterctlError, match="cluster_test_reservation"):
        proof(users, cluster_test_reservation="x --uid=0")


def test_without_accounts_nothing_is_submitted_with_one() -> None:
    assert proof(cluster_test_account="test1267").options == ()


def test_one_who_is_declared_is_neither_made_nor_put_into_a_second_account() -> None:
    slurmtest = {"name": "slurmtest", "uid": 64031}
    accounts = [{"name": "proofs", "users": ["slurmtest"]}]
    cluster = declare.cluster(cluster_users=[slurmtest], cluster_homes_shared=False)

    assert [user.name for user in cluster.people.users] == ["slurmtest"]
    assert proof([slurmtest], slurm_accounts=accounts).account == "proofs"


def test_an_account_that_nobody_declares_is_refused_for_one_who_is_declared() -> None:
    with pytest.raises(ClusterctlError, match="'test127', which is no account") as refused:
        proof(
            [ADA],
            cluster_test_user="ada",
            cluster_test_account="test127",
            slurm_accounts=ACCOUNTS,
            slurm_qos=SHORT,
        )

    assert refused.value.fix == "did you mean test1267?"


@pytest.mark.parametrize("accounts", [[], ACCOUNTS])
def test_roles_are_told_in_plain_words(accounts: list[dict[str, Any]]) -> None:
    told = proof([ADA], cluster_test_user="ada", slurm_accounts=accounts, slurm_qos=SHORT).as_dict()

    assert told["groups"] == ["physics", "video"]
    assert told["options"] == (["--account=test1267", "--qos=short"] if accounts else [])
