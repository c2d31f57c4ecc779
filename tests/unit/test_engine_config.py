"""daemon.json: what stands in it for which engine, and what a site's own keys do to it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from machines import plugin, run_module

engine = plugin("roles/container_engine/library/engine_config.py")

OURS = {"live-restore": True, "log-driver": "json-file", "log-opts": {"max-size": "10m"}}


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
    assert engine.how_cdi(engine.release(told)) == how


def test_what_is_no_version_is_none() -> None:
    assert engine.release("command not found") == ()


def test_without_gpus_and_limits_the_file_is_as_it_always_was() -> None:
    # A machine without a GPU must not have its engine restarted by an upgrade.
    assert engine.merged(OURS, {}, "", 0) == OURS


@pytest.mark.parametrize(
    ("how", "added"),
    [
        ("engine", {}),
        ("feature", {"features": {"cdi": True}}),
        ("runtime", {"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}),
    ],
)
def test_gpus_add_what_the_engine_needs_and_never_a_default_runtime(how: str, added: dict[str, object]) -> None:
    assert engine.merged(OURS, {}, how, 0) == {**OURS, **added}


def test_a_sites_features_runtimes_and_limits_stand_beside_ours() -> None:
    site = {
        "features": {"containerd-snapshotter": True},
        "default-ulimits": {"nofile": {"Name": "nofile", "Hard": 1, "Soft": 1}},
    }

    found = engine.merged(OURS, site, "feature", -1)

    assert found["features"] == {"cdi": True, "containerd-snapshotter": True}
    assert sorted(found["default-ulimits"]) == ["memlock", "nofile"]
    assert found["default-ulimits"]["memlock"] == {"Name": "memlock", "Hard": -1, "Soft": -1}


def test_other_keys_of_a_site_replace_ours_as_a_whole() -> None:
    # Options of one log driver are an error to another.
    site = {"log-driver": "journald", "log-opts": {"tag": "x"}}

    assert engine.merged(OURS, site, "", 0) == {"live-restore": True, **site}


def test_null_removes_one_of_ours() -> None:
    assert "log-opts" not in engine.merged(OURS, {"log-opts": None}, "", 0)
    assert "features" not in engine.merged(OURS, {"features": None}, "feature", 0)


@pytest.mark.parametrize(("bound", "can"), [("000001ffffffffff", True), ("000001fffeffffff", False)])
def test_a_limit_is_set_only_where_the_machine_may(bound: str, can: bool) -> None:
    assert engine.can_raise_limits(f"Name:\tsystemd\nCapBnd:\t{bound}\n") is can


def test_the_file_is_readable_for_all_again_whatever_it_was_before(tmp_path: Path) -> None:
    path = tmp_path / "docker" / "daemon.json"
    arguments = {"path": str(path), "options": OURS}
    module = "roles/container_engine/library/engine_config.py"

    assert run_module(module, arguments)["changed"]
    path.chmod(0o640)
    checked = run_module(module, {**arguments, "_ansible_check_mode": True})
    assert (checked["changed"], stat.S_IMODE(path.stat().st_mode)) == (True, 0o640)
    assert run_module(module, arguments)["changed"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert not run_module(module, arguments)["changed"]

    path.chmod(0o640)
    assert run_module(module, {**arguments, "site": {"debug": True}})["changed"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
