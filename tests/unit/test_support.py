"""The support matrix in docs/support.md says what tests have run, and nothing else."""

from __future__ import annotations

import support


def test_the_documentation_shows_what_tests_have_run() -> None:
    assert support.on_page() == support.table(support.ran()), "make support"


def test_rows_and_systems_of_the_record_are_those_of_the_matrix() -> None:
    shape, record = support.matrix(), support.ran()

    assert set(record) <= set(shape["rows"])
    assert {system for systems in record.values() for system in systems} <= set(shape["systems"])
