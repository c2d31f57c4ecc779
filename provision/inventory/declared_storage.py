"""What the inventory says of shared file systems, checked before anything is mounted over anything."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any

from provision import hostlist
from provision.errors import did_you_mean
from provision.inventory.declared_directories import require_directory
from provision.inventory.declared_mounts_together import machines_of, refusal, require_together
from provision.inventory.loader import GROUPS
from provision.model.mounts import (
    FSTYPES,
    LOCAL,
    NETWORK,
    NFS_OPTIONS,
    PRESENT,
    Mount,
)

#: Where jobs are started and run, and where people log in.
_USERS = ("slurm_controller", "slurm_compute", "slurm_login")
_KEYS = ("path", "source", "fstype", "options", "groups", "read_only", "state")
_EXAMPLE = "{path: /home, fstype: nfs4, source: 'storage1:/srv/home'}"

# No blank, quote, colon or comma: the path stands in unit files, exports and the container engine's words.
_OPTION = re.compile(r"[A-Za-z0-9_.:=/%+@-]{1,200}")
_NFS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_][A-Za-z0-9_.-]*):(/[A-Za-z0-9._+@/-]*)")
_LUSTRE = re.compile(r"[A-Za-z0-9_.:,@-]+:/[A-Za-z0-9._+@/-]+")


def mounts_from(value: Any, groups: Mapping[str, Sequence[str]]) -> tuple[Mount, ...]:
    """Return the file systems that the inventory declares; ``groups`` are its groups with their hosts.

    Raises:
        ClusterctlError: one is not complete, would hide what a machine or a job needs, or contradicts another.
    """
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
        raise refusal(
            f"cluster_mounts is {value!r}: it must be a list of mappings, one for each file system",
            f"write it in group_vars/all.yml, as '- {_EXAMPLE}'",
            ("cluster_mounts", ""),
        )
    mounts = tuple(_mount(item, groups) for item in value if not _absent(item))
    require_together(mounts, groups)
    return mounts


def unmounted_from(value: Any, groups: Mapping[str, Sequence[str]]) -> tuple[dict[str, Any], ...]:
    """Return what is to be unmounted: each ``path`` and the ``hosts`` that are not to have it.

    Raises:
        ClusterctlError: a machine that is to have it is among them, or the list is none that ``mounts_from`` takes.
    """
    mounts = mounts_from(value, groups)
    found: list[dict[str, Any]] = []
    for item in value or ():
        if not _absent(item):
            continue
        _require_keys(item)
        path = require_directory("cluster_mounts: path", item.get("path"))
        hosts = machines_of(_groups(path, item.get("groups"), groups), groups)
        for mount in mounts:
            if mount.path == path and (both := hosts & machines_of(mount.groups, groups)):
                raise refusal(
                    f"cluster_mounts: {hostlist.fold(both)} would have {path} and not have it",
                    "leave one of the two entries, or give them groups that no machine is in both of",
                    ("path", path),
                )
        found.append({"path": path, "hosts": sorted(hosts)})
    return tuple(found)


def _absent(item: Mapping[str, Any]) -> bool:
    state = item.get("state", "present")
    if state not in ("present", "absent"):
        raise refusal(
            f"cluster_mounts: state of {item.get('path')} is {str(state)[:40]!r}",
            "it is present, or absent to have it unmounted",
            ("state", str(state)),
        )
    return bool(state == "absent")


def _require_keys(declared: Mapping[str, Any]) -> None:
    for key in declared:
        if key not in _KEYS:
            raise refusal(
                f"cluster_mounts: there is no key {str(key)[:70]!r}",
                did_you_mean(str(key), _KEYS, f"use {', '.join(_KEYS)}"),
                (str(key), ""),
            )


def _mount(declared: Mapping[str, Any], groups: Mapping[str, Sequence[str]]) -> Mount:
    _require_keys(declared)
    path = require_directory("cluster_mounts: path", declared.get("path"))
    fstype = declared.get("fstype")
    if fstype not in FSTYPES:
        raise refusal(
            f"cluster_mounts: fstype of {path} is {fstype!r}: it must be {', '.join(FSTYPES[:-1])} or {FSTYPES[-1]}",
            did_you_mean(str(fstype), FSTYPES, "see mount(8); present is what the site mounts itself"),
            ("fstype", str(fstype)) if fstype is not None else ("path", path),
        )
    options = _options(path, str(fstype), declared.get("options"))
    read_only = _yes(path, declared.get("read_only", False)) or "ro" in options
    if read_only and "rw" in options:
        problem = f"cluster_mounts: {path} is read_only, and its options have rw"
        raise refusal(problem, "take rw out of the options", ("path", path))
    return Mount(
        path=path,
        fstype=str(fstype),
        source=_source(path, str(fstype), declared.get("source")),
        options=options,
        groups=_groups(path, declared.get("groups"), groups),
        read_only=read_only,
    )


def _source(path: str, fstype: str, value: Any) -> str:
    pattern, example = (_LUSTRE, "10.0.0.5@o2ib:/scratch") if fstype == "lustre" else (_NFS, "storage1:/srv/home")
    if value is None and fstype in (PRESENT, LOCAL):
        return ""
    if fstype == LOCAL:
        raise refusal(
            f"cluster_mounts: {path} is a directory of the machine's own and has the source {value!r}",
            "remove source, or say which fstype it is",
            ("source", str(value)),
        )
    if fstype in NETWORK and (url := re.fullmatch(r"(?:nfs4?|lustre)://([^/]+?)(?::\d+)?(/.*)?", str(value))):
        raise refusal(
            f"cluster_mounts: source of {path} is {value!r}, which is a URL",
            f"write it as mount(8) does: {url[1]}:{url[2] or '/srv'}"[:200],
            ("source", str(value)),
        )
    if value is None or (fstype in NETWORK and not (isinstance(value, str) and pattern.fullmatch(value))):
        raise refusal(
            f"cluster_mounts: source of {path} is {value!r}: {fstype} is mounted from a server, as {example}",
            "name the server and its directory",
            ("source", str(value)) if value is not None else ("path", path),
        )
    if fstype in NETWORK and "/../" in f"{value}/":
        raise refusal(
            f"cluster_mounts: source of {path} is {value!r}: it has '..'",
            "write the directory plainly",
            ("source", value),
        )
    if fstype in ("nfs", "nfs4") and _no_address(server := str(value).partition(":/")[0].strip("[]")):
        raise refusal(
            f"cluster_mounts: source of {path} is {value!r}: {server} is neither an address nor a name",
            "name the server and its directory",
            ("source", str(value)),
        )
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_./:,@\[\]-]{1,255}", value):
        raise refusal(
            f"cluster_mounts: source of {path} is {value!r}: no file system is called that",
            "write it as findmnt prints it, or leave it out",
            ("source", str(value)),
        )
    return str(value)


def _no_address(server: str) -> bool:
    """Tell whether a server's name is meant as an address, and is none."""
    try:
        return bool(re.fullmatch(r"[0-9.]+|.*:.*", server)) and ipaddress.ip_address(server).is_unspecified
    except ValueError:
        return True


def _options(path: str, fstype: str, value: Any) -> tuple[str, ...]:
    if value is None:
        return NFS_OPTIONS if fstype in ("nfs", "nfs4") else ()
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(
        isinstance(word, str) and _OPTION.fullmatch(word.strip()) for word in words
    ):
        raise refusal(
            f"cluster_mounts: options of {path} are {value!r}: they must be words of mount(8), separated by commas",
            "write them as options: 'ro,nconnect=8'",
            ("options", ""),
        )
    if fstype not in NETWORK:
        raise refusal(
            f"cluster_mounts: {path} is {fstype} and has options, but nothing is mounted there for it",
            "remove options; where jobs may not write, read_only: true",
            ("options", ""),
        )
    return tuple(str(word).strip() for word in words)


def _groups(path: str, value: Any, groups: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    if value is None:
        return _USERS
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
        raise refusal(
            f"cluster_mounts: groups of {path} are {value!r}: they must be groups of the inventory",
            "write them as groups: [slurm_compute]",
            ("groups", ""),
        )
    words = tuple(str(name).strip() for name in names)
    for name in words:
        if name not in groups and name not in GROUPS:
            raise refusal(
                f"cluster_mounts: {path} is for group {name[:70]!r}, which the inventory does not have",
                did_you_mean(name, groups, f"write its machines under [{name}]"),
                ("groups", ""),
            )
    return words


def _yes(path: str, value: Any) -> bool:
    word = str(value).strip().lower()
    if word not in ("true", "yes", "false", "no"):
        raise refusal(
            f"cluster_mounts: read_only of {path} is {value!r}: it must be true or false",
            "write it as read_only: true",
            ("read_only", str(value)),
        )
    return word in ("true", "yes")
