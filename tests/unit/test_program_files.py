"""The files of a program: each as it should be after one question, and nothing said of those that are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from machines import run_module

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="files of root's are made by root")

TEXTS = {"__init__.py": "", "job.py": "print('{{ no template }}')\n"}


def written(directory: Path, **options: Any) -> list[str]:
    files = [{"path": str(directory / name), "text": text} for name, text in TEXTS.items()]
    found = run_module("roles/ddp_validation/library/program_files.py", {"files": files, **options})
    assert found["changed"] == bool(found["written"])
    return [Path(path).name for path in found["written"]]


def test_all_are_written_once_as_they_are(tmp_path: Path) -> None:
    assert written(tmp_path) == list(TEXTS)
    assert written(tmp_path) == []
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == TEXTS
    assert {oct(path.stat().st_mode & 0o7777) for path in tmp_path.iterdir()} == {"0o755"}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_text("by hand\n"),
        lambda path: path.chmod(0o4755),
        lambda path: os.chown(path, 0, 1),
        lambda path: path.unlink(),
        lambda path: (path.rename(path.parent.parent / "elsewhere"), path.symlink_to("../elsewhere")),
    ],
    ids=["text", "mode", "group", "gone", "link"],
)
def test_what_was_changed_is_replaced_alone(tmp_path: Path, spoil: Any) -> None:
    directory = tmp_path / "program"
    directory.mkdir()
    written(directory)
    spoil(directory / "job.py")

    assert written(directory, _ansible_check_mode=True) == ["job.py"]
    assert written(directory) == ["job.py"]
    assert written(directory) == []
    assert (directory / "job.py").is_symlink() is False


def test_a_directory_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "job.py").mkdir()

    files = [{"path": str(tmp_path / "job.py"), "text": ""}]
    found = run_module("roles/ddp_validation/library/program_files.py", {"files": files})

    assert found["msg"].startswith(f"{tmp_path}/job.py could not be written: Is a directory")
