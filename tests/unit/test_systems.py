"""One table of operating systems, and the tables of roles and of the driver that have to agree with it."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import yaml

from provision import content
from provision.model.systems import SERVED, SYSTEMS, known
from provision.nvidia import driver_packages

FAMILIES = {system.family for system in SYSTEMS}
EVERY = [(system.id, version) for system in SYSTEMS for version in system.versions]


def tables() -> dict[str, set[str]]:
    """Return the families that each table of a role has, by the table's name."""
    found: dict[str, set[str]] = {}
    for path in (content.ROOT / "roles").glob("*/vars/main.yml"):
        for name, value in (yaml.safe_load(path.read_text(encoding="utf-8")) or {}).items():
            if isinstance(value, dict) and set(value) & FAMILIES:
                found[name] = set(value)
    return found


def test_every_role_serves_the_systems_that_preflight_lets_through() -> None:
    served = {system.family for system in SERVED}

    assert len(tables()) > 5
    assert {name: has for name, has in tables().items() if not served <= has} == {}


def test_a_family_that_preflight_refuses_is_one_that_a_role_cannot_serve() -> None:
    for family in {system.family for system in SYSTEMS if system.lacks}:
        assert any(family not in has for has in tables().values()), family


@pytest.mark.parametrize(("name", "version"), EVERY)
def test_the_drivers_table_knows_the_same_systems(name: str, version: str) -> None:
    system = driver_packages.system(name, version)

    assert system is not None
    assert system.family == getattr(known(name, version), "family", "")


@pytest.mark.parametrize(
    ("name", "version"), [("debian", "11"), ("debian", "120"), ("ubuntu", "20.04"), ("sles", "15")]
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

    def columns(systems: Any) -> set[str]:
        each = [(system.id, version) for system in systems for version in system.versions]
        return {support.system_of(f'ID="{name}"\nVERSION_ID="{version}"\n') for name, version in each}

    assert columns(SERVED) <= set(support.matrix()["systems"]) <= columns(SYSTEMS)
