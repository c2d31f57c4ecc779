"""Docker's daemon.json: what the site's file says, what we need, what the inventory declares. Pure.

A key is ours that we have written: a file beside it names them (``keys``), so that one which is no longer wanted goes
away, and one of the site's never does.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from provision.model.addresses import networks_without

FILE = "/etc/docker/daemon.json"
#: Where containers and images are unless somebody says otherwise.
DATA_ROOT = "/var/lib/docker"

#: The engine's releases that know CDI, and that have it switched on: Docker's release notes.
CDI_SINCE, CDI_BY_DEFAULT_SINCE = (25, 0), (28, 3)

#: These hold settings that do not depend on each other, so the site's and ours can stand side by side.
_MERGED = ("features", "runtimes", "default-ulimits")

#: All that earlier releases wrote, and nobody else beside it: such a file without a record is ours.
_EARLIER = {"live-restore", "log-driver", "log-opts"}

#: From where Docker takes networks by itself (moby, daemon/libnetwork/ipamutils).
POOLS = (
    *({"base": f"172.{second}.0.0/16", "size": 16} for second in (17, 18, 19)),
    *({"base": f"172.{second}.0.0/14", "size": 16} for second in (20, 24, 28)),
    {"base": "192.168.0.0/16", "size": 20},
)
#: Who says one of these has chosen Docker's networks, or where containers' output goes.
_NETWORKS = ("bip", "bridge", "default-address-pools")
_LOGS = ("log-driver", "log-opts")

#: Options of dockerd whose key is neither their name nor that with an s. One option for many runtimes is no conflict.
_KEYS = {
    "H": "hosts", "s": "storage-driver", "g": "data-root", "graph": "data-root", "b": "bridge", "D": "debug",
    "l": "log-level", "G": "group", "p": "pidfile", "insecure-registry": "insecure-registries",
    "registry-mirror": "registry-mirrors", "cdi-spec-dir": "cdi-spec-dirs",
}  # fmt: skip

#: A setting's place: its key, and its name in one of the maps that are merged.
_Path = tuple[str, ...]
_CDI, _MEMLOCK = ("features", "cdi"), ("default-ulimits", "memlock")


@dataclass(frozen=True)
class Daemon:
    """All of daemon.json, and the keys in it that are ours; whether the file is to be written for that."""

    wanted: Mapping[str, Any]
    ours: tuple[str, ...]
    write: bool


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


def packages(family: Mapping[str, list[str]], there: Collection[str], *, asked: bool, engine: bool) -> list[str]:
    """Return the packages of a machine: of ``family``, ``engine`` where it has none, and what goes ``beside`` any.

    ``asked``: the machine has said whether it has an ``engine``, and which packages are ``there``; else all are named
    about which it is asked. Docker's containerd stands in the way of the distribution's, and Kubernetes may run on it.
    """
    if not asked:
        return list(dict.fromkeys([*family["engine"], *family["dockers"], *family["beside"]]))
    if engine:
        # All parts of the distribution's: installed without what it recommends, it lacks docker itself.
        return [*(family["engine"] if set(family["engine"]) & set(there) else []), *family["beside"]]
    return [*(family["dockers"] if "containerd.io" in there else family["engine"]), *family["beside"]]


def was_configured(machine: Mapping[str, Any]) -> bool:
    """Return whether we have configured this engine before, so that images there may be ours."""
    return machine.get("keys") is not None or bool(_recorded(machine.get("daemon") or {}, None, {}))


def flagged(flags: Collection[str]) -> set[str]:
    """Return the keys that dockerd refuses in its file, because these options of its command line say them already."""
    return {form for flag in flags for form in ({_KEYS[flag]} if flag in _KEYS else {flag, f"{flag}s"})} - {"runtimes"}


def daemon(
    machine: Mapping[str, Any],
    ours: Mapping[str, Any],
    declared: Mapping[str, Any],
    gpus: bool = False,
    memlock: int = 0,
    addresses: Collection[str] = (),
) -> Daemon:
    """Return daemon.json as it should be on a machine that answers so (provision.model.container_facts.EngineFacts).

    ``ours`` are the role's own options, ``declared`` those of the inventory, of which null removes a key. ``memlock``
    in bytes, -1 for no limit; 0 sets none. ``addresses`` are the cluster's, of which no network may take one.
    What the site's file says stays, but for GPUs and locked memory, of which no container gets less.
    """
    there = _settings(machine.get("daemon") or {})
    recorded = _recorded(machine.get("daemon") or {}, machine.get("keys"), declared)
    sites = {path: value for path, value in there.items() if ".".join(path) not in recorded}
    by_flag = flagged(machine.get("flags") or ())
    said = {path[0] for path in sites} | declared.keys() | by_flag
    default, over = _settings(ours), dict[_Path, Any]()
    if not said.isdisjoint(_LOGS):
        # Options of one log driver are an error to another.
        default = {path: value for path, value in default.items() if path[0] not in _LOGS}
    if said.isdisjoint(_NETWORKS) and (pools := networks_without(POOLS, addresses)) != list(POOLS):
        default["default-address-pools",] = pools
    cdi = how_cdi(machine["version"]) if gpus else ""
    if cdi == "runtime":
        default["runtimes", "nvidia"] = {"path": "nvidia-container-runtime"}
    elif cdi == "feature" or (cdi and _CDI in there):
        over[_CDI] = True
    # A machine that is itself a container: no container on it could start with a limit above its own.
    if memlock and machine["raises_limits"] and not _limited(sites.get(_MEMLOCK), memlock):
        over[_MEMLOCK] = {"Name": "memlock", "Hard": memlock, "Soft": memlock}
    result = _without(default, by_flag) | sites | _without(over, by_flag)
    for path, value in _settings(declared).items():
        result = {one: kept for one, kept in result.items() if one[: len(path)] != path} | {path: value}
    result = {path: value for path, value in result.items() if value is not None}
    return Daemon(
        wanted=_whole(result),
        ours=tuple(sorted(".".join(path) for path, value in result.items() if sites.get(path) != value)),
        # One that says all this in a form of its own stays as it is.
        write=result != there or bool(machine.get("formatted")) or not there,
    )


def _recorded(there: Mapping[str, Any], keys: Collection[str] | None, declared: Mapping[str, Any]) -> Collection[str]:
    """Return the keys of the file that are ours."""
    if keys is not None:
        return keys
    earlier = _EARLIER <= there.keys() <= {*_EARLIER, *_MERGED, *declared} and (
        there["log-driver"] == "json-file"
        and isinstance(there["log-opts"], Mapping)
        and there["log-opts"].keys() == {"max-file", "max-size"}
    )
    return {".".join(path) for path in _settings(there)} if earlier else ()


def _limited(site: Any, memlock: int) -> bool:
    """Return whether a limit of the site's is this one; its name may be left out."""
    return isinstance(site, Mapping) and site.get("Hard") == site.get("Soft") == memlock


def _without(settings: Mapping[_Path, Any], keys: Collection[str]) -> dict[_Path, Any]:
    return {path: value for path, value in settings.items() if path[0] not in keys}


def _settings(options: Mapping[str, Any]) -> dict[_Path, Any]:
    """Return each setting by its place."""
    found: dict[_Path, Any] = {}
    for key, value in options.items():
        if key in _MERGED and isinstance(value, Mapping):
            found.update({(key, str(name)): one for name, one in value.items()})
        else:
            found[key,] = value
    return found


def _whole(settings: Mapping[_Path, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for (key, *name), value in settings.items():
        if name:
            result[key] = {**(there if isinstance(there := result.get(key), Mapping) else {}), name[0]: value}
        else:
            result[key] = value
    return result
