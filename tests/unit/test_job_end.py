"""Slurm's Epilog: which of a user's processes a job has left behind."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from provision import content

PROGRAM = content.ROOT / "roles/slurm_conf/files/job_end"

Started = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def started() -> Iterator[Started]:
    """Start a process of a job, by the number that it was told."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(job: str) -> subprocess.Popen[bytes]:
        told = {**os.environ, "SLURM_JOB_ID": job}
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=told)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("leads_to", ["72", "73", None])
def test_a_part_of_a_heterogeneous_job_ends_what_has_its_own_number_and_what_it_stands_for(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leads_to: str | None
) -> None:
    """Tasks are told the first part's number, and Podman, which makes their containers, the number of the part."""
    program: dict[str, Any] = runpy.run_path(str(PROGRAM))
    module = program["main"].__globals__
    asked: list[set[str]] = []

    def of_these(jobs: set[str]) -> dict[int, Any]:
        asked.append(set(jobs))
        return {}

    real = module["processes"]
    monkeypatch.setitem(module, "processes", of_these)
    monkeypatch.setitem(module, "SCRATCH", str(tmp_path / "none"))
    links = {"/run/clusterctl/jobs/71": leads_to} if leads_to else {}
    monkeypatch.setattr(os.path, "islink", lambda path: path in links)
    read = os.readlink
    monkeypatch.setattr(os, "readlink", lambda path: links[path] if path in links else read(path))
    monkeypatch.setattr(os, "unlink", lambda path: links.pop(path))
    monkeypatch.setattr(os, "spawnlp", lambda *_: 0)

    program["main"]("72", os.getuid(), "71")

    assert asked == [{"72", "71"} if leads_to == "72" else {"72"}]
    first, own, other = (started(job) for job in ("71", "72", "73"))
    marked = {pid for pid, process in real(asked[0]).items() if process.marked}
    assert own.pid in marked
    assert (first.pid in marked) == (leads_to == "72")
    assert other.pid not in marked
