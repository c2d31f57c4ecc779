"""Operating systems and what is known to work there: the one table that preflight refuses by. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class System:
    """An operating system by ``ID`` and ``VERSION_ID`` of os-release, and Ansible's name of its family.

    ``lacks`` says why no machine can be provisioned with it although some tables know its packages; else empty.
    """

    id: str
    versions: tuple[str, ...]
    family: str
    lacks: str = ""


_NO_IMAGES = "no role has the container engine's repository and the image builder's packages for this family yet"

SYSTEMS = (
    System("debian", ("12", "13"), "Debian"),
    System("ubuntu", ("22.04", "24.04"), "Debian"),
    *(System(name, ("9",), "RedHat", _NO_IMAGES) for name in ("rhel", "rocky", "almalinux", "centos", "ol")),
)

#: Those that a whole cluster can be made of.
SERVED = tuple(system for system in SYSTEMS if not system.lacks)


def known(name: str, version: str) -> System | None:
    """Return the entry for ``ID`` and ``VERSION_ID``, of which point releases do not matter; None if there is none."""
    for system in SYSTEMS:
        if system.id == name and any(version == one or version.startswith(f"{one}.") for one in system.versions):
            return system
    return None


def family(name: str, like: str = "") -> str:
    """Return Ansible's name of the family of a system, by ``ID`` and ``ID_LIKE`` of os-release; empty if unknown."""
    for word in (name, *like.split()):
        for system in SYSTEMS:
            if system.id == word:
                return system.family
    return ""
