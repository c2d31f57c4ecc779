"""How long a run may take, from the records of earlier ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from provision.runner import journal
from provision.runner.estimate import last_run, stages_of

OPTIONS: dict[str, Any] = {"stages": ["base", "slurm"], "limit": None, "check": False, "full": False}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return journal.prepare(tmp_path / journal.NAME)


def ended(state: Path, seconds: float, *, outcome: str = "done", command: str = "provision", **options: Any) -> Path:
    run = journal.begin(state, command, options={**OPTIONS, **options})
    run.write_report({"stages": [{"name": "base", "seconds": seconds}, {"name": "slurm", "seconds": 2 * seconds}]})
    run.finish(outcome)
    return run.directory / "report.json"


def expected(state: Path, command: str = "provision", **options: Any) -> list[tuple[str, float]]:
    return last_run(journal.begin(state, command, options={**OPTIONS, **options}), journal.RUNS)


def test_the_last_run_of_the_same_kind_says_how_long_each_stage_takes(state: Path) -> None:
    ended(state, 100.0)
    ended(state, 7.5)

    assert expected(state) == [("base", 7.5), ("slurm", 15.0)]


def test_the_first_run_is_expected_to_take_nobody_knows_how_long(state: Path) -> None:
    assert expected(state) == []


@pytest.mark.parametrize(
    "other", [{"stages": ["base"]}, {"limit": "node1"}, {"check": True}, {"full": True}, {"command": "plan"}]
)
def test_a_run_of_another_kind_says_nothing(state: Path, other: dict[str, Any]) -> None:
    ended(state, 100.0, **other)

    assert expected(state) == []


def test_a_run_that_did_not_come_to_its_end_says_nothing_but_a_bad_verdict_is_an_end(state: Path) -> None:
    ended(state, 100.0, outcome="failed")
    ended(state, 100.0, outcome="interrupted")
    ended(state, 3.0, outcome="failed", command="verify")

    assert expected(state) == []
    assert expected(state, "verify") == [("base", 3.0), ("slurm", 6.0)]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"stages": 3}', "[" * 100_000, "\x00"])
def test_a_report_that_is_none_leaves_the_one_before_it(state: Path, text: str) -> None:
    ended(state, 5.0)
    ended(state, 100.0).write_text(text, encoding="utf-8")

    assert expected(state) == [("base", 5.0), ("slurm", 10.0)]


def test_a_report_that_is_gone_or_too_long_leaves_the_one_before_it(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(state, 5.0)
    ended(state, 100.0).unlink()
    ended(state, 100.0).write_text(json.dumps({"stages": [{"name": "base", "seconds": 1}]}) + " " * 1000)
    monkeypatch.setattr("provision.runner.estimate.MOST", 1000)

    assert expected(state) == [("base", 5.0), ("slurm", 10.0)]


@pytest.mark.parametrize(
    "stage",
    [
        {"name": "base"},
        {"seconds": 1},
        {"name": 3, "seconds": 1},
        {"name": "base", "seconds": "1"},
        {"name": "base", "seconds": -1},
        {"name": "base", "seconds": float("nan")},
        {"name": "base", "seconds": float("inf")},
        {"name": "base", "seconds": 10**30},
        {"name": "base", "seconds": True},
        "base",
        None,
    ],
)
def test_a_stage_that_is_not_as_we_write_it_spoils_the_estimate(stage: object) -> None:
    assert stages_of({"stages": [{"name": "slurm", "seconds": 2}, stage]}) == []
