"""daemon.json: what stands in it for which engine, and what a site's own keys do to it; how an engine is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from machines import plugin, tree

from provision.model import engine
from provision.model.facts import facts_from

asked = plugin("plugins/module_utils/machine_engine.py", "ansible.module_utils.machine_engine")
daemon = plugin("roles/container_engine/filter_plugins/container_engine.py").container_engine_daemon

OURS = {"live-restore": True, "log-driver": "json-file", "log-opts": {"max-size": "10m"}}
MACHINE = {"version": "20.10.24+dfsg1", "raises_limits": True}


@pytest.mark.parametrize(
    ("told", "how"),
    [
        ("Docker version 20.10.24+dfsg1, build 297e128", "runtime"),  # Debian 12
        ("Docker version 24.0.7, build 24.0.7-0ubuntu2~22.04.1", "runtime"),
        ("Docker version 25.0.0, build e758fe5", "feature"),
        ("Docker version 26.1.5+dfsg1, build a72d7cd", "feature"),  # Debian 13
        ("Docker version 28.2.2, build 28.2.2-0ubuntu1~24.04.1", "feature"),
        ("Docker version 28.3.0, build 38b7060", "engine"),
        ("Docker version 29.0.1, build eedd969", "engine"),
    ],
)
def test_each_engine_hands_out_gpus_in_its_own_way(told: str, how: str) -> None:
    assert engine.how_cdi(asked.version(told)) == how


def test_what_is_no_version_is_none() -> None:
    assert asked.version("command not found") == ""
    assert engine.how_cdi("") == ""


def test_without_gpus_and_limits_the_file_is_as_it_always_was() -> None:
    # A machine without a GPU must not have its engine restarted by an upgrade.
    assert engine.options(OURS, {}) == OURS


@pytest.mark.parametrize(
    ("how", "added"),
    [
        ("engine", {}),
        ("feature", {"features": {"cdi": True}}),
        ("runtime", {"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}),
    ],
)
def test_gpus_add_what_the_engine_needs_and_never_a_default_runtime(how: str, added: dict[str, object]) -> None:
    assert engine.options(OURS, {}, how) == {**OURS, **added}


def test_a_sites_features_runtimes_and_limits_stand_beside_ours() -> None:
    site = {
        "features": {"containerd-snapshotter": True},
        "default-ulimits": {"nofile": {"Name": "nofile", "Hard": 1, "Soft": 1}},
    }

    found = engine.options(OURS, site, "feature", -1)

    assert found["features"] == {"cdi": True, "containerd-snapshotter": True}
    assert sorted(found["default-ulimits"]) == ["memlock", "nofile"]
    assert found["default-ulimits"]["memlock"] == {"Name": "memlock", "Hard": -1, "Soft": -1}


def test_other_keys_of_a_site_replace_ours_as_a_whole() -> None:
    # Options of one log driver are an error to another.
    site = {"log-driver": "journald", "log-opts": {"tag": "x"}}

    assert engine.options(OURS, site) == {"live-restore": True, **site}


def test_null_removes_one_of_ours() -> None:
    assert "log-opts" not in engine.options(OURS, {"log-opts": None})
    assert "features" not in engine.options(OURS, {"features": None}, "feature")


def test_the_file_follows_from_what_the_machine_said_of_its_engine_and_limits() -> None:
    assert daemon(OURS, {}, MACHINE, True, -1)["runtimes"] == {"nvidia": {"path": "nvidia-container-runtime"}}
    assert "runtimes" not in daemon(OURS, {}, MACHINE, False, -1)
    assert "default-ulimits" in daemon(OURS, {}, MACHINE, False, "-1")
    assert "default-ulimits" not in daemon(OURS, {}, {**MACHINE, "raises_limits": False}, False, -1)
    assert daemon(OURS, {}, {"version": "", "raises_limits": False}, True, 0) == OURS


@pytest.mark.parametrize(("bound", "can"), [("000001ffffffffff", True), ("000001fffeffffff", False)])
def test_a_limit_is_set_only_where_the_machine_may(bound: str, can: bool) -> None:
    assert asked.can_raise_limits(f"Name:\tsystemd\nCapBnd:\t{bound}\n") is can


def answered(root: Path, answer: tuple[str, str, bool]) -> Any:
    """Return what is said of an engine whose programs answer so, as the control node reads it."""
    tree(root, {"proc/1/status": "CapBnd:\t000001ffffffffff\n"})
    told = asked.collect(root, {"seconds": 3}, 2, run=lambda _command, _seconds: answer)
    return facts_from({"engine": told})["engine"]


def test_an_engine_says_its_release_and_what_it_has_loaded(tmp_path: Path) -> None:
    found = answered(tmp_path, (json.dumps({"ServerVersion": "20.10.24", "LiveRestoreEnabled": True}), "", False))

    assert (found["server"], found["live_restore"], found["problem"], found["limit"]) == ("20.10.24", True, "", 6)
    assert found["raises_limits"]


@pytest.mark.parametrize(
    ("answer", "problem", "late"),
    [
        (("", "did not answer in 6 s", True), "did not answer in 6 s", True),
        (("", "docker: No such file or directory", False), "docker: No such file or directory", False),
        # What Docker 20.10 says where there is no engine: words on its standard output, and success.
        ((json.dumps({"ServerErrors": ["Cannot connect"], "ServerVersion": ""}), "", False), "Cannot connect", False),
        (('["x"]', "", False), "", False),
        (('{"ServerVersion": 7, "LiveRestoreEnabled": "yes", "ServerErrors": {}}', "", False), "", False),
    ],
)
def test_an_engine_that_is_silent_or_absent_is_said_to_be(
    tmp_path: Path, answer: tuple[str, str, bool], problem: str, late: bool
) -> None:
    found = answered(tmp_path, answer)

    assert (found["server"], found["live_restore"], found["problem"], found["late"]) == ("", None, problem, late)


def test_a_command_that_hangs_is_ended_and_one_that_is_not_there_is_named() -> None:
    assert asked.ask(["sleep", "9"], 0.2) == ("", "did not answer in 0.2 s", True)
    assert asked.ask(["no-such-program"], 1) == ("", "no-such-program is not installed", False)
    assert asked.ask(["sh", "-c", "echo said; echo why >&2; exit 3"], 5) == ("said\n", "why", False)
