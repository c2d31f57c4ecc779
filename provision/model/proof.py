"""Whose jobs prove the cluster: an ordinary user, who is one of the site's or made for it. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class ProofUser:
    """The user who submits the cluster's own proofs.

    ``groups`` are all of the user's, the own one first. ``declared``: the site has the user in ``cluster_users``; else
    the user is made for the proof. ``account`` and ``qos`` are what their jobs are submitted with, empty where the
    inventory says nothing of it. ``accounts`` are that account and all above it. ``reservation`` is the one of Slurm's
    that the jobs use, empty for none.
    """

    name: str
    uid: int
    gid: int
    groups: tuple[str, ...]
    home: str
    shell: str = "/bin/bash"
    declared: bool = False
    account: str = ""
    qos: str = ""
    accounts: tuple[str, ...] = ()
    reservation: str = ""

    @property
    def options(self) -> tuple[str, ...]:
        """What Slurm's commands are told when they submit for the user."""
        named = (("account", self.account), ("qos", self.qos), ("reservation", self.reservation))
        return tuple(f"--{name}={value}" for name, value in named if value)

    def as_dict(self) -> dict[str, Any]:
        """Return it as roles read it."""
        lists = {name: list(getattr(self, name)) for name in ("groups", "accounts", "options")}
        return {**asdict(self), **lists}
