"""Limits of accounts and QOS: what Slurm does not count, what nobody means, and what keeps the proof's jobs out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provision.model.cluster import Cluster
from provision.model.proof import ProofUser
from provision.slurm.accounts import NORMAL, Accounts, Settings, amounts, refusal
from provision.slurm.conf import counted_gres
from provision.slurm.limits import ASSOCIATION, COUNTED_ANYWAY, NONE, QOS, TIME, TRES, tres

#: With one of these slurmctld looks at limits: _validate_accounting_storage_enforce() in src/common/read_config.c.
_OF_LIMITS = {"all", "limits", "safe"}
#: Of a limit of 0: jobs that wait for their turn do not gain by it, and still start.
_HARMLESS = ("GrpJobsAccrue", "MaxJobsAccrue", "MaxJobsAccruePA", "MaxJobsAccruePU", "MinTRES")
#: What each of the proof's jobs has.
_HAS = ("billing", "cpu", "mem", "node")
#: Where a QOS sets the second, the first of an association does not count: slurm.conf(5), resource_limits.html.
_OVER = {"MaxJobs": "MaxJobsPU", "MaxSubmitJobs": "MaxSubmitJobsPU"}
#: MB: MinRAMSpace in cgroup.conf(5), which a job has at least.
_LEAST = 30

#: Whose limits, at which place of the inventory, and which.
_Level = tuple[str, str, Mapping[str, str]]


def require_limits(cluster: Cluster, accounts: Accounts, proof: ProofUser) -> None:
    """Refuse limits that mean nothing, and those with which no job of the proof could run.

    Raises:
        ClusterctlError: it names the limit, and what to write.
    """
    _require_tracked(cluster, accounts)
    for whose, limit, name, amount, place in amounts(accounts):
        if name == "mem" and 0 < amount < _LEAST and not limit.endswith("Mins") and limit != "MinTRES":
            problem = f"{whose}: {limit} has mem={amount}: that is in MB, and no job has so little"
            raise refusal(place, problem, f"give the unit: {limit}: mem={amount}G")
    given = {name.lower(): str(value or "") for name, value in cluster.slurm_parameters.items()}
    words = set(given.get("accountingstorageenforce", "limits").lower().split(","))
    if not cluster.enforced or words.isdisjoint(_OF_LIMITS):
        return
    gpus = any(item.name == "gpu" for node in cluster.nodes for item in node.hardware.gres or ())
    for whose, limit, told, place in _closed(accounts, proof, gpus=gpus):
        raise refusal(
            place,
            f"{whose}: {limit} is {told}: no job of {proof.name} could run, and those prove the cluster",
            f"take {limit} out, or raise it; or let a user of another account prove: cluster_test_user, "
            "cluster_test_account",
        )
    _require_least(accounts, proof, one_cpu="defcpupergpu" not in given)


def _require_tracked(cluster: Cluster, accounts: Accounts) -> None:
    """Refuse limits on what the database does not know: sacctmgr refuses them."""
    own = next((key for key in cluster.slurm_parameters if key.lower() == "accountingstoragetres"), "")
    tracked = str(cluster.slurm_parameters[own] or "").split(",") if own else counted_gres(cluster)
    known = {name.lower() for name in (*COUNTED_ANYWAY, *tracked)}
    unknown = any(node.hardware.gres is None for node in cluster.nodes)
    for whose, limit, name, _, place in amounts(accounts):
        if name.lower() in known or (not own and unknown and name.startswith("gres/")):
            continue
        whole = ",".join([*filter(None, tracked), name])
        problem = f"{whose}: {limit} limits {name}, which AccountingStorageTRES does not have counted"
        raise refusal(place, problem, f"set AccountingStorageTRES: {whole!r} in slurm_conf_parameters")


def _levels(accounts: Accounts, proof: ProofUser) -> list[_Level]:
    """Return the limits of the proof's user in the account, and those of the account and of all above it."""
    numbers = {one.name: number for number, one in enumerate(accounts.accounts)}
    line = [numbers[name] for name in proof.accounts if name in numbers]
    found: list[_Level] = []
    for number in line:
        one, place = accounts.accounts[number], f"slurm_accounts[{number}]"
        if not found:
            found += [
                (f"{member.name} in account {one.name}", f"{place}.users", _set(member.settings))
                for member in one.members
                if member.name == proof.name
            ]
        found.append((f"account {one.name}", place, _set(one.settings)))
    return found


def _set(settings: Settings) -> dict[str, str]:
    return {name: value for name, value in settings if value != NONE}


def _qos(accounts: Accounts, proof: ProofUser) -> _Level:
    name = proof.qos or NORMAL
    for number, one in enumerate(accounts.qos):
        if one.name == name:
            return f"QOS {name}", f"slurm_qos[{number}]", _set(one.settings)
    return name, "", {}


def _closed(accounts: Accounts, proof: ProofUser, *, gpus: bool) -> Iterator[tuple[str, str, str, str]]:
    """Yield whose limit is 0, which it is, what it says, and its place."""
    level = _qos(accounts, proof)
    of_qos = level[2]
    nearest: set[str] = set()
    for whose, place, own in (level, *_levels(accounts, proof)):
        for name, value in own.items():
            # Of the largest job the nearest association decides, and a QOS before any; of a group each does.
            if own is not of_qos and (
                _OVER.get(name, name) in of_qos or (not name.startswith("Grp") and name in nearest)
            ):
                continue
            if own is not of_qos:
                nearest.add(name)
            if name not in _HARMLESS and (told := _zero(name, value, gpus=gpus)):
                yield whose, name, told, place if place.endswith("users") else f"{place}.{name}"


def _zero(name: str, value: str, *, gpus: bool) -> str:
    """Return what of a limit is 0, and would be of every job more; empty for none."""
    kind = {**QOS, **ASSOCIATION}[name]
    if kind is TRES:
        names = (*_HAS, *(["gres/gpu"] if gpus else []))
        return next((f"{one}=0" for one, amount in (tres(value) or {}).items() if one in names and amount == 0), "")
    limited = kind is TIME or name.startswith(("GrpJobs", "GrpSubmit", "MaxJobs", "MaxSubmit"))
    return value if limited and name != "PreemptExemptTime" and kind.meaning(value) == 0 else ""


def _require_least(accounts: Accounts, proof: ProofUser, *, one_cpu: bool) -> None:
    """Refuse a QOS that wants more of a job than the proof's have: on each node one asks for a processor and a GPU."""
    whose, place, own = _qos(accounts, proof)
    for name, amount in (tres(own.get("MinTRES", "")) or {}).items():
        if amount > 1 and (name == "node" or name.startswith("gres/gpu") or (name == "cpu" and one_cpu)):
            raise refusal(
                f"{place}.MinTRES",
                f"{whose}: MinTRES wants {name}={amount} of each job, and those of {proof.name}, which prove nodes, "
                "have 1",
                f"let them have another QOS: DefaultQOS of {proof.name} in its account",
            )
