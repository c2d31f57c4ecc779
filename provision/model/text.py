"""Text from machines, made fit for a terminal and a log. Pure."""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
import zlib
from collections.abc import Sequence

#: Characters of one text that are shown; a machine can answer with a line of a million.
MAX_TEXT = 2000

#: Characters of one answer that are read: ``scontrol show nodes --json`` takes about 3,000 for each node.
MAX_ANSWER = 32_000_000

# Escape sequences disappear as a whole, with what they carry: control sequences; strings for the terminal or a program
# beside it (OSC, DCS, SOS, PM, APC), up to their end or that of the text; choices of a character set; two-letter ones.
_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)?"
    r"|\x1b[ -/]+[0-~]"
    r"|\x1b[0-Z\\^-~]"
)

# Control characters (C0 but tab and newline, DEL, C1), separators of lines, halves of pairs.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def clean(text: str, limit: int = MAX_TEXT) -> str:
    """Return ``text`` without anything that a terminal would obey, and cut where it is longer than ``limit``.

    A control character leaves a mark. What is invisible (no width, direction of writing, tags) is gone without one,
    so that a search finds the word.
    """
    if len(text) > limit:
        text = f"{text[:limit]}... ({len(text) - limit} more characters)"
    if text.isascii() and text.isprintable():
        return text
    text = _CONTROLS.sub("\ufffd", _SEQUENCES.sub("", text))
    return text if text.isascii() else "".join(letter for letter in text if unicodedata.category(letter) != "Cf")


def one_line(text: object, limit: int = MAX_TEXT) -> str:
    """Return what ``clean`` leaves, as one line: nothing that a machine says begins a line of its own."""
    return " ".join(clean(str(text), limit).split())


def brief(texts: Sequence[str], shown: int = 5, between: str = "; ") -> str:
    """Return the first of several findings as one text, and how many more there are: a thousand are told like five."""
    more = [f"and {len(texts) - shown} more"] if len(texts) > shown else []
    return between.join([*texts[:shown], *more])


def unpacked(text: str, limit: int = MAX_ANSWER) -> str:
    """Return what ``gzip | base64`` has made of a text: at most ``limit`` bytes of it, cleaned as others are.

    Raises:
        ValueError: it is nothing that was packed so.
    """
    try:
        plain = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(base64.b64decode(text, validate=True), limit)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"not packed: {error}") from None
    return clean(plain.decode("utf-8", "replace"), limit)


def sections(text: str, limit: int = MAX_ANSWER) -> dict[str, str]:
    """Return what a script printed below each of its headings ``== name``; of one heading twice, the first.

    Of the text, ``limit`` characters are read.
    """
    found: dict[str, str] = {}
    parts = re.split(r"(?m)^== ([a-z_-]+)$\n?", text[:limit])
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        found.setdefault(name, body)
    return found
