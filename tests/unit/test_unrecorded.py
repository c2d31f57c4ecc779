"""A run whose record cannot be written: what nobody can read afterwards is no pass."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from test_verdict import RECORDED, run

from provision.cli import judged
from provision.cli.verify import last
from provision.errors import ExitCode
from provision.model.checks import Verdict
from provision.runner import journal

FULL = "No space left on device"


def concluded(record: journal.Run, command: str = "verify") -> judged.Outcome:
    return judged.concluded(command, run(RECORDED), record, ["gpu"], "head")


def begun(folder: Path) -> journal.Run:
    return journal.begin(journal.prepare(journal.state_directory(folder)), "verify")


def verdict_of(folder: Path) -> str:
    """Return what ``clusterctl status`` says of the last verify."""
    return str((last(folder)["last_verdict"] or {}).get("verdict"))


def test_a_run_that_could_be_written_down_passes_and_status_repeats_it(tmp_path: Path) -> None:
    outcome = concluded(begun(tmp_path))

    assert (outcome.code, verdict_of(tmp_path)) == (ExitCode.DONE, "pass")


@pytest.mark.parametrize("lost", [("report.json",), ("run.json",), ("report.json", "run.json")], ids=str)
@pytest.mark.parametrize("how", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT], ids=os.strerror)
def test_a_verdict_that_cannot_be_written_at_the_end_is_unknown(
    lost: tuple[str, ...], how: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, write = begun(tmp_path), journal.write_json

    def refusing(path: Path, document: Mapping[str, Any]) -> None:
        if path.name in lost:
            raise OSError(how, os.strerror(how))
        write(path, document)

    monkeypatch.setattr(journal, "write_json", refusing)
    outcome = concluded(record)

    assert outcome.code is ExitCode.VERIFICATION_FAILED
    assert (outcome.document["verdict"], outcome.document["exit_code"]) == ("unknown", 8)
    assert outcome.judgement is not None
    assert outcome.judgement.word is Verdict.UNKNOWN
    [why] = [check for check in outcome.judgement.checks if check.id == "run.recorded"]
    assert os.strerror(how) in why.observed
    assert "make room" in why.fix
    assert os.strerror(how) in "".join(outcome.document["warnings"])
    assert verdict_of(tmp_path) == "unknown"


def test_a_provision_whose_report_is_lost_says_so_and_has_provisioned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = begun(tmp_path)

    def refusing(path: Path, document: Mapping[str, Any]) -> None:
        raise OSError(errno.ENOSPC, FULL)

    monkeypatch.setattr(journal, "write_json", refusing)
    outcome = concluded(record, "provision")

    assert outcome.code is ExitCode.DONE
    assert FULL in "".join(outcome.document["warnings"])


@contextmanager
def disk(folder: Path) -> Iterator[bool]:
    """Mount a small disk there; tells whether that can be done here."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=20m", "none", folder], capture_output=True, check=False
    )
    try:
        yield mounted.returncode == 0
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def nothing_more(folder: Path, small: bool) -> Iterator[None]:
    """Fill the disk; where there is none of our own, let this process write no file at all."""
    if small:
        with suppress(OSError), (folder / "filler").open("wb", buffering=0) as filler:
            for size in (1 << 16, 1):
                with suppress(OSError):
                    while filler.write(b"x" * size):
                        pass
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_at_the_very_end_is_no_pass(tmp_path: Path) -> None:
    with disk(tmp_path) as small:
        record = begun(tmp_path)
        record.record({"event": "play"})
        with nothing_more(tmp_path, small):
            outcome = concluded(record)

        assert outcome.code is ExitCode.VERIFICATION_FAILED
        assert outcome.document["verdict"] == "unknown"
        assert any(word in json.dumps(outcome.document["why"]) for word in (FULL, "File too large"))
        assert verdict_of(tmp_path) == "unknown"
