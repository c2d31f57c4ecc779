"""Text from machines, made fit for a terminal and a log. Pure."""

from __future__ import annotations

import re

#: Characters of one text that are shown; a machine can answer with a line of a million.
MAX_TEXT = 2000

# Control characters (C0 but tab and newline, DEL, C1), what changes the direction of writing, and invisible separators
# of lines. Escape sequences begin with one of them; taken together they disappear as a whole.
_SEQUENCES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")


def clean(text: str, limit: int = MAX_TEXT) -> str:
    """Return ``text`` without anything that a terminal would obey, and cut where it is longer than ``limit``."""
    if len(text) > limit:
        text = f"{text[:limit]}... ({len(text) - limit} more characters)"
    if text.isascii() and text.isprintable():
        return text
    return _CONTROLS.sub("\ufffd", _SEQUENCES.sub("", text))
