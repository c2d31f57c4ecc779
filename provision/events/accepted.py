"""What of a task's result is believed, by the action that made it. Pure.

A module's result comes from the machine: whoever owns the machine writes it. Checks and the data that commands show
are taken only from our own actions, which run on the control node; a check about another machine only from
``cluster_check``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from provision.events.model import Pending
from provision.model.checks import Check, Verdict, check_from
from provision.model.text import one_line

#: Actions whose checks are taken, each with whether it may judge other machines than the one that its task ran for.
CHECKING = {
    "cluster_check": True, "hardware_record": False, "nvidia_driver_state": False, "observe": False,
    "slurm_candidate": False, "slurmctld_refresh": False,
}  # fmt: skip

#: Actions whose data is taken, each with the key that it may give.
REPORTING = {
    "cluster_lease": "cluster_lease", "cluster_report": "cluster_status", "ddp_judged": "cluster_training",
    "lab_state": "cluster_data",
}  # fmt: skip

#: Where ``lab_state`` runs; the same module run elsewhere would be somebody else's word.
_HERE = "localhost"

#: What a check's id can be.
ID = re.compile(r"[a-z][a-z0-9_]{0,63}(\.[A-Za-z0-9_-]{1,64}){1,3}")


def action_of(data: Mapping[str, Any]) -> str:
    """Return the name of the action that made an event's result, without its collection."""
    return str(data.get("resolved_action") or data.get("task_action") or "").rpartition(".")[2]


def checks_of(data: Mapping[str, Any], machines: Collection[str] = ()) -> list[Check]:
    """Return the checks in an event's result, none where the action is not one of ours.

    ``machines`` are those that may be judged, all where it is empty. What cannot be read is an unknown check of the
    machine that the task ran for.
    """
    return [check for _, check in _read(data, machines, "cluster_checks")]


def pending_of(data: Mapping[str, Any], machines: Collection[str] = ()) -> list[Pending]:
    """Return the checks in an event's result that say what there is to do, read as ``checks_of`` reads the others."""
    return [
        Pending(one_line(item.get("stage", ""), 32) if isinstance(item, Mapping) else "", check)
        for item, check in _read(data, machines, "cluster_pending")
    ]


def _read(data: Mapping[str, Any], machines: Collection[str], key: str) -> Iterator[tuple[Any, Check]]:
    """Yield each entry of the lists that a result holds under ``key``, with the check that it is."""
    host, action = str(data.get("host", "")), action_of(data)
    if action not in CHECKING:
        return
    for part in parts_of(data):
        items = part.get(key) or ()
        for item in items if isinstance(items, Sequence) and not isinstance(items, str) else (items,):
            try:
                check = plain(check_from(item, host=host))
            except (AttributeError, KeyError, ValueError, TypeError) as error:
                observed = one_line(f"a check's result could not be read: {error!r}")
                check = Check("run.unreadable", host, Verdict.UNKNOWN, observed=observed)
            if not CHECKING[action] or (machines and check.host not in machines):
                check = replace(check, host=host)
            yield item, check


def data_of(data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what an event's result brings for the command to show, as (key, value)."""
    action = action_of(data)
    key = REPORTING.get(action)
    if key is None or (action == "lab_state" and data.get("host") != _HERE):
        return
    for part in parts_of(data):
        if key in part:
            yield key, part[key]


def unreached_in(data: Mapping[str, Any]) -> tuple[str, str]:
    """Return the machine that our own action was to ask for others and could not reach, with why; empty for none."""
    result = data.get("res")
    if action_of(data) != "delegated_answer" or not isinstance(result, Mapping) or not result.get("unreached"):
        return "", ""
    return str(result.get("asked", "")), one_line(result["unreached"])


def parts_of(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return an event's result and the results of its loop's items."""
    result = data.get("res")
    if not isinstance(result, Mapping):
        return []
    items = result.get("results")
    items = items if isinstance(items, Sequence) and not isinstance(items, str) else ()
    return [result, *(part for part in items if isinstance(part, Mapping))]


def plain(check: Check) -> Check:
    """Return the check with one bounded line for each text.

    Raises:
        ValueError: its id is not one that a check can have.
    """
    if not ID.fullmatch(check.id):
        raise ValueError(f"{check.id[:80]!r} is no check's id")
    return replace(
        check,
        host=one_line(check.host, limit=255),
        observed=one_line(check.observed),
        expected=one_line(check.expected),
        source=one_line(check.source),
        cause=one_line(check.cause),
        fix=one_line(check.fix),
    )
