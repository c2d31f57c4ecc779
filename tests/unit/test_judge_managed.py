"""The one judge of packages, files and services, and what it is asked with."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from provision.judge import managed, munge, road
from provision.model.checks import Check, Subject
from provision.model.managed import ManagedError, managed_from, questions

SUBJECT = Subject("munge", ("packages", "files", "services"), fix="clusterctl provision munge")
DATA: dict[str, Any] = {
    "packages": ["munge"],
    "directories": [{"path": "/etc/munge.d", "mode": "0755"}],
    "files": [{"path": "/etc/munge.d/a.conf", "text": "a\n", "mode": "0644"}],
    "links": [{"path": "/usr/bin/m", "target": "munge"}],
    "absent": ["/etc/old.conf"],
    "services": [{"name": "munge", "started_after": ["/etc/munge.d/a.conf"], "units": ["/etc/systemd/a"]}],
}
ROOT = {"owner": "root", "group": "root", "uid": 0, "gid": 0, "age": 900.0}
FILE = {**ROOT, "kind": "file", "mode": "0644", "sha256": hashlib.sha256(b"a\n").hexdigest()}
RUNNING = {"load": "loaded", "active": "active", "sub": "running", "enabled": "enabled", "reload": False}
STATE: dict[str, Any] = {
    "packages": {"munge": {"version": "0.5", "held": False}},
    "paths": {
        "/etc/munge.d": {**ROOT, "kind": "directory", "mode": "0755"},
        "/etc/munge.d/a.conf": FILE,
        "/etc/systemd/a": FILE,
        "/usr/bin/m": {**ROOT, "kind": "link", "mode": "0777", "target": "munge"},
        "/etc/old.conf": {"kind": "absent"},
    },
    "services": {"munge": {**RUNNING, "age": 100.0, "loaded_age": 200.0}},
}


def judged(kind: str, state: dict[str, Any], data: dict[str, Any] | None = None) -> Check:
    checks = managed.checks(SUBJECT, managed_from(data or DATA), state)
    return next(check for check in checks if check.id == f"munge.{kind}")


def with_path(path: str, **changes: Any) -> dict[str, Any]:
    return {**STATE, "paths": {**STATE["paths"], path: {**STATE["paths"].get(path, {}), **changes}}}


def with_service(**changes: Any) -> dict[str, Any]:
    return {**STATE, "services": {"munge": {**STATE["services"]["munge"], **changes}}}


def test_a_machine_that_is_as_declared_passes_every_kind() -> None:
    checks = managed.checks(SUBJECT, managed_from(DATA), STATE)

    assert [(check.id, check.verdict) for check in checks] == [(name, "pass") for name in SUBJECT.ids]


@pytest.mark.parametrize(
    ("path", "changes", "words"),
    [
        ("/etc/munge.d/a.conf", {"sha256": "0" * 64}, "/etc/munge.d/a.conf has another text"),
        ("/etc/munge.d/a.conf", {"mode": "0666"}, "has mode 0666, not 0644"),
        ("/etc/munge.d/a.conf", {"owner": "admin", "uid": 1000}, "has owner admin, not root"),
        ("/etc/munge.d/a.conf", {"group": "adm", "gid": 4}, "has group adm, not root"),
        ("/etc/munge.d/a.conf", {"kind": "absent"}, "is absent"),
        ("/etc/munge.d/a.conf", {"kind": "link", "target": "/dev/null"}, "is a link, not a file"),
        ("/etc/munge.d", {"mode": "0777"}, "has mode 0777"),
        ("/etc/munge.d", {"kind": "file"}, "is a file, not a directory"),
        ("/usr/bin/m", {"target": "other"}, "leads to other, not to munge"),
        ("/usr/bin/m", {"kind": "file"}, "is a file, not a link to munge"),
        ("/etc/old.conf", {"kind": "file"}, "/etc/old.conf is there"),
    ],
)
def test_what_is_not_as_declared_is_named(path: str, changes: dict[str, Any], words: str) -> None:
    check = judged("files", with_path(path, **changes))

    assert check.verdict == "fail"
    assert words in check.observed


def test_a_directory_that_two_parts_of_a_role_name_is_told_once() -> None:
    twice = {**DATA, "directories": [*DATA["directories"], *DATA["directories"]]}

    assert judged("files", with_path("/etc/munge.d", mode="0700"), twice).observed.count("/etc/munge.d has mode") == 1


def test_a_number_is_as_good_an_owner_as_a_name() -> None:
    data = {**DATA, "files": [{"path": "/etc/munge.d/a.conf", "text": "a\n", "owner": "64030", "group": 64030}]}

    assert judged("files", with_path("/etc/munge.d/a.conf", owner="x", uid=64030, gid=64030), data).verdict == "pass"


@pytest.mark.parametrize("answer", [{"error": "Permission denied"}, {}])
def test_what_was_not_answered_is_unknown_and_not_changed(answer: dict[str, Any]) -> None:
    state = {**STATE, "paths": {**STATE["paths"], "/etc/munge.d/a.conf": answer}}

    assert judged("files", state).verdict == "unknown"
    assert judged("files", {**STATE, "paths": {}}).verdict == "unknown"
    assert judged("packages", {**STATE, "packages": None}).verdict == "unknown"
    assert judged("services", {**STATE, "services": None}).verdict == "unknown"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"active": "inactive", "sub": "dead"}, "munge is inactive (dead)"),
        ({"active": "failed", "sub": "failed"}, "munge is failed"),
        ({"enabled": "disabled"}, "is not started at boot"),
        ({"load": "masked"}, "is masked"),
        ({"load": "not-found"}, "is not there"),
        ({"reload": True}, "systemd has not read yet"),
        ({"loaded_age": 1000.0}, "systemd has not read yet: /etc/systemd/a"),
        ({"age": 901.0}, "was started before /etc/munge.d/a.conf changed"),
    ],
)
def test_a_service_is_running_at_boot_and_with_its_files(changes: dict[str, Any], words: str) -> None:
    check = judged("services", with_service(**changes))

    assert check.verdict == "fail"
    assert words in check.observed


def test_packages_are_missing_or_no_longer_held() -> None:
    held = {**DATA, "held": True}

    assert "missing: munge" in judged("packages", {**STATE, "packages": {}}).observed
    assert "not held: munge" in judged("packages", STATE, held).observed
    assert judged("packages", {**STATE, "packages": {"munge": {"version": "1", "held": True}}}, held).verdict == "pass"


def test_a_file_of_which_nobody_said_what_it_has_to_be_is_unknown_until_something_else_is_wrong() -> None:
    data = {**DATA, "files": [{"path": "/etc/munge.d/a.conf", "content": None, "mode": "0644"}]}

    check = judged("files", STATE, data)
    assert (check.verdict, "nobody said" in check.observed) == ("unknown", True)
    assert judged("files", {**STATE, "paths": {**STATE["paths"], "/etc/old.conf": FILE}}, data).verdict == "fail"
    data["files"] = [{"path": "/etc/munge.d/a.conf", "template": "a.j2", "text": "b\n", "known": False}]
    assert judged("files", STATE, data).verdict == "unknown"
    data["files"] = [{"path": "/etc/munge.d/a.conf", "mode": "0644"}]
    assert judged("files", STATE, data).verdict == "pass"


def test_an_entry_that_does_not_apply_is_not_wanted_but_asked_about() -> None:
    data = {"files": [{"path": "/etc/munge.d/a.conf", "text": "a\n", "when": False}]}

    assert questions(data, lambda value: value)["paths"] == ["/etc/munge.d/a.conf"]
    assert judged("files", {**STATE, "paths": {}}, data).verdict == "pass"


def test_what_is_asked_and_which_checks_there_are_is_known_without_a_machine() -> None:
    asked = questions(DATA, lambda value: value)

    assert set(asked["paths"]) == set(STATE["paths"])
    # No other file is read: a key is compared by what its own role says of it.
    assert asked["contents"] == ["/etc/munge.d/a.conf"]
    assert (asked["packages"], asked["services"]) == (["munge"], ["munge"])


def test_data_of_another_form_is_a_mistake_of_the_role() -> None:
    with pytest.raises(ManagedError, match="pakages"):
        questions({"pakages": []}, lambda value: value)
    with pytest.raises(ManagedError):
        managed_from({"files": [{"mode": "0644"}]})


def test_the_text_of_a_secret_is_never_a_difference() -> None:
    wants = managed_from({"files": [{**DATA["files"][0], "secret": True}, {"path": "/b", "text": "b"}]})

    assert [place.path for place in managed.text_changes(wants, {"paths": {}})] == ["/b"]


KEY = {"salt": "00", "fingerprint": "ab", "mode": "0400", "owner": "munge:munge"}


@pytest.mark.parametrize(
    ("own", "wants", "verdict"),
    [
        (KEY, {"fingerprint": "ab"}, ["pass", "pass"]),
        (KEY, {"fingerprint": "cd"}, ["fail", "pass"]),
        (KEY, {"fingerprint": ""}, ["fail", "pass"]),
        # Where nothing is done about it, of two keys neither is the wrong one.
        (KEY, {"fingerprint": "cd", "verified": True}, ["unknown", "pass"]),
        (KEY, {"fingerprint": "ab", "verified": True}, ["pass", "pass"]),
        (KEY, {"fingerprint": None}, ["unknown", "unknown"]),
        ({**KEY, "mode": "0444"}, {"fingerprint": "ab"}, ["pass", "fail"]),
        ({**KEY, "owner": "root:root"}, {"fingerprint": "ab"}, ["pass", "fail"]),
        ({"salt": "00", "absent": "No such file or directory"}, {"fingerprint": "ab"}, ["fail", "skip"]),
        (KEY, {"fingerprint": None, "controller": True}, ["pass", "pass"]),
        ({**KEY, "mode": "0444"}, {"fingerprint": None, "controller": True}, ["pass", "fail"]),
        ({}, {"fingerprint": "ab"}, ["unknown", "unknown"]),
    ],
)
def test_a_key_is_the_controllers_and_its_file_for_munge_alone(
    own: Any, wants: dict[str, Any], verdict: list[str]
) -> None:
    checks = munge.machine_checks({"munge": own}, {"controller": False, "mode": "0400", **wants})

    assert [check.id for check in checks] == ["munge.key", "munge.key_file"]
    assert [str(check.verdict) for check in checks] == verdict


def test_what_roles_ask_is_joined() -> None:
    options: dict[str, Any] = {"gather": ["system"], "state": {"paths": ["/a"]}, "lock_timeout": 5}

    for name, value in {"gather": ["system", "hardware"], "state": {"paths": ["/a", "/b"]}, "lock_timeout": 3}.items():
        road.merge(options, name, value)

    assert options == {"gather": ["system", "hardware"], "state": {"paths": ["/a", "/b"]}, "lock_timeout": 5}


def test_a_role_is_for_the_machines_of_its_groups() -> None:
    def roles(names: list[str], group: str, **others: list[str]) -> list[str]:
        return road.roles_for(names, [group], {group: ["it"], **others})

    assert roles(["base_system", "munge"], "monitoring") == ["base_system"]
    assert roles(["munge", "slurm_image", "slurm_client"], "slurm_login") == ["munge", "slurm_client"]
    assert roles(["base_system", "munge"], "slurm_compute") == ["base_system", "munge"]
    # All machines are read where one of them reads, and none elsewhere.
    assert roles(["machine_metrics", "monitoring"], "slurm_compute", monitoring=["watch1"]) == ["machine_metrics"]
    assert roles(["machine_metrics", "monitoring"], "slurm_compute", monitoring=[]) == []
    assert roles(["machine_metrics", "monitoring"], "monitoring") == ["machine_metrics", "monitoring"]


def test_a_file_that_comes_with_the_role_as_it_is_is_a_program() -> None:
    data = {"files": [{"path": "/a", "file": "a.py", "text": "a"}, {"path": "/b", "template": "b.j2", "text": "b"}]}

    assert [place.program for place in managed_from(data).files] == [True, False]


@pytest.mark.parametrize(
    ("sha256", "running", "restarts"),
    [("0" * 64, True, ["slurmdbd"]), ("0" * 64, False, []), (FILE["sha256"], True, [])],
)
def test_a_file_that_a_container_reads_when_it_starts_tells_of_its_restart(
    sha256: str, running: bool, restarts: list[str]
) -> None:
    reads = {"name": "slurmdbd", "image": "", "command": ["slurmdbd"], "user": "0:0", "replacement": "jobs go on"}
    data = {**DATA, "services": [], "containers": [{**reads, "started_after": ["/etc/munge.d/a.conf"]}]}
    state = with_path("/etc/munge.d/a.conf", sha256=sha256, mode="0600")
    state["containers"] = {"found": {"slurmdbd": {"State": {"Running": running}}}}

    check = judged("files", state, data)

    assert [(one.of, one.note) for one in check.consequences] == [(name, "jobs go on") for name in restarts]
