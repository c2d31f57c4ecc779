"""Packages that a site brings for Slurm's image: nothing else than what it has declared is installed."""

from __future__ import annotations

import hashlib
import runpy
from pathlib import Path
from typing import Any

import pytest

from provision import content

FETCH: dict[str, Any] = runpy.run_path(str(content.ROOT / "roles/slurm_image/files/image/fetch-packages"))


@pytest.fixture
def package(tmp_path: Path) -> tuple[str, str]:
    file = tmp_path / "site" / "apptainer_1_amd64.deb"
    file.parent.mkdir()
    file.write_bytes(b"!<arch>\n")
    return file.as_uri(), hashlib.sha256(b"!<arch>\n").hexdigest()


def test_a_package_as_declared_is_fetched(tmp_path: Path, package: tuple[str, str]) -> None:
    assert FETCH["main"](str(tmp_path / "to"), "#".join(package)) is None
    assert (tmp_path / "to/apptainer_1_amd64.deb").read_bytes() == b"!<arch>\n"


def test_another_one_is_not_and_both_checksums_are_said(tmp_path: Path, package: tuple[str, str]) -> None:
    told = FETCH["main"](str(tmp_path / "to"), f"{package[0]}#{'0' * 64}")

    assert package[1] in told
    assert "0" * 64 in told
    assert not list((tmp_path / "to").iterdir())


def test_a_server_that_does_not_have_it_is_named(tmp_path: Path, package: tuple[str, str]) -> None:
    told = FETCH["main"](str(tmp_path / "to"), f"{package[0]}x#{package[1]}")

    assert told.startswith(f"{package[0]}x: ")
    assert "job_container_packages" in told
