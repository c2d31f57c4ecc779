"""What the machines of a lab keep of the archives that Ansible sends: compiled once, found by its text."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from provision import content

FILE = content.ROOT / "roles/lab_machines/files/keep_compiled.py"

#: Import a module of an archive, and tell what was compiled for that.
ASK = """
import os, sys, zipimport
sys.path.insert(0, os.environ["TOLD_BY"])
theirs, compiled = zipimport._compile_source, []
zipimport._compile_source = lambda pathname, source: compiled.append(pathname) or theirs(pathname, source)
import keep_compiled
keep_compiled.PLACE = os.environ["PLACE"]
sys.path.insert(0, sys.argv[1])
import sent
print(sent.VALUE, len(compiled))
"""


class Machine:
    """A Python with what a lab's machines have in theirs."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def imports(self, archive: str, text: str) -> str:
        """Import the module ``sent`` with that text from an archive; return its value and how often it compiled."""
        path = self.place / archive
        with zipfile.ZipFile(path, "w") as made:
            made.writestr("sent.py", text)
        env = {**os.environ, "TOLD_BY": str(FILE.parent), "PLACE": str(self.place / "kept")}
        return subprocess.run(
            [sys.executable, "-c", ASK, str(path)], env=env, check=True, capture_output=True, text=True
        ).stdout.strip()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "kept").mkdir()
    return Machine(tmp_path)


def test_what_two_archives_have_alike_is_compiled_once(machine: Machine) -> None:
    assert [machine.imports(name, "VALUE = 1\n") for name in ("one.zip", "another.zip")] == ["1 1", "1 0"]
    assert len(list((machine.place / "kept").iterdir())) == 1


def test_a_changed_text_is_compiled_anew(machine: Machine) -> None:
    assert [machine.imports("one.zip", f"VALUE = {value}\n") for value in (1, 2, 1)] == ["1 1", "2 1", "1 0"]


@pytest.mark.parametrize("spoilt", [b"", b"nothing of Python's", b"\xe3"])
def test_what_is_spoilt_is_compiled_and_kept_again(machine: Machine, spoilt: bytes) -> None:
    machine.imports("one.zip", "VALUE = 1\n")
    (kept,) = (machine.place / "kept").iterdir()
    kept.write_bytes(spoilt)

    assert [machine.imports("one.zip", "VALUE = 1\n") for _ in range(2)] == ["1 1", "1 0"]


def test_where_nothing_can_be_kept_all_is_as_without(machine: Machine) -> None:
    (machine.place / "kept").rmdir()

    # zipimport's get_filename() compiles as well.
    assert machine.imports("one.zip", "VALUE = 1\n") == "1 2"
