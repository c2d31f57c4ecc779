"""What `clusterctl status` repeats: the verdict on the whole cluster, and never more than a run has shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from provision.cli.verify import last, last_verdicts
from provision.runner import journal


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "inventory.ini"
    path.write_text("")
    return path


def verified(inventory: Path, word: str, limit: str | None = None, **report: Any) -> journal.Run:
    """Leave behind what a verify leaves that ended by itself."""
    state = journal.prepare(journal.state_directory(inventory))
    run = journal.begin(state, "verify", options={"limit": limit})
    code = 0 if word == "pass" else 8
    limited = ["node1"] if limit else []
    run.write_report({"exit_code": code, "verdict": word, "limited": limited, **report})
    run.finish("done" if word == "pass" else "failed", exit_code=code)
    return run


def killed(inventory: Path, limit: str | None = None, **report: Any) -> None:
    """Leave behind what a verify leaves that was killed, perhaps after it had written its report."""
    run = journal.begin(journal.prepare(journal.state_directory(inventory)), "verify", options={"limit": limit})
    if report:
        run.write_report(report)
    run.release()


def test_a_limited_run_never_takes_the_place_of_the_clusters_verdict(inventory: Path) -> None:
    whole = verified(inventory, "fail")
    part = verified(inventory, "pass", limit="node1")

    found = last(inventory)

    assert (found["last_verdict"]["id"], found["last_verdict"]["verdict"]) == (whole.id, "fail")
    assert (found["last_limited"]["id"], found["last_limited"]["limit"]) == (part.id, "node1")


def test_a_limited_run_is_not_told_any_more_once_the_whole_cluster_was_verified(inventory: Path) -> None:
    verified(inventory, "pass", limit="node1")
    verified(inventory, "fail")

    found = last(inventory)

    assert found["last_verdict"]["verdict"] == "fail"
    assert found["last_limited"] is None


@pytest.mark.parametrize("report", [{}, {"exit_code": 0, "verdict": "pass", "limited": []}])
def test_a_verify_that_was_killed_is_an_unknown_verdict_whatever_it_had_written(
    inventory: Path, report: dict[str, Any]
) -> None:
    verified(inventory, "pass")
    killed(inventory, **report)

    assert last(inventory)["last_verdict"]["verdict"] == "unknown"


def test_a_limited_verify_that_was_killed_leaves_the_clusters_verdict(inventory: Path) -> None:
    verified(inventory, "pass")
    killed(inventory, limit="node1")

    found = last(inventory)

    assert found["last_verdict"]["verdict"] == "pass"
    assert found["last_limited"]["verdict"] == "unknown"


@pytest.mark.parametrize("text", ["", "{", '{"verdict": "pass"}', '{"exit_code": 8, "verdict": "pass"}', "[]"])
def test_a_report_that_is_not_this_runs_own_is_no_verdict(inventory: Path, text: str) -> None:
    run = verified(inventory, "pass")
    (run.directory / "report.json").write_text(text)

    assert last(inventory)["last_verdict"]["verdict"] == "unknown"


def test_each_node_has_its_own_last_verdict_and_the_driver_that_was_found(inventory: Path) -> None:
    def said(host: str, verdict: str, driver: str = "") -> list[dict[str, str]]:
        found = {"host": host, "id": "nvidia_driver.version", "verdict": "pass" if driver else "skip"}
        return [{**found, "observed": driver or "no GPU"}, {**found, "id": "x.y", "verdict": verdict, "observed": ""}]

    verified(inventory, "fail", checks=said("node1", "fail") + said("node2", "pass"))
    whole = verified(inventory, "fail", checks=said("node1", "fail", "580.1") + said("node2", "warn", "580.2"))
    part = verified(inventory, "pass", limit="node1", checks=said("node1", "pass", "580.3"))
    killed(inventory, checks=said("node2", "pass"))

    assert last_verdicts(inventory) == {
        "node1": {"verdict": "pass", "at": part.facts["started"], "driver": "580.3"},
        "node2": {"verdict": "pass", "at": whole.facts["started"], "driver": "580.2"},
    }
