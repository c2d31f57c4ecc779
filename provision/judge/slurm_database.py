"""Does Slurm's accounting database answer, with its files as they are, and know the cluster? Pure.

A database that is down loses no job: slurmctld goes on and keeps what it is to tell, for some ten thousand jobs. It is
a failure all the same: who is declared anew cannot submit, nobody sees what was used, and what does not fit is lost.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from provision.judge.answers import mapping
from provision.judge.slurm_answers import line
from provision.judge.slurm_facts import answered
from provision.model.checks import Check, Subject
from provision.model.consequences import Consequence, Kind
from provision.model.facts import MachineFacts
from provision.model.text import sections

SUBJECT = Subject("slurm_database", names=("answers", "current", "cluster", "disk"), fix="clusterctl provision slurm")

_DOWN = "jobs go on; slurmctld keeps their records until the database is back, as long as its buffer lasts"


def checks(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Judge one machine.

    ``wants``: ``cluster``, its name; ``free``, the MiB that must be free for the database; ``files``, what slurmdbd
    reads when it starts.
    """
    answer = facts.get("commands", {}).get("slurm_database") or {"rc": None, "text": "the machine was not asked"}
    if answer["rc"] is None:
        return SUBJECT.all_unknown(answer["text"])
    said = sections(answer["text"])
    return [
        _answers(said),
        _current(facts, said, wants["files"]),
        _cluster(said, str(wants["cluster"])),
        _disk(said, int(wants["free"])),
    ]


def silence(said: Mapping[str, str]) -> str:
    """Return why slurmdbd did not answer, by what the role's script printed; empty where it did."""
    if "cluster" not in said:
        # The engine's own words on a container that does not run.
        lines = [line(one) for one in said.get("engine", "").splitlines() if one.strip()]
        return lines[-1] if lines else "the container engine did not answer in time"
    told, code = answered(said["cluster"])
    if code == 0:
        return ""
    if code in (None, 124, 137):
        return "slurmdbd did not answer in time"
    lines = [line(one) for one in told.splitlines() if one.strip()]
    return lines[-1] if lines else "slurmdbd did not answer"


def _answers(said: Mapping[str, str]) -> Check:
    silent = silence(said)
    refused, code = answered(said.get("number", ""))
    down = bool(re.search(r"Can't connect|not found|ERROR 2002", refused)) or code in (124, 137)
    return SUBJECT.check(
        "answers",
        not silent,
        silent or "answers",
        "slurmdbd answers from its database",
        source="sacctmgr show cluster",
        cause=f"MariaDB does not answer; {_DOWN}" if down else _DOWN,
    )


def _current(facts: MachineFacts, said: Mapping[str, str], wanted: Sequence[str]) -> Check:
    """Compare slurmdbd's start with the last change of its files: it reads them then, and never again."""
    engine = mapping(mapping(facts.get("state")).get("containers"))
    state = mapping(mapping(mapping(engine.get("found")).get("slurmdbd")).get("State"))
    started = _moment(str(state.get("StartedAt") or ""))
    if state.get("Running") is not True or started is None:
        return SUBJECT.skip("current", "slurmdbd does not run", unproven=True)
    changed = re.findall(r"(?m)^(\d{1,12}(?:\.\d{1,9})?) (/\S{1,200})$", said.get("changed", ""))
    stale = [f"slurmdbd was started before {path} changed" for moment, path in changed if float(moment) > started]
    # What is not there is written, and read by a start.
    stale += [f"{path} is absent" for path in wanted if path not in (there for _, there in changed)]
    return SUBJECT.check(
        "current",
        not stale,
        stale[0] if stale else "started after its files were last changed",
        "slurmdbd runs with its files as they are",
        cause="a file was changed, or a run was killed before the restart",
        consequences=[Consequence(Kind.RESTART, "slurmdbd", "jobs go on, and are accounted for afterwards")],
    )


def _moment(text: str) -> float | None:
    """Return the seconds since 1970 of the engine's ``2026-01-31T12:00:00.123456789Z``."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,6})?\d*Z", text)
    if not found:
        return None
    try:
        return datetime.fromisoformat(f"{found[1]}+00:00").timestamp() + float(found[2] or 0)
    except ValueError:
        return None


def _cluster(said: Mapping[str, str], cluster: str) -> Check:
    """Judge whether slurmctld will find itself: it does not start with another number than the database's."""
    if silent := silence(said):
        return SUBJECT.skip("cluster", silent, unproven=True)
    known = answered(said["cluster"])[0].split()
    told, code = answered(said.get("number", ""))
    number = told.strip() if code == 0 else ""
    name, _, saved = said.get("saved", "").strip().partition("|")
    observed = f"{cluster} is not there"
    if cluster in known and number.isdecimal():
        observed = f"number {number}"
        if name == cluster and saved != number:
            observed += f", and {line(saved)[:20] or 'none'} in slurmctld's saved state"
        return SUBJECT.check(
            "cluster",
            name != cluster or saved == number,
            observed,
            f"{cluster}, with the number that slurmctld has saved",
            source="MariaDB, and clustername in /var/spool/slurmctld",
            cause="slurmctld has run without this database, and would not start with it",
        )
    if cluster in known:
        return SUBJECT.unknown("cluster", f"MariaDB did not say its number: {line(told)[:200]}")
    cause = "never registered, or it is another database"
    return SUBJECT.check("cluster", False, observed, f"{cluster} is known", cause=cause)


def _disk(said: Mapping[str, str], wanted: int) -> Check:
    found = said.get("disk", "").strip()
    if not found.isdecimal():
        return SUBJECT.skip("disk", "the database has no directory yet", unproven=True)
    return SUBJECT.check(
        "disk",
        int(found) >= wanted,
        f"{found} MiB free for MariaDB in /var/lib/mysql",
        f"{wanted} MiB",
        source="slurm_database_free_mb",
        cause="a full disk stops MariaDB: jobs are then not accounted for",
        fix="make room there, or purge earlier: PurgeJobAfter in slurm_database_parameters",
    )
