"""What checks of a run did not pass, machine by machine, for the play that ends a run by it.

A record of the run's own, in the directory that Ansible makes for it and removes after it: facts and variables could be
set by a machine's answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path


def _file(directory: Path | str, host: str) -> Path:
    name = hashlib.sha256(host.encode()).hexdigest()
    return Path(directory) / f"cluster_checks_bad-{name}"


def record(directory: Path | str, host: str, lines: Iterable[str]) -> None:
    """Add what was found about a machine.

    Raises:
        OSError: it cannot be written.
    """
    if text := "".join(f"{line}\n" for line in lines):
        with _file(directory, host).open("a", encoding="utf-8", errors="replace") as file:
            file.write(text)


def recorded(directory: Path | str, host: str) -> list[str]:
    """Return what was found about a machine. Two stages may have judged the same; it is one finding."""
    try:
        text = _file(directory, host).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return list(dict.fromkeys(text.splitlines()))
