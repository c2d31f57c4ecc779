"""What all of Slurm's JSON documents have in common. Standard library only: users' commands have this, too. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from provision.model.text import MAX_ANSWER, one_line

#: More than Slurm counts of anything; NaN is not within it either.
_MOST = 2**63


def document(text: str) -> dict[str, Any]:
    """Return the JSON document that a command printed, an empty mapping where it printed something else."""
    # Slurm's commands may print a warning before the document.
    start = text.find("{") if len(text) <= MAX_ANSWER else -1
    try:
        # And a script of ours the command's exit code after it.
        found, _ = json.JSONDecoder().raw_decode(text, start) if start >= 0 else ({}, 0)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def entries(told: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the mappings in a list of a document, none where it is no list."""
    found = told.get(key)
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def within(entry: Mapping[str, Any], *path: str) -> Any:
    """Return what stands below these keys, None where one of them is missing."""
    found: Any = entry
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def number(value: Any) -> int:
    """Return a number as Slurm gives it, plain or as ``{"set": true, "number": 5}``; 0 for anything else."""
    if isinstance(value, Mapping):
        value = value.get("number") if value.get("set", True) and not value.get("infinite") else 0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -_MOST <= value <= _MOST:
        return 0
    return int(value)


def words(value: Any) -> tuple[str, ...]:
    """Return a state as words: a list in newer data versions, ``IDLE+DRAIN`` in text. At most 20 of them."""
    text = value if isinstance(value, str) else ""
    listed = value if isinstance(value, list) else text[:300].replace("*", "+NOT_RESPONDING").split("+")
    told = (one_line(word, 300) for word in listed[:20] if isinstance(word, str))
    return tuple(word.upper()[:40] for word in told if word)
