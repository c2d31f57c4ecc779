"""Numbers as people write them. Pure."""

from __future__ import annotations

import re


def whole(value: object) -> int:
    """Return the whole number that a variable holds, as a number or as the text that INI makes of it.

    Raises:
        ValueError: anything else, among it 48.5, "yes" and true: nothing is rounded or guessed.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"0|[1-9][0-9]{0,17}", value.strip()):
        return int(value)
    raise ValueError("it must be a whole number")
