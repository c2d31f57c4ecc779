"""Does the container engine answer, with its configuration loaded? Pure judgement of what ``docker info`` said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.judge.answers import Answer
from provision.model.checks import Check, Subject, Verdict

SUBJECT = Subject(
    "engine", names=("answers", "live_restore"), fix="journalctl -u docker; then clusterctl provision containers"
)


def checks(answer: Answer, live_restore: bool) -> list[Check]:
    """Return the checks of one machine's engine, from ``docker info --format '{{json .}}'``.

    ``live_restore`` is what daemon.json says: whether containers survive a restart of the engine.
    """
    told = answer.document()
    info: Mapping[str, Any] = told if isinstance(told, Mapping) else {}
    version = info.get("ServerVersion")
    if answer.late or not isinstance(version, str) or not version:
        return _silent(answer, info)
    loaded = info.get("LiveRestoreEnabled")
    return [
        SUBJECT.check("answers", Verdict.PASS, version, "an engine that answers"),
        SUBJECT.check(
            "live_restore",
            loaded is live_restore,
            _words(loaded),
            _words(live_restore),
            source="container_engine_options",
            cause="the engine runs with another configuration than /etc/docker/daemon.json",
        ),
    ]


def _silent(answer: Answer, info: Mapping[str, Any]) -> list[Check]:
    """An engine that hangs or is not there runs nothing: that is a failure, and the rest is not known."""
    errors = info.get("ServerErrors")
    errors = [error for error in errors if isinstance(error, str)] if isinstance(errors, list) else []
    why = "did not answer" if not answer.late else answer.problem
    cause = "dockerd hangs, or the machine is overloaded" if answer.late else "; ".join(errors) or answer.problem
    return [
        SUBJECT.check("answers", Verdict.FAIL, why, f"an answer within {answer.limit} s", cause=cause),
        SUBJECT.unknown("live_restore", why, cause="see engine.answers"),
    ]


def _words(live_restore: object) -> str:
    return "containers survive its restart" if live_restore is True else "containers end with it"
