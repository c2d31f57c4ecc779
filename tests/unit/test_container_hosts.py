"""A container that runs is given the machine's hosts file in its place, and no other container is touched."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from machines import hosts, run_module

ENTRIES = [{"address": "10.0.0.1", "names": ["head"]}, {"address": "10.0.0.2", "names": ["node1"]}]


def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    """Make an engine that has one container which runs, and return its copy of the hosts file."""
    copy = tmp_path / "hosts"
    copy.write_text(text)
    program = tmp_path / "docker"
    program.write_text(f'#!/bin/sh\necho "/slurmd {copy}"\necho; echo "Error: No such container: sackd" >&2; exit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return copy


def run(check: bool = False) -> dict[str, Any]:
    arguments = {"containers": ["slurmd", "sackd"], "entries": ENTRIES, "_ansible_check_mode": check}
    return run_module("roles/slurm_service/library/container_hosts.py", arguments)


def wanted() -> str:
    return hosts.planned(Path("/etc/hosts").read_text(encoding="utf-8"), ENTRIES, [])


@pytest.mark.parametrize("text", ["10.0.0.1 head\n", "a longer line\n" * 500])
def test_a_copy_of_before_is_written_in_its_place_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    copy = made(tmp_path, monkeypatch, text)
    shown = copy.stat().st_ino

    assert run(check=True)["written"] == ["slurmd"]
    assert copy.read_text() == text
    assert run()["written"] == ["slurmd"]
    assert (copy.read_text(), copy.stat().st_ino) == (wanted(), shown), "a container shows the file that was there"
    assert run() == run() | {"changed": False, "written": []}


def test_a_copy_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, monkeypatch, "").unlink()

    assert "hosts" in run()["msg"]
