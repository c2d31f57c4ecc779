"""What the inventory says of accounts, against what it says of the cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from provision import hostlist
from provision.errors import ClusterctlError, did_you_mean
from provision.inventory.declared_proof import accounts_of
from provision.model.cluster import Cluster
from provision.model.proof import ProofUser
from provision.slurm.accounts import NORMAL, ROOT, Accounts
from provision.slurm.admission import Admission, Submitter, looks_at_accounts
from provision.slurm.parameters import ON

#: The first release with the column Lineage, and with the QOS flag Relative: src/sacctmgr/common.c.
_SINCE = "23.11"

#: Parameters that the group slurm_database sets.
_OURS = ("AccountingStorageType", "AccountingStorageHost", "AccountingStoragePort")

#: With these a partition is for root, or for reservations alone.
_FLAGS = ("RootOnly", "ReqResv")
#: Parameters of a partition that name what the database keeps.
_KEPT = {"allowaccounts": "account", "denyaccounts": "account", "allowqos": "QOS", "denyqos": "QOS", "qos": "QOS"}


def database_from(groups: Mapping[str, Sequence[str]], controller: str) -> str:
    """Return the host of the accounting database; nothing where the inventory has none.

    Raises:
        ClusterctlError: it is another one than the controller.
    """
    hosts = tuple(dict.fromkeys(groups.get("slurm_database", ())))
    if others := [host for host in hosts if host != controller]:
        raise ClusterctlError(
            f"{hostlist.fold(others)}: group slurm_database has another host than the controller",
            fix=f"leave {controller} alone under [slurm_database]: the database runs on the controller",
        )
    return controller if hosts else ""


def enforced_by(cluster: Cluster, site: Mapping[str, Any]) -> bool:
    """Return whether only users with an account may submit: whether the inventory declares accounts.

    ``site`` are the variables of ``declared_proof.READ``, and ``slurm_database_parameters``.

    A site that removes AccountingStorageEnforce lets everybody submit, until all users are in.

    Raises:
        ClusterctlError: accounts or QOS contradict themselves, each other, or what is declared of the cluster.
    """
    accounts = accounts_of(site)
    if not cluster.database:
        if accounts.accounts or accounts.qos:
            name = "slurm_accounts" if accounts.accounts else "slurm_qos"
            raise ClusterctlError(
                f"{name} is set, and there is no database that could keep it",
                fix=f"write {cluster.controller} under [slurm_database], or remove {name}",
                said=(name, ""),
            )
        _require_nothing_kept(cluster)
        return False
    given = {name.lower(): name for name in cluster.slurm_parameters}
    for name in _OURS:
        if name.lower() in given:
            raise ClusterctlError(
                f"slurm_conf_parameters sets {name}, and the inventory has a host under [slurm_database]",
                fix=f"remove {name}, or take the host out of that group to use a database of your own",
                entry=("slurm_conf_parameters", None, given[name.lower()]),
            )
    _require_release(cluster, accounts)
    _require_nobody_leaving(cluster, accounts)
    _require_partitions(cluster, accounts)
    _require_default_qos(site.get("slurm_database_parameters"), accounts)
    name = given.get("accountingstorageenforce", "")
    value = cluster.slurm_parameters.get(name, "associations")
    enforced = looks_at_accounts(str(value or ""))
    if name and enforced and not accounts.accounts:
        raise ClusterctlError(
            f"slurm_conf_parameters: {name} is {value}, and slurm_accounts declares no account: no job would be taken, "
            "nor the cluster's own proofs",
            fix=f"remove {name}, and declare slurm_accounts: then it is set, and the proofs have an account",
            entry=("slurm_conf_parameters", None, name),
        )
    if not accounts.accounts or not enforced:
        return False
    _require_an_account(cluster, accounts)
    return True


def require_admitted(cluster: Cluster, proof: ProofUser) -> None:
    """Refuse partitions of which none is for the proof's user: nothing could be shown of the cluster.

    What the inventory does not know may admit: groups of the site's directory, accounts and QOS of another database.

    Raises:
        ClusterctlError: it names what keeps the user out of each partition.
    """
    who = Submitter(proof.groups, proof.accounts, proof.qos, enforced=cluster.enforced, host=cluster.controller)
    known = {NORMAL} if cluster.database else set()
    found = []
    for partition in cluster.partitions:
        said = dict(partition.parameters)
        groups = {name for name in said.get("AllowGroups", "").split(",") if name}
        if not groups <= {*cluster.people.gids, proof.name}:
            del said["AllowGroups"]
        if not known:
            said = {name: value for name, value in said.items() if not name.endswith("Qos")}
        out = next((name for name in _FLAGS if said.get(name, "").lower() in ON), "")
        if not (out := out or Admission.of(said).keeps_out(who)):
            return
        found.append((partition.name, out, said[out]))
    name, parameter, _ = found[0]
    ours = {"AllowGroups": " or ".join(proof.groups[:3]), "AllocNodes": cluster.controller}
    ours |= dict.fromkeys(("AllowAccounts", "DenyAccounts"), proof.account)
    ours |= dict.fromkeys(("AllowQos", "DenyQos"), proof.qos or NORMAL)
    way = "take {} out of {}" if parameter.startswith("Deny") else "add {} to {}"
    way = f"{way} of one of them".format(ours[parameter], parameter) if parameter in ours else "change that at one"
    raise ClusterctlError(
        f"no partition is for {proof.name}, whose jobs prove the cluster: "
        + ", ".join(f"{one} has {out}={value}"[:120] for one, out, value in found[:5]),
        fix=f"{way}; or let another user prove: cluster_test_user",
        entry=("slurm_partitions", [one.name for one in cluster.partitions].index(name), parameter),
    )


def _require_release(cluster: Cluster, accounts: Accounts) -> None:
    """Refuse accounts in a release whose sacctmgr tells no account's parents, nor knows all flags of QOS."""
    if cluster.slurm_version < _SINCE and (accounts.accounts or accounts.qos):
        name = "slurm_accounts" if accounts.accounts else "slurm_qos"
        raise ClusterctlError(
            f"{name} is set, and sacctmgr of Slurm {cluster.slurm_version} does not tell what it is compared with",
            fix=f"use Slurm {_SINCE} or newer (slurm_version), or remove {name} and use sacctmgr yourself",
            said=(name, ""),
        )


def _require_nothing_kept(cluster: Cluster) -> None:
    """Refuse what only a database makes true, where there is neither ours nor one of the site's own."""
    given = {name.lower(): (name, value) for name, value in cluster.slurm_parameters.items()}
    if given.get("accountingstoragetype", ("", None))[1] is not None:
        return
    fix = f"write {cluster.controller} under [slurm_database], or remove "
    enforce = given.get("accountingstorageenforce", ("", None))
    if enforce[1] is not None:
        # "You can not have AccountingStorageEnforce set for ...": src/slurmctld/controller.c.
        problem = f"slurm_conf_parameters sets {enforce[0]}, and there is no database: slurmctld would let everybody in"
        raise ClusterctlError(problem, fix=fix + enforce[0], entry=("slurm_conf_parameters", None, enforce[0]))
    for number, partition in enumerate(cluster.partitions):
        for key, value in partition.parameters:
            if key.lower() in _KEPT and value.upper() != "ALL":
                problem = f"partition {partition.name}: {key} is {value}, and there is no database that could know it"
                raise ClusterctlError(problem, fix=fix + key, entry=("slurm_partitions", number, key))


def _require_partitions(cluster: Cluster, accounts: Accounts) -> None:
    """Refuse a partition that names an account or a QOS which nobody defines."""
    known = {
        "account": {ROOT, *(one.name for one in accounts.accounts if not one.absent)},
        "QOS": {NORMAL, *(one.name for one in accounts.qos if not one.absent)},
    }
    for number, partition in enumerate(cluster.partitions):
        for key, value in partition.parameters:
            what = _KEPT.get(key.lower(), "")
            for name in _unknown(value, known[what]) if what else ():
                raise ClusterctlError(
                    f"partition {partition.name}: {key} names {what} {name!r}, which nobody defines",
                    fix=did_you_mean(
                        name, sorted(known[what]), f"define it in slurm_{what.lower()}s".replace("qoss", "qos")
                    ),
                    entry=("slurm_partitions", number, key),
                )


def _require_default_qos(parameters: object, accounts: Accounts) -> None:
    """Refuse a QOS of new clusters, in slurmdbd.conf, that nobody defines."""
    known = {NORMAL, *(one.name for one in accounts.qos if not one.absent)}
    for key, value in parameters.items() if isinstance(parameters, Mapping) else ():
        words = value if isinstance(value, list | tuple) else str(value).split(",")
        for name in words if str(key).lower() == "defaultqos" and value is not None else ():
            if str(name).strip().lower() not in known:
                raise ClusterctlError(
                    f"slurm_database_parameters: DefaultQOS names {str(name)[:70]!r}, which nobody defines",
                    fix=did_you_mean(str(name).lower(), sorted(known), "define it in slurm_qos"),
                    entry=("slurm_database_parameters", None, str(key)),
                )


def _require_an_account(cluster: Cluster, accounts: Accounts) -> None:
    """Refuse a user whom no account has: no job of theirs would be taken."""
    for number, user in enumerate(cluster.people.users):
        if not user.absent and user.name not in accounts.default_accounts:
            raise ClusterctlError(
                f"cluster_users: {user.name} is in no account, and could not submit a job",
                fix="add the name to the users of one in slurm_accounts",
                entry=("cluster_users", number, "name"),
            )


def _require_nobody_leaving(cluster: Cluster, accounts: Accounts) -> None:
    """Refuse a user who is to be absent and has an account: whom no machine knows cannot be in one."""
    for number, user in enumerate(cluster.people.users):
        if user.absent and (account := accounts.default_accounts.get(user.name)):
            raise ClusterctlError(
                f"cluster_users: {user.name} is to be absent, and is in account {account}",
                fix=f"in slurm_accounts, write {{name: {user.name}, state: absent}} among its users, or take one of "
                "the two out",
                entry=("cluster_users", number, "name"),
            )


def _unknown(value: str, known: Iterable[str]) -> list[str]:
    words = [word for word in re.split(r",", value) if word]
    return [word for word in words if word.lower() not in known and word.upper() != "ALL"]
