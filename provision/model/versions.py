"""Versions: how their texts are read, and the release of Slurm that is meant where nobody says another. Pure."""

from __future__ import annotations

import re

Version = tuple[int, ...]

#: The same as in roles/cluster/defaults/main.yml, which ansible-playbook reads.
SLURM_VERSION = "24.11"


def version(text: str) -> Version:
    """Return the leading numbers of a version: ``6.8.0-31-generic`` is (6, 8, 0); nothing where there is none."""
    # Digits of ASCII, and not many: what a machine says is read here, too.
    found = re.match(r"[0-9]{1,9}(?:\.[0-9]{1,9}){0,7}", text.strip())
    return tuple(int(part) for part in found[0].split(".")) if found else ()
