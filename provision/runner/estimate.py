"""How long a run may take: as long as the last of the same kind did, stage by stage. Nothing is scaled or guessed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from provision.runner import journal

#: Bytes of a report that are read: one with the checks of some thousand machines has fewer.
MOST = 32 * 2**20

#: What must be the same in two runs, for the one to say how long the other takes.
SAME = ("stages", "limit", "check", "full")


def last_run(run: journal.Run, room: str) -> list[tuple[str, float]]:
    """Return the stages of the last run like this one, with the seconds that each took, in their order.

    Like it is a run of the same command with the same stages and options that came to its end. Nothing where there is
    none, or where its report cannot be read: then no estimate is shown.
    """
    like = [other for other in journal.runs(run.directory.parents[1], room) if _alike(run.facts, other.facts)]
    for other in reversed(like):
        with suppress(OSError, ValueError, RecursionError):
            path = other.directory / "report.json"
            if path.stat().st_size <= MOST and (stages := stages_of(json.loads(path.read_text("utf-8")))):
                return stages
    return []


def _alike(facts: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    mine, theirs = facts.get("options"), other.get("options")
    return (
        facts.get("command") == other.get("command")
        # Of a command that judges, a bad verdict is an end like any other.
        and other.get("outcome") in (("done", "failed") if other.get("command") == "verify" else ("done",))
        and isinstance(mine, Mapping)
        and isinstance(theirs, Mapping)
        and all(mine.get(name) == theirs.get(name) for name in SAME)
    )


def stages_of(document: object) -> list[tuple[str, float]]:
    """Return stages and seconds from a report; nothing where any of it is not as we write it."""
    stages = document.get("stages") if isinstance(document, Mapping) else None
    found = [_stage(stage) for stage in stages] if isinstance(stages, list) else []
    whole = [stage for stage in found if stage is not None]
    return whole if len(whole) == len(found) else []


def _stage(told: object) -> tuple[str, float] | None:
    name, seconds = (told.get("name"), told.get("seconds")) if isinstance(told, Mapping) else (None, None)
    if not isinstance(name, str) or isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    # A day for a stage is none of ours; NaN is no number of seconds, either.
    return (name, float(seconds)) if 0 <= seconds < 86_400 else None
