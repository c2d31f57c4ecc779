"""What was decided about a machine's driver, in values: what all who decide and judge read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: its id below ``nvidia_driver.``, what was seen, why that is a problem, and a way out."""

    id: str
    observed: str
    cause: str
    fix: str


@dataclass(frozen=True)
class Plan:
    """What to install, in which order, and what else belongs to it.

    ``skip`` is why the machine gets no driver; ``refusals`` are why it cannot get this one. ``install`` is a list of
    package lists, each to be complete before the next; ``fabric`` are Fabric Manager and what goes with it, all in the
    driver's own version. ``repository`` is NVIDIA's or a mirror's address, empty for the distribution's. ``pending``
    says in words what differs from the machine; nothing pending is nothing to do, and what is ``disruptive`` must not
    meet a running job.
    """

    skip: str = ""
    refusals: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
    source: str = ""
    branch: int = 0
    version: str = ""
    flavour: str = ""
    family: str = ""
    kernels: tuple[str, ...] = ()
    repository: str = ""
    key: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    obsolete: tuple[str, ...] = ()
    stream: str = ""
    install: tuple[tuple[str, ...], ...] = ()
    fabric_manager: str = ""
    fabric: tuple[str, ...] = ()
    needless: tuple[str, ...] = ()
    hold_kernels: bool = True
    disruptive: bool = False
    pending: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, as Ansible takes them."""
        return asdict(self)
