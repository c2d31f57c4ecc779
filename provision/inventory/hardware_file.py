"""The file beside the inventory in which found hardware becomes declared hardware.

Ansible reads, of ``host_vars/NAME``, ``NAME.yml``, ``NAME.yaml`` and ``NAME.json``, only the first that exists, so a
second file would hide or be hidden by what the operator wrote. Hence: a directory ``NAME/`` gets ``clusterctl.yml``;
where nothing is there, ``NAME.yml`` is made; a file of ours is added to; a file of theirs is left alone.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from provision.errors import ClusterctlError
from provision.inventory.file import replace
from provision.model.checks import Check, Subject, Verdict
from provision.model.discovered import Refused, plain

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

SUBJECT = Subject(
    "hardware",
    names=(
        *("cpus", "sockets", "cores_per_socket", "threads_per_core", "real_memory", "cgroup_version", "gres"),
        *("rdma_ports", "recorded"),
    ),
)


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
    """Put the planned text in place at once, readable for all.

    Raises:
        OSError: the directory cannot be made or written.
    """
    plan.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    replace(plan.path, plan.after)


def refused(host: str, plan: Plan) -> Check:
    """Return the check that tells the operator what to add by hand."""
    lines = (line.split(" #")[0].replace("!unsafe ", "").replace(": ", "=", 1) for line in plan.after.splitlines())
    return SUBJECT.check(
        "recorded",
        Verdict.WARN,
        plan.refusal,
        "hardware declared in the inventory",
        host=host,
        source="hardware_facts_directory",
        cause="the values hold for this run only and are asked for again by the next",
        fix=f"add to the inventory, for this host: {' '.join(lines)}",
    )


def impossible(host: str, values: Iterable[Refused]) -> list[Check]:
    """Return a check for each value that the machine answered and that no inventory may hold."""
    return [
        SUBJECT.check(
            value.name.removeprefix("node_"),
            False,
            value.observed,
            f"a value for {value.name}: {value.reason}",
            host=host,
            source="what the machine answered",
            cause="no machine can have that: a fault, or somebody has changed what answers there",
            fix=f"log in and look; or declare {value.name} for this host, as any inventory may",
        )
        for value in values
    ]


def contradiction(host: str, error: ClusterctlError) -> Check:
    """Return the check for values that are possible, but not beside what is declared for the host."""
    return SUBJECT.check(
        "recorded",
        False,
        error.problem,
        "hardware that agrees with what is declared",
        host=host,
        cause="what the machine answered contradicts what is declared for it, so that no inventory can hold both",
        fix="correct what is declared for this host, or repair the machine",
    )


def _line(name: str, value: int | str, source: str, today: datetime.date) -> str:
    # !unsafe: Ansible takes it for text whatever it holds, never for a template. The values have been checked before;
    # this holds even where a check is wrong. (Of an empty text it would make null.)
    shown = str(value) if isinstance(value, int) else f"!unsafe {json.dumps(value)}" if value else '""'
    return f"{name}: {shown} # {today.isoformat()}, {plain(source)}\n"
