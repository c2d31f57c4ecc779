"""Operating systems and what is known to work there: the one table that preflight refuses by. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class System:
    """An operating system by ``ID`` and ``VERSION_ID`` of os-release."""

    id: str
    versions: tuple[str, ...]


SYSTEMS = (
    System("debian", ("12", "13")),
    System("ubuntu", ("22.04", "24.04")),
)


def known(name: str, version: str) -> System | None:
    """Return the entry for ``ID`` and ``VERSION_ID``, of which point releases do not matter; None if there is none."""
    for system in SYSTEMS:
        if system.id == name and any(version == one or version.startswith(f"{one}.") for one in system.versions):
            return system
    return None
