"""What accounts and QOS must be to each other: defined, once, not in a circle, and never without the proof. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from provision.errors import did_you_mean
from provision.slurm.accounts import NORMAL, ROOT, Account, Member, Qos, refusal
from provision.slurm.limits import NONE


def require_once(variable: str, names: Sequence[str]) -> None:
    for number, name in enumerate(names):
        if name in names[:number]:
            raise refusal(f"{variable}[{number}].name", f"{name} is there twice", "merge the two, or rename one")


def require_qos(accounts: Sequence[Account], levels: Sequence[Qos]) -> None:
    """Refuse a QOS that nobody defines, and a default one that the account may not use."""
    known = {NORMAL, *(level.name for level in levels if not level.absent)}
    for number, level in enumerate(levels):
        _require_known(f"slurm_qos[{number}].Preempt", f"QOS {level.name}", dict(level.settings).get("Preempt"), known)
    for number, account in enumerate(accounts):
        place = f"slurm_accounts[{number}]"
        inherited = dict(account.settings)
        for where, what, own in [
            (place, f"account {account.name}", inherited),
            *(
                (f"{place}.users[{index}]", f"{member.name} in account {account.name}", dict(member.settings))
                for index, member in enumerate(account.members)
            ),
        ]:
            for key in ("QOS", "DefaultQOS"):
                _require_known(f"{where}.{key}", what, own.get(key), known)
            allowed, default = own.get("QOS", inherited.get("QOS", NONE)), own.get("DefaultQOS", NONE)
            if NONE not in (allowed, default) and default not in allowed.split(","):
                raise refusal(
                    f"{where}.DefaultQOS",
                    f"{what}: DefaultQOS is {default}, and its QOS are {allowed}",
                    f"add {default} to QOS, or take another default",
                )


def _require_known(where: str, what: str, value: str | None, known: set[str]) -> None:
    for name in (value or NONE).split(","):
        if name.strip() not in (NONE, *known):
            raise refusal(
                where,
                f"{what} names QOS {name.strip()!r}, which nobody defines",
                did_you_mean(name, sorted(known), "define it in slurm_qos"),
            )


def require_one_default(accounts: Sequence[Account]) -> None:
    seen: dict[str, str] = {}
    for number, account in enumerate(accounts):
        for index, member in enumerate(account.members):
            if member.default and (other := seen.setdefault(member.name, account.name)) != account.name:
                raise refusal(
                    f"slurm_accounts[{number}].users[{index}]",
                    f"{member.name} has two default accounts, {other} and {account.name}",
                    "leave default: true at one of them",
                )


def with_proof(accounts: list[Account], user: str, name: str) -> list[Account]:
    """Return the accounts with one that has the proof's user, so that what is enforced never locks the proof out.

    ``name`` is that account. Empty: the user's default account, else one of the user's own name.
    """
    in_one = any(
        member.name == user and not member.absent for one in accounts if not one.absent for member in one.members
    )
    if in_one and not name:
        return accounts
    name, new = name or user, Member(user, default=not in_one)
    for number, account in enumerate(accounts):
        if account.name != name:
            continue
        place, member = f"slurm_accounts[{number}]", next((one for one in account.members if one.name == user), None)
        if account.absent or (member and member.absent):
            raise refusal(
                place, f"account {name} is that of the proof's user {user}", "leave it, or set cluster_test_account"
            )
        if member is None:
            accounts[number] = replace(account, members=(*account.members, new))
        return accounts
    return [*accounts, Account(name, ROOT, "proves the cluster", "clusterctl", members=(new,))]


def require_parents(accounts: Sequence[Account]) -> None:
    """Refuse a parent that is unknown or to be removed, and accounts that are below each other in a circle."""
    by_name = {account.name: account for account in accounts}
    for number, account in enumerate(accounts):
        place = f"slurm_accounts[{number}].parent"
        parent = by_name.get(account.parent)
        if parent is None and account.parent != ROOT:
            raise refusal(
                place,
                f"account {account.name} is below {account.parent[:70]!r}, which is no account",
                did_you_mean(account.parent, list(by_name), "declare that account, too"),
            )
        if parent and parent.absent and not account.absent:
            raise refusal(
                place,
                f"account {account.name} is below {parent.name}, which is to be removed",
                "give it another parent",
            )
    for number, account in enumerate(accounts):
        way = [account.name]
        while way[-1] != ROOT and (above := by_name[way[-1]].parent) not in way:
            way.append(above)
        if way[-1] != ROOT:
            circle = [*way[way.index(above) :], above]
            raise refusal(
                f"slurm_accounts[{number}].parent",
                f"accounts are below each other in a circle: {' -> '.join(circle)}",
                "give one of them another parent, or none",
            )
