"""How what roles manage stands on made-up machines, as the module reads it."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import pytest
from machines import key, state, tree


def test_paths_are_told_by_kind_mode_owner_and_content(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir(mode=0o750)
    (tmp_path / "etc/a.conf").write_text("a\n")
    (tmp_path / "etc/a.conf").chmod(0o640)
    (tmp_path / "etc/link").symlink_to("a.conf")
    os.mkfifo(tmp_path / "etc/pipe")

    asked = ["/etc", "/etc/a.conf", "/etc/link", "/etc/pipe", "/etc/none"]
    found = state.paths(tmp_path, asked, contents=asked)

    assert [found[path]["kind"] for path in found] == ["directory", "file", "link", "other", "absent"]
    assert found["/etc"]["mode"] == "0750"
    assert found["/etc/a.conf"]["mode"] == "0640"
    assert found["/etc/a.conf"]["sha256"] == hashlib.sha256(b"a\n").hexdigest()
    assert found["/etc/a.conf"]["uid"] == os.getuid()
    assert found["/etc/link"]["target"] == "a.conf"
    assert "text" not in found["/etc/a.conf"]


def test_only_files_whose_content_counts_are_read(tmp_path: Path) -> None:
    tree(tmp_path, {"etc/key": "secret", "etc/a.conf": "a\n", "etc/b.conf": "b\n"})

    found = state.paths(tmp_path, ["/etc/key", "/etc/a.conf", "/etc/b.conf"], ["/etc/b.conf"], ["/etc/a.conf"])

    assert (found["/etc/key"]["kind"], found["/etc/key"].keys() & {"sha256", "text"}) == ("file", set())
    assert found["/etc/a.conf"]["sha256"] == hashlib.sha256(b"a\n").hexdigest()
    assert "text" not in found["/etc/a.conf"]
    assert found["/etc/b.conf"]["text"] == "b\n"


def test_an_age_is_how_long_ago_the_content_was_changed(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    os.utime(tmp_path / "a", (time.time(), time.time() - 100))

    assert 99 < state.paths(tmp_path, ["/a"])["/a"]["age"] < 160


def test_a_text_is_told_only_where_it_is_asked_for_and_small(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "large").write_text("x" * 70_000)

    found = state.paths(tmp_path, ["/a", "/large"], texts=["/a", "/large"])

    assert found["/a"]["text"] == "a"
    assert "text" not in found["/large"]


def answering(*answers: str | None) -> Any:
    told = list(answers)
    return lambda *_: told.pop(0)


def test_packages_are_those_that_are_installed_and_say_whether_they_are_held() -> None:
    run = answering("munge\t0.5\tinstall\tinstalled\nchrony\t4\tdeinstall\tconfig-files\ndkms\t3\thold\tinstalled\n")

    assert state.packages(["munge", "chrony", "dkms"], run=run) == {
        "munge": {"version": "0.5", "held": False},
        "dkms": {"version": "3", "held": True},
    }


def test_a_machine_without_dpkg_has_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    assert state.packages(["munge"]) == {}


def test_a_database_that_does_not_answer_is_not_an_empty_one() -> None:
    assert state.packages(["munge"], run=answering(None, None)) is None
    assert state.services(["munge"], run=answering(None, None)) is None
    assert state.manager(["DefaultLimitMEMLOCK"], run=answering("")) is None


SHOWN = """\
Id=munge.service
LoadState=loaded
ActiveState=active
SubState=running
UnitFileState=enabled
NeedDaemonReload=no
ActiveEnterTimestampMonotonic={entered}

Id=none.service
LoadState=not-found
ActiveState=inactive
SubState=dead
UnitFileState=
NeedDaemonReload=no
ActiveEnterTimestampMonotonic=0
"""


@pytest.mark.parametrize("reloaded", [70, None])
def test_services_are_told_with_the_seconds_since_they_were_started(reloaded: int | None) -> None:
    now = time.clock_gettime(time.CLOCK_MONOTONIC)
    # Without a reload since its start, systemd has read its units when it was started, and says 0 of the reload.
    moments = [now - 100, now - reloaded] if reloaded else [now - 70, 0]
    run = answering(
        SHOWN.format(entered=int((now - 50) * 1e6)), "\n".join(str(int(moment * 1e6)) for moment in moments)
    )

    found = state.services(["munge", "none"], run=run)

    assert found["munge"]["load"], found["munge"]["active"] == ("loaded", "active")
    assert found["munge"]["age"] == pytest.approx(50, abs=5)
    assert found["munge"]["loaded_age"] == pytest.approx(70, abs=5)
    assert found["none"]["load"] == "not-found"


def test_ages_that_are_compared_are_of_one_moment_however_slow_the_machine_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall, kernel = time.time(), time.clock_gettime(time.CLOCK_MONOTONIC)
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    (tmp_path / "unit").write_text("written, and read by systemd half a second later")
    os.utime(tmp_path / "unit", (wall, wall))
    read = f"{int((kernel + 0.5) * 1e6)}\n0\n"

    def slow(command: list[str], seconds: float) -> str:
        time.sleep(1)
        return SHOWN.format(entered=int((kernel + 0.5) * 1e6)) if "munge.service" in command else read

    monkeypatch.setattr(state, "printed", slow)
    found = state.collect(tmp_path, {"paths": ["/unit"], "services": ["munge", "none"]})

    assert found["services"]["munge"]["loaded_age"] < found["paths"]["/unit"]["age"]


def test_a_machine_without_systemd_has_no_service_which_is_an_answer(tmp_path: Path) -> None:
    assert state.collect(tmp_path, {"services": ["munge"]})["services"] == {}


def test_a_key_is_told_by_a_hash_that_nobody_can_have_prepared(tmp_path: Path) -> None:
    (tmp_path / "munge.key").write_bytes(b"secret" * 20)
    (tmp_path / "munge.key").chmod(0o400)

    one, other = (key.collect(tmp_path, {"path": "/munge.key"}) for _ in range(2))

    assert one["salt"] != other["salt"]
    assert one["fingerprint"] != other["fingerprint"]
    assert key.collect(tmp_path, {"path": "/munge.key", "salt": one["salt"]}) == one
    assert one["mode"] == "0400"
    assert "secret" not in str(one)
    assert key.collect(tmp_path, {"path": "/none", "salt": "00"}) == {
        "salt": "00",
        "absent": "No such file or directory",
    }
