"""What a test that fails has left running must not outlive it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from provision.runner import journal
from provision.runner.process import kill_marked


@pytest.fixture(autouse=True)
def nothing_is_left_running(tmp_path: Path) -> Iterator[None]:
    yield
    for run in journal.runs(tmp_path / journal.NAME):
        kill_marked(run.id)
