"""What a program on a machine answered: nothing of it is trusted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def mapping(value: object) -> Mapping[str, Any]:
    """Return what should be a mapping; an empty one where it is something else."""
    return value if isinstance(value, Mapping) else {}
