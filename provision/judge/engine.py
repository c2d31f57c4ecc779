"""Does the container engine answer, with its configuration loaded? Pure judgement of what ``docker info`` said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.model.checks import Check, Subject, Verdict
from provision.model.container_facts import EngineFacts
from provision.model.facts import MachineFacts

SUBJECT = Subject(
    "engine", names=("answers", "live_restore"), fix="journalctl -u docker; then clusterctl provision containers"
)


def checks(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Return the checks of one machine's engine.

    ``wants``: ``live_restore``, as daemon.json has it: whether containers survive a restart of the engine.
    """
    if "engine" not in facts:
        return SUBJECT.all_unknown("the machine did not say whether it has an engine")
    info, wanted = facts["engine"], bool(wants["live_restore"])
    if info["late"] or not info["server"]:
        return _silent(info)
    return [
        SUBJECT.check("answers", Verdict.PASS, info["server"], "an engine that answers"),
        SUBJECT.check(
            "live_restore",
            info["live_restore"] is wanted,
            _words(info["live_restore"]),
            _words(wanted),
            source="container_engine_options",
            cause="the engine runs with another configuration than /etc/docker/daemon.json",
        ),
    ]


def _silent(info: EngineFacts) -> list[Check]:
    """An engine that is not there runs nothing: a failure. One that is late may be slow, which is nothing to act on."""
    late = info["late"]
    why = f"did not answer in {info['limit']} s" if late else "did not answer"
    cause = "dockerd hangs, or the machine is overloaded" if late else info["problem"]
    wanted = f"an answer within {info['limit']} s"
    fix = "journalctl -u docker; systemctl restart docker" if late else SUBJECT.fix
    verdict = Verdict.UNKNOWN if late else Verdict.FAIL
    return [
        SUBJECT.check("answers", verdict, why, wanted, cause=cause, fix=fix),
        SUBJECT.skip("live_restore", f"{why}; see engine.answers", unproven=True),
    ]


def _words(live_restore: object) -> str:
    return "containers survive its restart" if live_restore is True else "containers end with it"
