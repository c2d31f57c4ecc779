"""The accounting database: it answers, runs with its files, knows the cluster, and has room."""

from __future__ import annotations

from typing import Any

import pytest

from provision.judge import slurm_database
from provision.model.checks import Verdict

FILES = ["/etc/slurmdbd/slurmdbd.conf", "/etc/slurmdbd/password.conf"]
WANTS = {"cluster": "lab", "free": "1024", "files": FILES}
STARTED = "2026-01-31T12:00:00.5Z"  # 1769860800.5
GOOD = {
    "disk": "  5000",
    "changed": f"1769860800.100000 {FILES[0]}\n1769860799.000000 {FILES[1]}",
    "saved": "lab|2345",
    "number": "2345\ncode 0",
    "engine": "",
    "cluster": "lab\ncode 0",
}


def facts(running: bool = True, rc: int | None = 0, **said: str | None) -> Any:
    told = {name: text for name, text in {**GOOD, **said}.items() if text is not None}
    text = "".join(f"== {name}\n{body}\n" for name, body in told.items())
    found = {"slurmdbd": {"State": {"Running": running, "StartedAt": STARTED}}}
    return {
        "state": {"containers": {"found": found}},
        "commands": {"slurm_database": {"rc": rc, "text": text if rc is not None else "did not answer in 30 s"}},
    }


def judged(found: Any) -> dict[str, Any]:
    checks = slurm_database.checks(found, WANTS)
    assert [check.id for check in checks] == list(slurm_database.SUBJECT.ids)
    return {check.id.partition(".")[2]: check for check in checks}


def test_a_database_that_answers_and_knows_the_cluster_is_good() -> None:
    assert {check.verdict for check in judged(facts()).values()} == {Verdict.PASS}


@pytest.mark.parametrize(
    ("said", "observed", "cause"),
    [
        ({"cluster": "sacctmgr: error: Unable to connect to database\ncode 1", "number": "ERROR 2002 (HY000)\ncode 1"},
         "sacctmgr: error: Unable to connect to database", "MariaDB does not answer"),
        ({"cluster": None, "engine": "Error: No such container: slurmdbd"}, "Error: No such container: slurmdbd", ""),
        ({"cluster": "\ncode 124"}, "slurmdbd did not answer in time", ""),
        ({"cluster": None}, "the container engine did not answer in time", ""),
    ],
)  # fmt: skip
def test_a_database_that_is_down_fails_and_says_that_jobs_go_on(
    said: dict[str, Any], observed: str, cause: str
) -> None:
    found = judged(facts(**said))

    assert (found["answers"].verdict, found["answers"].observed) == (Verdict.FAIL, observed)
    assert cause in found["answers"].cause
    assert "jobs go on" in found["answers"].cause
    assert found["cluster"].verdict is Verdict.SKIP


def test_a_machine_that_did_not_answer_is_unknown() -> None:
    assert {check.verdict for check in judged(facts(rc=None)).values()} == {Verdict.UNKNOWN}


def test_files_that_changed_after_the_start_are_told_with_the_restart() -> None:
    changed = judged(facts(changed=f"1769860801.000000 {FILES[0]}\n1769860799.0 {FILES[1]}"))["current"]
    absent = judged(facts(changed=f"1769860799.000000 {FILES[0]}"))["current"]

    assert changed.observed == f"slurmdbd was started before {FILES[0]} changed"
    assert absent.observed == f"{FILES[1]} is absent"
    assert [one.of for one in (*changed.consequences, *absent.consequences)] == ["slurmdbd", "slurmdbd"]
    assert judged(facts(running=False))["current"].verdict is Verdict.SKIP


@pytest.mark.parametrize(
    ("said", "verdict", "observed"),
    [
        ({"saved": "lab|7"}, Verdict.FAIL, "number 2345, and 7 in slurmctld's saved state"),
        ({"saved": "lab"}, Verdict.FAIL, "number 2345, and none in slurmctld's saved state"),
        ({"saved": ""}, Verdict.PASS, "number 2345"),
        ({"cluster": "other\ncode 0"}, Verdict.FAIL, "lab is not there"),
        ({"number": "mariadb: not found\ncode 127"}, Verdict.UNKNOWN, "MariaDB did not say its number"),
    ],
)
def test_a_cluster_that_slurmctld_would_not_find_is_told(said: Any, verdict: Verdict, observed: str) -> None:
    check = judged(facts(**said))["cluster"]

    assert check.verdict is verdict
    assert check.observed.startswith(observed)


def test_a_full_disk_is_named() -> None:
    check = judged(facts(disk="12"))["disk"]

    assert check.verdict is Verdict.FAIL
    assert "12 MiB free for MariaDB in /var/lib/mysql" in check.observed
    assert "a full disk stops MariaDB" in check.cause


@pytest.mark.parametrize("text", ["", "garbage", "== cluster\n", "== number\ncode", "\x1b[2J{{ x }}", "== saved\n|||"])
def test_whatever_it_prints_all_checks_come(text: str) -> None:
    found = facts()
    found["commands"]["slurm_database"]["text"] = text

    assert judged(found)["answers"].verdict is Verdict.FAIL
