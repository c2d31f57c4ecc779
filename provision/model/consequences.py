"""What mending a check brings with it: restarts, rebuilds, drains, reboots. Pure.

Declared where the thing itself is (a role's managed data, a judge), told by a plan before anything is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from provision.model.text import one_line


class Kind(StrEnum):
    """What happens. The order is that of how much it is felt."""

    REBOOT = "reboot"
    DRAIN = "drain"
    REPLACE = "replace"
    RESTART = "restart"
    RELOAD = "reload"
    RECONFIGURE = "reconfigure"
    RESUME = "resume"
    BUILD = "build"


_WORDS = {
    Kind.REBOOT: "reboots {}",
    Kind.DRAIN: "drains {}",
    Kind.REPLACE: "recreates the container {}",
    Kind.RESTART: "restarts {}",
    Kind.RELOAD: "reloads {}",
    Kind.RECONFIGURE: "reconfigures {}",
    Kind.RESUME: "gives {} back to Slurm",
    Kind.BUILD: "builds the image {}",
}


@dataclass(frozen=True)
class Consequence:
    """One of them. ``of`` is what it happens to (a service, a container, the node), ``note`` what that means there."""

    kind: Kind
    of: str
    note: str = ""

    @property
    def sentence(self) -> str:
        """The consequence in words, as a plan tells it."""
        told = _WORDS[self.kind].format(self.of)
        return f"{told} ({self.note})" if self.note else told


def consequence_from(data: Mapping[str, Any]) -> Consequence:
    """Build one from plain data, as a result or a stored document holds it.

    Raises:
        ValueError: its kind is none of the known words.
        KeyError: ``kind`` or ``of`` is missing.
    """
    return Consequence(Kind(data["kind"]), one_line(data["of"], 255), one_line(data.get("note", "")))
