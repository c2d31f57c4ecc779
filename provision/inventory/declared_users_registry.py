"""The registry that users push images of theirs to, as it is declared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.errors import ClusterctlError
from provision.inventory.plain import templated
from provision.model.numbers import whole

#: Ports of the controller, with their defaults; no two of them are one.
PORTS = {
    "container_images_port": 5000,
    "container_images_push_port": 5001,
    "container_images_mirror_port": 5002,
    "container_images_users_port": 5003,
    "container_images_users_auth_port": 5004,
}
#: Numbers of GB, with their defaults.
SIZES = {"container_images_users_size": 50, "container_images_users_free": 20, "container_images_users_layer": 20}

#: What switches it on, and how.
SWITCH = "container_images_users"
ON = ("true", "yes", "on", "1", "y", "t")


def require_users_registry(site: Mapping[str, Any]) -> None:
    """Refuse a registry of users' images that could not be: beside a site's own, on another's port, or without room.

    ``site`` has the controller's variables. A value with a template only the run knows.

    Raises:
        ClusterctlError: it names the variable.
    """
    if str(site.get(SWITCH, "")).strip().lower() not in ON:
        return
    if site.get("container_images_registry"):
        raise ClusterctlError(
            f"{SWITCH} is on, and container_images_registry names a site's own registry, to which users push",
            fix=f"leave {SWITCH} out; a project for users in that registry is theirs: docker login, docker push",
            said=(SWITCH, ""),
        )
    for name, usual in SIZES.items():
        _number(site, name, usual, 1_000_000, "a whole number of GB, from 1 on")
    seen: dict[int, str] = {}
    for name, usual in PORTS.items():
        port = _number(site, name, usual, 65535, "a port, from 1 to 65535")
        if port in seen:
            # The one that is declared.
            mine, other = (name, seen[port]) if name in site else (seen[port], name)
            raise _refused(mine, port, f"another port than {other}'s", PORTS[mine])
        if port is not None:
            seen[port] = name


def _number(site: Mapping[str, Any], name: str, usual: int, most: int, wanted: str) -> int | None:
    """Return a number that is declared, else the usual one; None where only the run knows it."""
    value = site.get(name, usual)
    if templated(value):
        return None
    try:
        number = whole(value)
    except ValueError:
        number = 0
    if not 1 <= number <= most:
        raise _refused(name, value, wanted, usual)
    return number


def _refused(name: str, value: object, wanted: str, usual: int) -> ClusterctlError:
    return ClusterctlError(
        f"{name} is {value!r}: it must be {wanted}", fix=f"leave it out for {usual}", said=(name, "")
    )
