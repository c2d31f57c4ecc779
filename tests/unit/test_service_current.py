"""When a service is started anew, and when systemd reads its units again."""

from __future__ import annotations

import pytest
from machines import plugin

module = plugin("plugins/modules/service_current.py")

RUNNING = {
    "LoadState": "loaded",
    "ActiveState": "active",
    "ActiveEnterTimestampMonotonic": "100000000",  # 100 s after the start of the machine
    "UnitFileState": "enabled",
    "NeedDaemonReload": "no",
}


@pytest.mark.parametrize(
    ("ages", "action"),
    [([], "nothing"), ([None], "nothing"), ([901.0], "nothing"), ([899.0], "restart"), ([901.0, 5.0], "restart")],
)
def test_a_service_is_restarted_where_a_file_is_younger_than_it(ages: list[float | None], action: str) -> None:
    assert module.needed(RUNNING, ages, 1000.0) == action


def test_a_service_that_does_not_run_is_started() -> None:
    assert module.needed({**RUNNING, "ActiveState": "failed"}, [], 1000.0) == "start"


@pytest.mark.parametrize(
    ("found", "ages", "again"),
    [
        ({}, [], False),
        ({}, [None], False),
        ({}, [800.0], False),
        ({}, [3.0], True),
        ({"NeedDaemonReload": "yes"}, [], True),
        ({"LoadState": "not-found"}, [], True),
    ],
    ids=["nothing new", "no such file", "older file", "younger file", "systemd says so", "unknown service"],
)
def test_systemd_reads_units_again_where_one_is_younger_than_its_last_reading(
    found: dict[str, str], ages: list[float | None], again: bool
) -> None:
    assert module.to_reload({**RUNNING, **found}, ages, 300.0, 1000.0) is again
