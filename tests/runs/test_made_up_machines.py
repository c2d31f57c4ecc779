"""The bench's made-up machines: Ansible really goes to them, over a real sshd."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import roads
from bench.fleet import Fleet, running


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    # Not below tmp_path, whose name is too long for the socket of a connection.
    with tempfile.TemporaryDirectory(prefix="bench-") as directory, running(Path(directory)) as machines:
        yield machines


def test_a_recorded_answer_is_judged_for_each_machine(fleet: Fleet) -> None:
    fleet.answer("machine_facts", roads.recorded("machine_facts")["machine_facts"])
    assert roads.plain(fleet, roads.JUDGING, 2).processor > 0
    fleet.answer("machine_facts", {"machine": "none", "changed": False})
    with pytest.raises(SystemExit, match=r"made1 +: ok=0 .* failed=1"):
        roads.plain(fleet, roads.JUDGING, 2)
