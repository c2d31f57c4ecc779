"""The registry that users push to, as it is declared: what could not be is refused, with the variable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from managed_things import on_machines
from test_mutation_table import INVENTORY

from provision.errors import ClusterctlError
from provision.inventory.declared_users_registry import require_users_registry

ON = {"container_images_users": "true"}


@pytest.mark.parametrize(
    "site",
    [
        {},
        ON,
        {"container_images_users": True, "container_images_users_size": "500", "container_images_registry": ""},
        ON | {"container_images_users_port": "{{ port }}", "container_images_users_auth_port": 8443},
        # Nobody asks what is switched off.
        {"container_images_users": "false", "container_images_registry": "harbor.site.example/c"},
        {"container_images_users": False, "container_images_users_port": 0},
    ],
)
def test_what_can_be_is_not_refused(site: dict[str, Any]) -> None:
    require_users_registry(site)


@pytest.mark.parametrize(
    ("site", "variable", "why"),
    [
        (
            {"container_images_registry": "harbor.site.example/c"},
            "container_images_users",
            "names a site's own registry",
        ),
        ({"container_images_users_size": 0}, "container_images_users_size", "a whole number of GB, from 1 on"),
        ({"container_images_users_free": "ten"}, "container_images_users_free", "a whole number of GB, from 1 on"),
        ({"container_images_users_layer": -1}, "container_images_users_layer", "a whole number of GB, from 1 on"),
        ({"container_images_users_port": 65536}, "container_images_users_port", "a port, from 1 to 65535"),
        (
            {"container_images_users_auth_port": 5000},
            "container_images_users_auth_port",
            "than container_images_port",
        ),
        ({"container_images_users_port": "5004"}, "container_images_users_port", "container_images_users_auth_port"),
        ({"container_images_port": 5003}, "container_images_port", "another port than container_images_users_port"),
    ],
)
def test_what_cannot_be_is_refused_with_the_variable(site: dict[str, Any], variable: str, why: str) -> None:
    with pytest.raises(ClusterctlError) as no:
        require_users_registry(ON | site)

    assert why in str(no.value)
    assert no.value.said == (variable, "")
    assert no.value.fix


def test_what_is_switched_off_again_leaves_nothing_but_the_users_images(tmp_path: Path) -> None:
    """Neither units, programs nor trust; their certificate is the other registries', too."""
    (inventory := tmp_path / "inventory.ini").write_text(INVENTORY)
    for _, constants, templar in on_machines(inventory):
        found: dict[bool, dict[str, set[str]]] = {}
        for switch in (True, False):
            templar.available_variables = {**templar.available_variables, "container_images_users": switch}
            data = templar.template(constants["__container_images_managed"])
            paths = {entry["path"] for kind in ("directories", "files") for entry in data[kind]}
            units = {path for service in data["services"] for path in service["units"]}
            found[switch] = {"there": paths | units, "absent": set(data["absent"])}
        more = found[True]["there"] - found[False]["there"] - {"/etc/clusterctl"}  # of other roles, too

        assert "/etc/clusterctl/users-registry" in more
        assert "/etc/docker/certs.d/head:5003" in more
        here = templar.template(constants["__container_images_builds"])
        assert ("/etc/systemd/system/docker-registry-tokens.service" in more) is here
        gone = found[False]["absent"]
        assert [path for path in more if not {path, path.rpartition("/")[0]} & gone] == []
        assert not found[True]["absent"] & found[True]["there"]
