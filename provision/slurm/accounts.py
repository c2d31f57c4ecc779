"""Accounts, their users and QOS as the inventory declares them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from provision.errors import ClusterctlError
from provision.slurm.limits import NONE

#: The account above all others, and the QOS that every database has: Slurm makes both.
ROOT, NORMAL = "root", "normal"
Settings = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Member:
    """A user in an account. ``settings`` are sacctmgr's words and values; ``-1`` is none."""

    name: str
    settings: Settings = ()
    default: bool = False
    absent: bool = False


@dataclass(frozen=True)
class Account:
    """An account. ``description`` and ``organization`` are None where the inventory leaves them to the database."""

    name: str
    parent: str = ROOT
    description: str | None = None
    organization: str | None = None
    settings: Settings = ()
    members: tuple[Member, ...] = ()
    absent: bool = False


@dataclass(frozen=True)
class Qos:
    """A QOS."""

    name: str
    settings: Settings = ()
    absent: bool = False


@dataclass(frozen=True)
class Accounts:
    """All that is declared, in the inventory's order."""

    accounts: tuple[Account, ...] = ()
    qos: tuple[Qos, ...] = ()

    @property
    def parents_first(self) -> list[Account]:
        """The accounts, each after its parent."""
        parents = {account.name: account.parent for account in self.accounts}

        def depth(account: Account) -> int:
            above, name = 0, account.name
            while name in parents:
                above, name = above + 1, parents[name]
            return above

        return sorted(self.accounts, key=depth)

    @property
    def default_accounts(self) -> dict[str, str]:
        """The default account of each user: the one that says so, else the first that has the user."""
        found: dict[str, str] = {}
        for account in self.accounts:
            for member in account.members:
                if not (member.absent or account.absent) and (member.default or member.name not in found):
                    found[member.name] = account.name
        return found

    def line_of(self, name: str) -> tuple[str, ...]:
        """Return an account and all above it, root at last; nothing for no account."""
        parents = {account.name: account.parent for account in self.accounts}
        line = [name] if name else []
        while line and line[-1] != ROOT:
            line.append(parents.get(line[-1], ROOT))
        return tuple(line)

    def default_qos(self, user: str, account: str) -> str:
        """Return the QOS that a user's jobs have in an account: the user's own, or the nearest account's above."""
        by_name = {one.name: one for one in self.accounts}
        one = by_name.get(account)
        of_users = [member.settings for member in (one.members if one else ()) if member.name == user]
        while one:
            for settings in (*of_users, one.settings):
                if (found := dict(settings).get("DefaultQOS", NONE)) != NONE:
                    return found
            one, of_users = by_name.get(one.parent), []
        return ""


def refusal(place: str, problem: str, fix: str) -> ClusterctlError:
    """Return the refusal of what stands at a place of the inventory: ``slurm_accounts[2].users[0].MaxJobs``."""
    variable, number, key = (re.split(r"[\[\].]+", f"{place}..")[part] for part in range(3))
    return ClusterctlError(f"{variable}: {problem}", fix=fix, entry=(variable, int(number), key))
