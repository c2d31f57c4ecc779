"""What a role leaves behind on a machine, said once: what the action ``managed`` writes and its checks compare. Pure.

A role declares it as ``__<role>_managed`` in ``vars/main.yml``. Keys, each optional::

    packages: [name, ...]                         installed; with ``held: true`` also held at what is installed
    directories: [{path, owner, group, mode}]     owner and group are root, the mode is 0755, where they are left out
    files: [{path, template | file | content | fingerprints, owner, group, mode, secret, program, validate}]     mode
        0644; ``template`` is below templates/, ``file`` below files/; ``fingerprints``: it holds public keys, each one
        of these; ``program``: nobody reads its difference, as of each ``file``; ``validate``: the command that has to
        accept a new text first, as ``sshd -t -f %s``
    links: [{path, target}]
    absent: [path, ...]
    services: [{name, started_after: [path], units: [path], running, enabled, restarted_for: [check], restart}]
    containers: [{name, image, command, user, ..., replacement}]      as cluster_container takes them

``restarted_for`` are checks whose mending writes a file of ``started_after`` that is not among ``files``; ``restart``
and ``replacement`` say what those mean to the ones who work on the cluster.

Without ``template``, ``file`` and ``content`` a file has to be there, whatever is in it: a task of the role's makes it.
``content`` null, or ``known`` false beside a template: what it has to be is not known, because another machine did not
say; it is not written then. Any entry may have ``when``. A
text, a ``when`` and what else is not a name may rest on what the machine has answered (``cluster_machine``); which
paths, packages and services are asked about may not, because it is known before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from provision.model.places import Place

#: Kinds of things that can be declared, each with the key by which an entry is asked about.
KINDS = {
    "packages": "",
    "directories": "path",
    "files": "path",
    "links": "path",
    "absent": "",
    "services": "name",
    "containers": "name",
}

_SETTINGS = {"held"}


class ManagedError(ValueError):
    """The data of a role is not of the form above: a mistake of the role."""


@dataclass(frozen=True)
class Service:
    """A service as it should be; it is restarted where one of ``started_after`` is younger than its start.

    ``restarted_for`` are the ids of checks whose mending writes such a file, ``restart`` what a restart means.
    """

    name: str
    started_after: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    running: bool = True
    enabled: bool = True
    restarted_for: tuple[str, ...] = ()
    restart: str = ""


@dataclass(frozen=True)
class Container:
    """A container as it should be, each in the words of ``docker run``; all that is not named is not granted.

    ``image`` is by digest: empty where it is still to be built, None where the controller did not say. ``replacement``
    says what it means that another takes its place; ``started_after`` are files that it reads when it starts, and the
    role starts it anew where one of them is younger. ``stop_timeout``: seconds that
    it may take to end whoever stops it, 0 where the engine's own are enough. ``known`` false: what it has to be is not,
    because the controller did not say; what runs is then compared with nothing.
    """

    name: str
    image: str | None
    command: tuple[str, ...]
    user: str
    read_only: bool = True
    capabilities: tuple[str, ...] = ()
    security: tuple[str, ...] = ()
    tmpfs: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    ulimits: tuple[str, ...] = ()
    device_rules: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    pid: str = ""
    ipc: str = ""
    cgroupns: str = ""
    log_driver: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    replacement: str = ""
    stop_timeout: int = 0
    known: bool = True
    started_after: tuple[str, ...] = ()


@dataclass(frozen=True)
class Managed:
    """All that one role leaves behind on one machine."""

    packages: tuple[str, ...] = ()
    held: bool = False
    directories: tuple[Place, ...] = ()
    files: tuple[Place, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    services: tuple[Service, ...] = ()
    containers: tuple[Container, ...] = ()


def with_directories(files: Sequence[Place], absent: Sequence[str]) -> Managed:
    """Return what follows from a plan in place of a role's data: files, their directories, and what must not be."""
    above = dict.fromkeys(place.path.rpartition("/")[0] for place in files)
    return Managed(directories=tuple(map(Place, above)), files=tuple(files), absent=tuple(absent))


def questions(data: Mapping[str, Any], resolve: Callable[[Any], Any]) -> dict[str, list[str]]:
    """Return what a machine is asked about: ``paths``, ``packages``, ``services`` and ``containers``.

    ``contents`` are the paths of which the content counts: no other file is read, so that nothing of a key travels.

    ``data`` is the role's, its templates unresolved; ``resolve`` gives their values, before the machine has answered.

    Raises:
        ManagedError: the data has an unknown key.
    """
    if unknown := set(data) - set(KINDS) - _SETTINGS:
        raise ManagedError(f"unknown: {', '.join(sorted(unknown))}")
    asked: dict[str, list[str]] = {"paths": [], "contents": [], "packages": [], "services": [], "containers": []}
    for kind, key in KINDS.items():
        entries = data.get(kind) or ()
        if isinstance(entries, str):
            entries = resolve(entries)
        for entry in entries:
            place = "paths" if kind not in asked else kind
            asked[place].append(str(resolve(entry[key] if key else entry)))
            if kind == "files" and not {"template", "file", "content", "text", "fingerprints"}.isdisjoint(entry):
                asked["contents"].append(asked["paths"][-1])
            if kind == "services":
                watched = [*(entry.get("started_after") or ()), *(entry.get("units") or ())]
                asked["paths"] += [str(resolve(path)) for path in watched]
    return asked


def managed_from(data: Mapping[str, Any]) -> Managed:
    """Read a role's data, its templates resolved and each file's ``text`` rendered.

    Raises:
        ManagedError: it is not of the form that is described above.
    """
    try:
        return Managed(
            packages=tuple(_names(data.get("packages"))),
            held=bool(data.get("held", False)),
            directories=tuple(_place(entry, "0755") for entry in _entries(data.get("directories"))),
            files=tuple(_place(entry, "0644") for entry in _entries(data.get("files"))),
            links={str(entry["path"]): str(entry["target"]) for entry in _entries(data.get("links"))},
            absent=tuple(_names(data.get("absent"))),
            services=tuple(_service(entry) for entry in _entries(data.get("services"))),
            containers=tuple(container(entry) for entry in _entries(data.get("containers"))),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ManagedError(f"not as declared data has to be: {error!r}") from None


def _entries(entries: Sequence[Mapping[str, Any]] | None) -> list[Mapping[str, Any]]:
    return [entry for entry in entries or () if entry.get("when", True)]


def _names(entries: Sequence[str] | None) -> list[str]:
    return [str(entry) for entry in entries or ()]


def _place(entry: Mapping[str, Any], mode: str) -> Place:
    known = bool(entry.get("known", True)) and ("content" not in entry or entry["content"] is not None)
    text = entry.get("text") if known else None
    return Place(
        path=str(entry["path"]),
        owner=str(entry.get("owner", "root")),
        group=str(entry.get("group", "root")),
        mode=str(entry.get("mode", mode)).rjust(4, "0"),
        text=None if text is None else str(text),
        secret=bool(entry.get("secret", False)),
        known=known,
        program="file" in entry or bool(entry.get("program")) or str(text or "").startswith("#!"),
        fingerprints=tuple(_names(entry.get("fingerprints"))),
        validate=str(entry.get("validate") or ""),
    )


def _service(entry: Mapping[str, Any]) -> Service:
    return Service(
        name=str(entry["name"]),
        started_after=tuple(_names(entry.get("started_after"))),
        units=tuple(_names(entry.get("units"))),
        running=bool(entry.get("running", True)),
        enabled=bool(entry.get("enabled", True)),
        restarted_for=tuple(_names(entry.get("restarted_for"))),
        restart=str(entry.get("restart", "")),
    )


def container(entry: Mapping[str, Any]) -> Container:
    """Read one container's declaration.

    Raises:
        KeyError: it has no name, image, command or user.
    """
    image = entry["image"]

    def words(key: str) -> tuple[str, ...]:
        return tuple(_names(entry.get(key)))

    return Container(
        name=str(entry["name"]),
        image=None if image is None else str(image),
        command=tuple(_names(entry["command"])),
        user=str(entry["user"]),
        read_only=bool(entry.get("read_only", True)),
        labels={str(key): str(value) for key, value in (entry.get("labels") or {}).items()},
        capabilities=words("capabilities"),
        security=words("security"),
        tmpfs=words("tmpfs"),
        mounts=words("mounts"),
        ulimits=words("ulimits"),
        device_rules=words("device_rules"),
        gpus=words("gpus"),
        pid=str(entry.get("pid") or ""),
        ipc=str(entry.get("ipc") or ""),
        cgroupns=str(entry.get("cgroupns") or ""),
        log_driver=str(entry.get("log_driver") or ""),
        replacement=str(entry.get("replacement") or ""),
        stop_timeout=int(entry.get("stop_timeout") or 0),
        known=bool(entry.get("known", True)),
        started_after=words("started_after"),
    )
