"""How much memory a process may lock. Pure."""

from __future__ import annotations


def possible(wanted: str, highest: str) -> str:
    """Return the limit to set (KiB or ``unlimited``): what is wanted, but not more than the machine allows."""
    if highest == "unlimited":
        return wanted
    return highest if wanted == "unlimited" else str(min(int(wanted), int(highest)))


def reaches(limit: str, wanted: str) -> bool:
    """Return whether a limit (KiB or ``unlimited``) is at least another; False where one of them is neither."""
    return limit == "unlimited" or (limit.isdigit() and wanted.isdigit() and int(limit) >= int(wanted))
