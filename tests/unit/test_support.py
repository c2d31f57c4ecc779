"""The support matrix in docs/support.md says what tests have run, and nothing else."""

from __future__ import annotations

import support


def test_the_documentation_shows_what_tests_have_run() -> None:
    assert support.on_page() == support.table(support.ran()), "make support"


def test_rows_and_systems_of_the_record_are_those_of_the_matrix() -> None:
    shape, record = support.matrix(), support.ran()

    assert set(record) <= set(shape["rows"])
    assert {system for systems in record.values() for system in systems} <= set(shape["systems"])


def test_what_has_only_been_rendered_counts_as_not_run() -> None:
    record: support.Record = {"mig": {"Ubuntu 24.04": {"rendered": {"on": "2026-01-01", "by": ["a"]}}}}

    (row,) = [line for line in support.table(record).splitlines() if "MIG" in line]

    assert row.split("|")[2:-1] == [" *not run* "] * 3 + [" *not run*; rendered "]


def test_a_later_day_replaces_an_earlier_one() -> None:
    notes = [
        {"row": "mig", "system": "Debian 12", "kind": "vm", "test": test, "on": day}
        for test, day in (("new", "2026-02-02"), ("old", "2026-01-01"), ("also new", "2026-02-02"))
    ]

    assert support.merged({}, notes) == {"mig": {"Debian 12": {"vm": {"on": "2026-02-02", "by": ["also new", "new"]}}}}


def test_a_machine_is_in_the_column_of_its_system() -> None:
    assert support.system_of('ID=ubuntu\nVERSION_ID="24.04"\n') == "Ubuntu 24.04"
