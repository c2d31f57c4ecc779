"""Docker's daemon.json: what the role sets, what release and machine need, what the site says. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

#: The engine's releases that know CDI, and that have it switched on: Docker's release notes.
CDI_SINCE, CDI_BY_DEFAULT_SINCE = (25, 0), (28, 3)

#: These hold settings that do not depend on each other, so the site's and ours can stand side by side.
_MERGED = ("features", "runtimes", "default-ulimits")


def how_cdi(version: str) -> str:
    """Return how a release of the engine takes ``--device nvidia.com/gpu=...``; empty where there is none.

    ``engine``: it does. ``feature``: it does when told to. ``runtime``: it does not, and NVIDIA's runtime, which reads
    the same descriptions, takes its place.
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    if not found:
        return ""
    release = (int(found[1]), int(found[2]))
    if release >= CDI_BY_DEFAULT_SINCE:
        return "engine"
    return "feature" if release >= CDI_SINCE else "runtime"


def options(ours: Mapping[str, Any], site: Mapping[str, Any], cdi: str = "", memlock: int = 0) -> dict[str, Any]:
    """Return all of daemon.json. ``memlock`` in bytes, -1 for no limit; 0 sets none. Null of the site removes a key."""
    result = dict(ours)
    if cdi == "feature":
        result["features"] = {"cdi": True}
    elif cdi == "runtime":
        result["runtimes"] = {"nvidia": {"path": "nvidia-container-runtime"}}
    if memlock:
        result["default-ulimits"] = {"memlock": {"Name": "memlock", "Hard": memlock, "Soft": memlock}}
    for key, value in site.items():
        both = key in _MERGED and isinstance(value, Mapping) and key in result
        result[key] = {**result[key], **value} if both else value
    return {key: value for key, value in result.items() if value is not None}
