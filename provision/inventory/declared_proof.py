"""Who proves the cluster, from what the inventory says of users and accounts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from provision.errors import ClusterctlError, did_you_mean
from provision.inventory.variables import site_default
from provision.model.numbers import whole
from provision.model.proof import ProofUser
from provision.model.user_entries import LOWEST
from provision.model.users import Users
from provision.slurm.accounts import Accounts
from provision.slurm.accounts_read import accounts_from

#: What of the inventory decides who it is.
READ = (
    "cluster_test_user", "cluster_test_uid", "cluster_test_account", "cluster_test_reservation", "slurm_accounts",
    "slurm_qos",
)  # fmt: skip


def name_of(site: Mapping[str, Any]) -> str:
    """Return the user's name: the one that the inventory names, else the one that is made where nobody is declared."""
    return str(site.get("cluster_test_user") or site_default("cluster_test_user"))


def number_of(site: Mapping[str, Any]) -> int:
    """Return the uid and gid of a user who is made for the proof; one that is no number is told of elsewhere."""
    default = int(site_default("cluster_test_uid"))
    try:
        given = site.get("cluster_test_uid")
        return whole(default if given is None else given)
    except ValueError:
        return default


def accounts_of(site: Mapping[str, Any]) -> Accounts:
    """Return what is declared of accounts and QOS, the proof's account among it.

    Raises:
        ClusterctlError: it contradicts itself.
    """
    return accounts_from(
        site.get("slurm_accounts"),
        site.get("slurm_qos"),
        user=name_of(site),
        account=str(site.get("cluster_test_account") or ""),
    )


def _named(site: Mapping[str, Any]) -> str:
    """Return the user's name; refuse names and numbers that no user or account can have."""
    name, account = name_of(site), str(site.get("cluster_test_account") or "")
    reservation = str(site.get("cluster_test_reservation") or "")
    for variable, value, form, what in (
        ("cluster_test_user", name, r"(?!root$)[a-z_][a-z0-9_.-]{0,31}", "a user's name, and not root's"),
        ("cluster_test_account", account, r"(?!root$)[a-z0-9][a-z0-9_.-]{0,39}|", "an account's name, and not root"),
        ("cluster_test_reservation", reservation, r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}|", "a reservation's name"),
    ):
        if not re.fullmatch(form, value):
            raise ClusterctlError(
                f"{variable} is {value[:70]!r}: it must be {what}", fix=f"correct {variable}", said=(variable, "")
            )
    if site.get("cluster_test_uid") is not None and number_of(site) < LOWEST:
        raise ClusterctlError(
            f"cluster_test_uid is {number_of(site)}: the proof is an ordinary user's, {LOWEST} or more",
            fix="remove it, or choose a free number",
            said=("cluster_test_uid", ""),
        )
    return name


def proof_from(site: Mapping[str, Any], people: Users) -> ProofUser:
    """Return who submits the proofs. ``site`` are the variables of READ, ``people`` the declared users.

    Raises:
        ClusterctlError: the inventory contradicts itself about them.
    """
    name, accounts = _named(site), accounts_of(site)
    account = accounts.default_accounts.get(name, "")
    if (wanted := str(site.get("cluster_test_account") or "")) and accounts.accounts:
        account = wanted
    qos = accounts.default_qos(name, account)
    line, reservation = accounts.line_of(account), str(site.get("cluster_test_reservation") or "")
    user = next((one for one in people.present if one.name == name), None)
    if user is None:
        number = number_of(site)
        return ProofUser(
            name,
            number,
            number,
            (name,),
            f"/home/{name}",
            account=account,
            qos=qos,
            accounts=line,
            reservation=reservation,
        )
    if site.get("cluster_test_uid") and number_of(site) != user.uid:
        raise ClusterctlError(
            f"cluster_test_uid is {number_of(site)}, and {name} has uid {user.uid} in cluster_users",
            fix="remove cluster_test_uid: who is declared has the declared number",
            said=("cluster_test_uid", ""),
        )
    declared = [str(one.get("name")) for one in site.get("slurm_accounts") or ()]
    if wanted and declared and wanted not in declared:
        raise ClusterctlError(
            f"cluster_test_account is {wanted!r}, which is no account of slurm_accounts",
            fix=did_you_mean(wanted, declared, f"leave it out: {name} has a default account"),
            said=("cluster_test_account", ""),
        )
    return ProofUser(
        name,
        user.uid,
        people.gids[user.group],
        (user.group, *user.groups),
        user.home,
        user.shell,
        declared=True,
        account=account,
        qos=qos,
        accounts=line,
        reservation=reservation,
    )
