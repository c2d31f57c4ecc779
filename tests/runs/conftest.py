"""A site of three machines that are all this computer; what a test leaves running must not outlive it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_runs import CHANGE, CHECKS, stages_in, write_inventory

from provision.runner import journal
from provision.runner.process import kill_marked


@pytest.fixture(autouse=True)
def nothing_is_left_running(tmp_path: Path) -> Iterator[None]:
    yield
    for run in journal.runs(tmp_path / journal.NAME):
        kill_marked(run.id)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    write_inventory(tmp_path)
    stages_in(tmp_path, discover="- meta: noop\n", preflight="- meta: noop\n", base=CHANGE, verify=CHECKS)
    return tmp_path
