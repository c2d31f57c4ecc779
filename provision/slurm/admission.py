"""Whom a partition lets in: slurm.conf(5), and _part_access_check() in src/slurmctld/job_mgr.c. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from provision import hostlist
from provision.errors import ClusterctlError
from provision.slurm.accounts import NORMAL

#: With one of these words slurmctld looks at a job's account; with others it does not:
#: _validate_accounting_storage_enforce() in src/common/read_config.c.
_OF_ACCOUNTS = {"1", "2", "all", "associations", "limits", "qos", "safe", "wckeys"}


def looks_at_accounts(enforced: str) -> bool:
    """Tell whether a value of AccountingStorageEnforce has slurmctld refuse a job for its account."""
    return not _OF_ACCOUNTS.isdisjoint(enforced.lower().split(","))


@dataclass(frozen=True)
class Submitter:
    """Who submits a job.

    ``groups`` are all of the user's, ``accounts`` the job's account and all above that, ``qos`` the job's; either is
    empty where the inventory says nothing of it. ``enforced``: slurmctld looks at accounts. ``host`` is where the job
    is submitted, empty for anywhere. ``reservation`` is the one that the job uses.
    """

    groups: Collection[str]
    accounts: Collection[str] = ()
    qos: str = ""
    enforced: bool = True
    host: str = ""
    reservation: str = ""


@dataclass(frozen=True)
class Admission:
    """Who may use a partition, by Slurm's names for it; an empty tuple is everybody."""

    AllowGroups: tuple[str, ...] = ()
    AllowAccounts: tuple[str, ...] = ()
    DenyAccounts: tuple[str, ...] = ()
    AllowQos: tuple[str, ...] = ()
    DenyQos: tuple[str, ...] = ()
    AllocNodes: tuple[str, ...] = ()

    @classmethod
    def of(cls, said: Mapping[str, str]) -> Admission:
        """Return what a partition's parameters say, as they stand in slurm.conf; others than these do not matter."""
        return cls(**{name: _listed(name, said.get(name, "")) for name in cls.__dataclass_fields__})

    def keeps_out(self, who: Submitter) -> str:
        """Return the parameter that keeps somebody out; empty where they may use the partition.

        Allow goes before Deny, and an account stands for those below it, too (since 23.02).
        """
        accounts, qos = {name.lower() for name in who.accounts}, (who.qos or NORMAL).lower()
        if self.AllowGroups and set(who.groups).isdisjoint(self.AllowGroups):
            return "AllowGroups"
        if who.enforced and self.AllowAccounts:
            if accounts.isdisjoint(self.AllowAccounts):
                return "AllowAccounts"
        elif who.enforced and not accounts.isdisjoint(self.DenyAccounts):
            return "DenyAccounts"
        if self.AllowQos:
            if qos not in self.AllowQos:
                return "AllowQos"
        elif qos in self.DenyQos:
            return "DenyQos"
        return "AllocNodes" if who.host and self.AllocNodes and who.host not in self.AllocNodes else ""


def _listed(name: str, value: str) -> tuple[str, ...]:
    """Return a list's words; none where it is not set, or says ALL."""
    if not value or value.upper() == "ALL":
        return ()
    if name == "AllocNodes":
        try:
            return tuple(hostlist.expand(value))
        except ClusterctlError:
            return ()
    words = tuple(word for word in re.split(r"[,\s]+", value) if word)
    # Slurm keeps accounts and QOS in lower case; groups are the system's.
    return words if name == "AllowGroups" else tuple(word.lower() for word in words)
