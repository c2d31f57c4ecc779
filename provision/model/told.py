"""What a machine tells while it works, as text: how far a program is, or what of it has ended. Pure.

A program on a machine writes a line with :data:`MARK` on its standard error; it comes over the connection that waits
for its end (:mod:`provision.ssh.told`), is shown in the form of :func:`shown`, and read from there by :func:`read`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from provision.model.text import one_line

#: The beginning of such a line; the next word says which kind it is. plugins/module_utils/telling.py writes it.
MARK = "clusterctl-told:"

#: Characters of one text that are shown.
LONGEST = 160

#: The two kinds: how far something is, which the next such text replaces; and what has ended, which stays.
GOING, ENDED = "going", "ended"

_LINE = re.compile(rf"{MARK} ({GOING}|{ENDED}) (.+)", re.S)
_SHOWN = re.compile(rf"({GOING}|{ENDED}): ([^\s:]+): (.+)", re.S)


@dataclass(frozen=True)
class Told:
    """What ``host`` has told: one line of text, cleaned; ``ended`` where it is about something that is over."""

    host: str
    text: str
    ended: bool = False


def heard(line: str, host: str) -> Told | None:
    """Return what a line on a program's standard error tells of ``host``; None where it is any other line."""
    found = _LINE.fullmatch(line.strip())
    text = one_line(found[2], LONGEST) if found else ""
    return Told(host, text, found[1] == ENDED) if found and text else None


def shown(told: Told) -> str:
    """Return it as a line of Ansible's own output."""
    return f"{ENDED if told.ended else GOING}: {told.host}: {told.text}"


def read(line: str) -> Told | None:
    """Return what :func:`shown` has made a line of; None for any other line."""
    found = _SHOWN.fullmatch(line.strip())
    return Told(found[2], one_line(found[3]), found[1] == ENDED) if found else None
