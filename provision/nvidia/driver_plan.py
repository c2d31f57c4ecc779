"""What was decided about a machine's driver, in values: what all who decide and judge read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from provision.model.managed import Managed, with_directories
from provision.model.places import Place


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: its id below ``nvidia_driver.``, what was seen, why that is a problem, and a way out."""

    id: str
    observed: str
    cause: str
    fix: str


class StepKind(StrEnum):
    """What a step of a plan does. The role's tasks go by these words."""

    INSTALL = "install"
    KERNEL = "kernel"
    REPLACE = "replace"
    REMOVE = "remove"
    WRITE = "write"
    INITRAMFS = "initramfs"
    HOLD = "hold"
    BUILD = "build"
    FLAVOUR = "flavour"
    RELOAD = "reload"
    REBOOT = "reboot"
    START = "start"
    RESTART = "restart"


@dataclass(frozen=True)
class Step:
    """One thing that there is to do, and that in words; ``kernel`` is the one whose module it is about.

    One that is ``disruptive`` must not meet a running job.
    """

    kind: StepKind
    text: str
    kernel: str = ""
    disruptive: bool = True


@dataclass(frozen=True)
class Plan:
    """What to install, in which order, and what else belongs to it.

    ``skip`` is why the machine gets no driver; ``refusals`` are why it cannot get this one. ``install`` is a list of
    package lists, each to be complete before the next; ``fabric`` are Fabric Manager and what goes with it, all in the
    driver's own version. ``key`` is the repository's: its ``path``, the ``file`` of the role that it is or its ``url``,
    and ``fingerprints``. ``repository`` is NVIDIA's or a mirror's address, empty for the distribution's. ``absent``
    are files of ours for another source of packages, ``obsolete`` those of them that are there. ``pending`` is
    what differs from the machine; nothing pending is nothing to do, and it is ``disruptive`` where one of its steps is.
    ``newest_kernel``: the machine is to run the archive's newest one; ``kernels_offered`` are those that it lacks, None
    where the archive was not asked.
    """

    skip: str = ""
    refusals: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
    source: str = ""
    branch: int = 0
    version: str = ""
    flavour: str = ""
    kernels: tuple[str, ...] = ()
    repository: str = ""
    key: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    obsolete: tuple[str, ...] = ()
    install: tuple[tuple[str, ...], ...] = ()
    fabric_manager: str = ""
    fabric: tuple[str, ...] = ()
    needless: tuple[str, ...] = ()
    hold_kernels: bool = True
    newest_kernel: bool = False
    kernels_offered: tuple[str, ...] | None = None
    disruptive: bool = False
    pending: tuple[Step, ...] = ()

    def managed(self) -> Managed:
        """Return what is to be at paths: as a role's data says it where it does not follow from a plan."""
        files = [Place(path, mode="0644", text=text) for path, text in self.files.items()]
        if self.key:
            files.append(Place(self.key["path"], mode="0644", fingerprints=tuple(self.key["fingerprints"])))
        return with_directories(files, self.absent)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, as Ansible takes them."""
        steps = [{"kind": str(step.kind), "text": step.text} for step in self.pending]
        return {**asdict(self), "pending": steps}
