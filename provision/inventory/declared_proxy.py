"""The proxy by which machines reach the world: what the inventory may say of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from provision.errors import ClusterctlError

_KEYS = ("http", "https", "no_proxy")
#: No character that a shell, systemd, apt or an environment file would read as anything but itself.
_ADDRESS = re.compile(
    r"https?://(?:[\w.%~-]+(?::[\w.%~!*+-]*)?@)?(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?/?"
)
_DIRECT = re.compile(r"[A-Za-z0-9.*:/_-]+")


def require_proxy(hostvars: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse a ``cluster_proxy`` that is none, whichever machines have it.

    Raises:
        ClusterctlError: it names the key; an address is not shown, because a password may be in it.
    """
    for variables in hostvars.values():
        value = variables.get("cluster_proxy")
        if value in (None, {}):
            continue
        if not isinstance(value, Mapping) or not value.keys() <= set(_KEYS) or "http" not in value:
            raise _refused(f"it must be a mapping of http, and where needed {' and '.join(_KEYS[1:])}")
        for key in ("http", "https"):
            if key in value and not _ADDRESS.fullmatch(str(value[key])):
                raise _refused(f"{key} is no address such as http://proxy.site:3128; code odd characters as %40")
        direct = value.get("no_proxy") or []
        for name in re.split(r"[,\s]+", direct) if isinstance(direct, str) else direct:
            if name and not _DIRECT.fullmatch(str(name)):
                raise _refused(f"no_proxy: {name!r} is no name, domain (.site) or address")


def _refused(problem: str) -> ClusterctlError:
    return ClusterctlError(
        f"cluster_proxy: {problem}",
        fix="write cluster_proxy: {http: 'http://proxy.site:3128', no_proxy: '.site,10.0.0.0/8'}",
        said=("cluster_proxy", ""),
    )
