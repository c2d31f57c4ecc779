"""When a service is started anew, and when systemd reads its units again."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import plugin, run_module

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


def test_a_masked_service_is_unmasked_started_and_enabled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A systemd of one service: what it was told is in a file.
    stand_in = """#!/bin/sh
cd "${0%/*}"
case "$*" in
"show --property=UnitsLoad"*) echo 0 ;;
show*)
    [ -e unmasked ] && load=loaded file=disabled || load=masked file=masked
    printf 'LoadState=%s\\nUnitFileState=%s\\nActiveState=inactive\\nNeedDaemonReload=no\\n' $load $file
    echo ActiveEnterTimestampMonotonic=0 ;;
*) echo "$*" >>said; [ "$1" != unmask ] || touch unmasked ;;
esac
"""
    (tmp_path / "systemctl").write_text(stand_in)
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    found = run_module("plugins/modules/service_current.py", {"name": "munge"})

    assert found["changed"]
    assert (tmp_path / "said").read_text().splitlines() == [
        "unmask munge.service",
        "enable munge.service",
        "start munge.service",
    ]


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
