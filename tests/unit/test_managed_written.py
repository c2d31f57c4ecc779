"""What a role manages is on the machine after one call, and nothing is said of what is right already."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from machines import ran_module, run_module

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="what roles manage is root's")

MODULE = "plugins/modules/managed_places.py"
ROOT = {"owner": "root", "group": "root"}
TEXT = "a = {{ no template }}\n"


def asked(root: Path, text: str | None = TEXT, **file: Any) -> dict[str, Any]:
    """Return a question for one of each kind, the ``file`` with other options."""
    return {
        "directories": [{"path": str(root / "above/directory"), **ROOT, "mode": "1777"}],
        "files": [{"path": str(root / "file"), **ROOT, "mode": "0644", "shown": True, **file}],
        "texts": json.dumps([text]),
        "links": {str(root / "link"): "leads/there"},
        "absent": [str(root / "gone")],
    }


def done(root: Path, question: dict[str, Any] | None = None, **how: Any) -> list[str]:
    """Return the names of what was written or removed."""
    options = {f"_ansible_{key}": value for key, value in how.items()}
    found = run_module(MODULE, {**(question or asked(root)), **options})
    names = [str(Path(path).relative_to(root)) for path in found["written"] + found["removed"]]
    assert found["changed"] == bool(names)
    return names


def mode(path: Path) -> str:
    return oct(path.lstat().st_mode & 0o7777)


def test_all_is_made_once(tmp_path: Path) -> None:
    (tmp_path / "gone/below").mkdir(parents=True)
    (tmp_path / "gone/below/file").touch()

    assert done(tmp_path, check_mode=True) == ["above/directory", "file", "link", "gone"]
    assert [path.name for path in tmp_path.iterdir()] == ["gone"], "check mode changes nothing"
    assert done(tmp_path) == ["above/directory", "file", "link", "gone"]
    assert done(tmp_path) == []

    assert sorted(path.name for path in tmp_path.iterdir()) == ["above", "file", "link"]
    assert (tmp_path / "file").read_text() == TEXT
    assert str((tmp_path / "link").readlink()) == "leads/there"
    assert [mode(tmp_path / name) for name in ("above", "above/directory", "file")] == ["0o755", "0o1777", "0o644"]


def to_a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("file", lambda path: path.write_text("by hand\n")),
        ("file", lambda path: path.chmod(0o4755)),
        ("file", lambda path: os.chown(path, 0, 1)),
        ("file", Path.unlink),
        ("file", to_a_link),
        ("above/directory", lambda path: path.chmod(0o755)),
        ("above/directory", lambda path: os.chown(path, 1, 0)),
        ("above/directory", Path.rmdir),
        ("link", lambda path: (path.unlink(), path.symlink_to("elsewhere"))),
        ("link", lambda path: (path.unlink(), path.write_text("another\n"))),
        ("link", lambda path: (path.unlink(), path.mkdir())),
        ("gone", lambda path: path.symlink_to("nowhere")),
    ],
)
def test_what_was_changed_is_mended_alone(tmp_path: Path, name: str, spoil: Any) -> None:
    done(tmp_path)
    spoil(tmp_path / name)

    assert done(tmp_path, check_mode=True) == [name]
    assert done(tmp_path) == [name]
    assert done(tmp_path) == []
    assert (tmp_path / "file").read_text() == TEXT
    assert not (tmp_path / "file").is_symlink()


def test_a_directory_behind_a_link_stays_there(tmp_path: Path) -> None:
    done(tmp_path)
    to_a_link(tmp_path / "above/directory")
    (tmp_path / "above/elsewhere").chmod(0o755)

    assert done(tmp_path) == ["above/directory"]
    assert (tmp_path / "above/directory").is_symlink()
    assert mode(tmp_path / "above/elsewhere") == "0o1777"


def test_a_file_that_something_else_makes_keeps_its_text_and_gets_its_mode(tmp_path: Path) -> None:
    question = asked(tmp_path, text=None, mode="0600")
    assert "file" not in done(tmp_path, question), "it is not there yet"
    (tmp_path / "file").write_text("a secret")

    assert done(tmp_path, question) == ["file"]
    assert done(tmp_path, question) == []
    assert ((tmp_path / "file").read_text(), mode(tmp_path / "file")) == ("a secret", "0o600")


def test_a_text_that_is_refused_is_not_put_there(tmp_path: Path) -> None:
    done(tmp_path)
    refusing = asked(tmp_path, text="b\n", validate="grep -q a %s")

    found = run_module(MODULE, refusing)

    assert found["msg"].startswith(f"{tmp_path}/file: not written, because it is refused by 'grep -q a ")
    assert (tmp_path / "file").read_text() == TEXT
    assert sorted(path.name for path in tmp_path.iterdir()) == ["above", "file", "link"]
    assert done(tmp_path, asked(tmp_path, text="ab\n", validate="grep -q a %s")) == ["file"]


@pytest.mark.parametrize("name", ["file", "link"])
def test_what_cannot_be_replaced_is_named_with_what_was_done_before(tmp_path: Path, name: str) -> None:
    (tmp_path / name / "below").mkdir(parents=True)

    found = run_module(MODULE, asked(tmp_path))

    assert found["failed"]
    assert found["msg"].startswith(f"{tmp_path}/{name}: ")
    assert found["written"][0] == f"{tmp_path}/above/directory"


def test_a_difference_is_shown_of_what_is_no_secret_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(f"{TEXT}more\n")
    shown = run_module(MODULE, {**asked(tmp_path), "_ansible_diff": True})
    hidden = ran_module(MODULE, {**asked(tmp_path, text="secret-word\n", shown=False), "_ansible_diff": True}).stdout

    assert [(one["after_header"], one["before"], one["after"]) for one in shown["diff"]] == [
        (f"{tmp_path}/file", f"{TEXT}more\n", TEXT)
    ]
    assert (tmp_path / "file").read_text() == "secret-word\n"
    assert "secret-word" not in hidden
    assert "diff" not in json.loads(hidden)


def test_a_unit_is_stopped_before_its_file_goes_and_only_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, said, unit = tmp_path / "bin/systemctl", tmp_path / "said", tmp_path / "mirror.service"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >>{said}\n[ $1 = daemon-reload ] || [ -f {unit} ]; exit ${{CODE:-$?}}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    question = {"absent": [str(unit)]}

    assert done(tmp_path, question) == []
    assert not said.exists()
    unit.write_text("[Unit]\n")
    assert done(tmp_path, question, check_mode=True) == ["mirror.service"]
    assert not said.exists()
    with monkeypatch.context() as broken:
        broken.setenv("CODE", "1")
        assert run_module(MODULE, question)["msg"].startswith(f"{unit}: not removed, because it could not be stopped")
    said.unlink()
    assert done(tmp_path, question) == ["mirror.service"]
    assert said.read_text() == "disable --now mirror.service\ndaemon-reload\n"
