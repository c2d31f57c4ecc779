"""The container engine and the registry: what they answer, and what it means when they do not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from provision.judge import engine, images
from provision.judge.answers import Answer
from provision.model.checks import Check

#: What Docker 20.10 says where there is no engine: words on its standard output, and success.
NO_ENGINE = {"ServerErrors": ["Cannot connect to the Docker daemon at unix:///var/run/docker.sock."], "ClientInfo": {}}


def judged(result: object, live_restore: bool = True) -> dict[str, Check]:
    """Return an engine's checks by name; every one of them is always there."""
    found = engine.checks(Answer.from_result(result, 10), live_restore)
    assert tuple(check.id for check in found) == engine.SUBJECT.ids
    return {check.id.partition(".")[2]: check for check in found}


def info(**fields: Any) -> dict[str, Any]:
    """Return the result of asking an engine that answers."""
    return {"rc": 0, "stdout": json.dumps({"ServerVersion": "20.10.24", "LiveRestoreEnabled": True, **fields})}


def test_an_engine_with_its_configuration_passes() -> None:
    assert [str(check.verdict) for check in judged(info()).values()] == ["pass", "pass"]


@pytest.mark.parametrize("rc", [124, 137])
def test_an_engine_that_hangs_fails_with_the_limit_it_had(rc: int) -> None:
    found = judged({"rc": rc, "stdout": "", "stderr": ""})

    assert (str(found["answers"].verdict), found["answers"].observed) == ("fail", "did not answer in 10 s")
    assert "dockerd hangs" in found["answers"].cause
    assert str(found["live_restore"].verdict) == "unknown"


def test_an_engine_that_is_not_running_fails_with_the_engines_words() -> None:
    found = judged({"rc": 0, "stdout": json.dumps(NO_ENGINE)})

    assert str(found["answers"].verdict) == "fail"
    assert found["answers"].cause.startswith("Cannot connect to the Docker daemon")


def test_an_engine_that_is_not_installed_fails_with_the_shells_words() -> None:
    found = judged({"rc": 127, "stderr": "timeout: failed to run command 'docker': No such file or directory"})

    assert "No such file" in found["answers"].cause


def test_an_engine_with_another_configuration_than_its_files_fails_in_that() -> None:
    found = judged(info(LiveRestoreEnabled=False))

    assert (str(found["answers"].verdict), str(found["live_restore"].verdict)) == ("pass", "fail")
    assert str(judged(info(LiveRestoreEnabled=False), live_restore=False)["live_restore"].verdict) == "pass"


@pytest.mark.parametrize(
    "result",
    [
        None,
        [],
        "text",
        {"rc": "0", "stdout": 7, "stderr": ["a"], "msg": {}},
        {"rc": True, "stdout": '{"ServerVersion": "20"}', "msg": "x"},
        {"rc": 0, "stdout": "[" * 100_000},
        {"rc": 0, "stdout": "[1]"},
        {"rc": 0, "stdout": '{"ServerVersion": ["20"]}'},
        {"rc": 0, "stdout": '{"ServerErrors": {"a": 1}}'},
        {"rc": 0, "stdout": '{"ServerVersion": "20", "LiveRestoreEnabled": "{{ true }}"}'},
        {"rc": 10**30, "stdout": ""},
    ],
    ids=str,
)
def test_nonsense_from_a_machine_is_no_pass_and_no_crash(result: object) -> None:
    assert {str(check.verdict) for check in judged(result).values()} & {"fail", "unknown"}


def registry(reached: object, site: str = "") -> Check:
    (check,) = images.checks(reached, site, "head")
    assert (check.id,) == images.SUBJECT.ids
    return check


def test_a_registry_that_answers_passes_and_only_a_sites_may_ask_for_a_login() -> None:
    assert registry({"status": 200}).ok
    assert registry({"status": 401}, "harbor.site.example/x").ok
    assert not registry({"status": 401}).ok


def test_a_registry_that_does_not_answer_is_told_with_the_reason_and_who_runs_it() -> None:
    ours = registry({"status": -1, "msg": "Request failed: <urlopen error timed out>"})
    theirs = registry({"status": 500}, "harbor.site.example/x")

    assert "timed out" in ours.observed
    assert "docker-registry on head" in ours.fix
    assert (theirs.observed, theirs.fix) == ("HTTP 500", "ask those who run harbor.site.example/x")


@pytest.mark.parametrize(
    "reached", [None, [], {"status": "200"}, {"status": True}, {"status": [200], "msg": 7}], ids=str
)
def test_nonsense_instead_of_http_is_no_answer(reached: object) -> None:
    check = registry(reached)

    assert (check.ok, check.observed) == (False, "no answer")


def test_a_registry_on_a_controller_that_is_away_is_not_accused() -> None:
    (check,) = images.checks({}, "", "head", away=True)

    assert (check.verdict, "head" in check.observed) == ("unknown", True)
