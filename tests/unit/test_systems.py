"""One table of operating systems, and that of the driver, which has to agree with it."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from provision import content
from provision.model.systems import SYSTEMS, known
from provision.nvidia import driver_packages

EVERY = [(system.id, version) for system in SYSTEMS for version in system.versions]


@pytest.mark.parametrize(("name", "version"), EVERY)
def test_the_drivers_table_knows_the_same_systems(name: str, version: str) -> None:
    assert known(name, version) is not None
    assert driver_packages.system(name, version) is not None


@pytest.mark.parametrize(
    ("name", "version"), [("debian", "11"), ("debian", "120"), ("ubuntu", "20.04"), ("rhel", "9.4"), ("sles", "15")]
)
def test_the_drivers_table_knows_no_others(name: str, version: str) -> None:
    assert known(name, version) is None
    assert driver_packages.system(name, version) is None


def test_the_readmes_table_has_these_systems() -> None:
    spec = importlib.util.spec_from_file_location("support", content.ROOT / "tests/support/support.py")
    assert spec is not None
    assert spec.loader is not None
    support: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(support)

    columns = {support.system_of(f'ID="{name}"\nVERSION_ID="{version}"\n') for name, version in EVERY}

    assert columns == set(support.matrix()["systems"])
