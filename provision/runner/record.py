"""Writing a run's events into its journal, and handing them on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from provision.events.accepted import checks_of
from provision.events.fold import RunReport
from provision.model.text import one_line
from provision.runner.journal import Run

_OUTCOMES = {
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
    "runner_on_skipped": "skipped",
}


def recorded(
    report: RunReport, record: Run, on_event: Callable[[RunReport, Mapping[str, Any]], None] | None
) -> Callable[[dict[str, Any]], bool]:
    """Return ansible-runner's event handler. It answers False always: no file is kept for an event."""

    def handle(event: dict[str, Any]) -> bool:
        stage_before = report.stage
        report.add(event)
        if (entry := journal_entry(report, event)) is not None:
            record.record(entry, sync=entry["event"] in ("play", "stats") or report.stage != stage_before)
        if on_event is not None:
            on_event(report, event)
        return False

    return handle


def journal_entry(report: RunReport, event: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what the journal keeps of an event: enough to tell what was done where, without any file's contents."""
    kind, data = str(event.get("event", "")), event.get("event_data") or {}
    at = event.get("created", "")
    if kind == "playbook_on_play_start":
        return {"event": "play", "at": at, "stage": report.stage, "play": data.get("name", "")}
    if kind == "playbook_on_stats":
        return {"event": "stats", "at": at, "changed": data.get("changed"), "failures": data.get("failures")}
    if kind not in _OUTCOMES:
        return None
    result = data.get("res")
    result = result if isinstance(result, Mapping) else {}
    entry: dict[str, Any] = {
        "event": "result",
        "at": at,
        "stage": report.stage,
        "role": data.get("role") or "",
        "task": data.get("task") or "",
        "host": data.get("host") or "",
        "outcome": _OUTCOMES[kind],
        "seconds": data.get("duration"),
    }
    if result.get("changed"):
        entry["changed"] = True
    if checks := checks_of(data, report.machines):
        entry["checks"] = [check.as_document() for check in checks]
    if kind in ("runner_on_failed", "runner_on_unreachable") and "censored" not in result:
        entry["reason"] = one_line(result.get("msg", ""))
    return entry
