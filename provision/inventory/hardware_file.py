"""The file beside the inventory in which found hardware becomes declared hardware.

Ansible reads, of ``host_vars/NAME``, ``NAME.yml``, ``NAME.yaml`` and ``NAME.json``, only the first that exists, so a
second file would hide or be hidden by what the operator wrote. Hence: a directory ``NAME/`` gets ``clusterctl.yml``;
where nothing is there, ``NAME.yml`` is made; a file of ours is added to; a file of theirs is left alone.
"""

from __future__ import annotations

import datetime
import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: First comment line of every file we wrote. Whoever removes it makes the file theirs.
MARK = "# Recorded by clusterctl: hardware that the inventory did not declare."

_HEADER = f"""---
{MARK}
# It is inventory now: correct it, commit it; lines that are here are never changed again.
"""

#: Names that become part of a path. The inventory's own check is stricter; this one holds for ansible-playbook too.
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")

#: What Ansible looks for, in its order; the empty suffix may be a directory.
_SUFFIXES = ("", ".yml", ".yaml", ".json")

Values = Iterable[tuple[str, int | str, str]]


@dataclass(frozen=True)
class Plan:
    """What would be written where. ``refusal`` says why nothing is; it is empty otherwise."""

    path: Path
    before: str = ""
    after: str = ""
    refusal: str = ""


def plan(directory: str, host: str, values: Values, today: datetime.date) -> Plan:
    """Decide what to write for ``host``: name, value and source of each value, dated ``today``. Reads, writes nothing.

    Raises:
        OSError: the directory or the file cannot be read.
    """
    lines = "".join(_line(name, value, source, today) for name, value, source in values)
    if not directory:
        return Plan(Path(), after=lines, refusal="the inventory has no directory to record hardware in")
    if not _SAFE_NAME.fullmatch(host):
        return Plan(Path(), after=lines, refusal=f"the host name {host!r} cannot be a file's name")
    base = Path(directory)
    there = next((path for suffix in _SUFFIXES if (path := base / f"{host}{suffix}").exists()), None)
    if there is None:
        return Plan(base / f"{host}.yml", after=_HEADER + lines)
    path = there / "clusterctl.yml" if there.is_dir() else there
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    if before and MARK not in before.splitlines()[:3]:
        return Plan(path, before, lines, refusal=f"{path} was written by hand and is left alone")
    joint = "" if before.endswith("\n") or not before else "\n"
    return Plan(path, before, (before + joint if before else _HEADER) + lines)


def write(plan: Plan) -> None:
    """Put the planned text in place at once, mode 0644; whoever reads meanwhile sees the old file or the new one.

    Raises:
        OSError: the directory cannot be made or written.
    """
    plan.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".clusterctl-", dir=plan.path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(plan.after)
            os.fchmod(file.fileno(), 0o644)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(plan.path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def refused(host: str, plan: Plan) -> dict[str, Any]:
    """Return the check that tells the operator what to add by hand."""
    wanted = " ".join(line.split(" #")[0].replace(": ", "=", 1) for line in plan.after.splitlines())
    return {
        "id": "hardware.recorded",
        "host": host,
        "verdict": "warn",
        "observed": plan.refusal,
        "expected": "hardware declared in the inventory",
        "source": "hardware_facts_directory",
        "cause": "the values hold for this run only and are asked for again by the next",
        "fix": f"add to the inventory, for this host: {wanted}",
        "level": "host",
        "simulated": False,
    }


def _line(name: str, value: int | str, source: str, today: datetime.date) -> str:
    shown = value if isinstance(value, int) else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{name}: {shown} # {today.isoformat()}, {' '.join(source.split())}\n"
