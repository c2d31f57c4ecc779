"""How much memory a process may lock. Pure."""

from __future__ import annotations


def possible(wanted: str, highest: str) -> str:
    """Return the limit to set (KiB or ``unlimited``): what is wanted, but not more than the machine allows."""
    if highest == "unlimited":
        return wanted
    return highest if wanted == "unlimited" else str(min(int(wanted), int(highest)))


def is_limit(text: str) -> bool:
    """Return whether a text is KiB or ``unlimited``."""
    return text == "unlimited" or (text.isascii() and text.isdigit() and len(text) < 20)


def reaches(limit: str, wanted: str) -> bool:
    """Return whether a limit (KiB or ``unlimited``) is at least another."""
    return limit == "unlimited" or (wanted != "unlimited" and int(limit) >= int(wanted))
