"""Which file systems of a machine are nearly full. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from provision.model.checks import Check, Subject, Verdict
from provision.model.state_facts import CommandAnswer
from provision.model.text import brief

#: Percent in use.
NEARLY_FULL = 90

#: A line of ``df -P --block-size=1M``: free MiB, percent in use, where it is mounted.
_LINE = re.compile(r"(?m)^.+ (\d{1,15}) +(\d{1,3})% (/.*)$")


def space(subject: Subject, answer: CommandAnswer | None, paths: Iterable[str], *, fix: str) -> Check:
    """Warn of file systems that hold one of ``paths`` and are nearly full, by what df printed."""
    text = answer["text"] if answer and answer["rc"] is not None else ""
    found = {mount: (int(percent), int(free)) for free, percent, mount in _LINE.findall(text)}
    above = ([one for one in found if f"{path}/".startswith(f"{one.rstrip('/')}/")] for path in paths)
    systems = sorted({max(places, key=len) for places in above if places})
    if not systems:
        return subject.skip("space", "df did not answer", unproven=True)
    said = {one: f"{one} is {found[one][0]} % full, {found[one][1] // 1024} GiB free" for one in systems}
    full = [one for one in systems if found[one][0] >= NEARLY_FULL]
    return subject.check(
        "space",
        Verdict.WARN if full else Verdict.PASS,
        brief([said[one] for one in full or systems]),
        f"below {NEARLY_FULL} % full",
        source="df",
        cause="Slurm, container engines and jobs fail when they cannot write",
        fix=fix.format(path=full[0]) if full else "",
    )
