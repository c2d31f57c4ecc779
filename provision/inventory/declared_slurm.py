"""What the inventory says in Slurm's own words, checked before it may stand in Slurm's files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from provision import hostlist
from provision.errors import ClusterctlError
from provision.inventory.declared_slurm_files import lines_from
from provision.model.cluster import Cluster, version_from
from provision.model.versions import SLURM_VERSION
from provision.slurm import parameters
from provision.slurm.names import (
    LINES,
    OWNED_CGROUP_PARAMETERS,
    OWNED_DATABASE_PARAMETERS,
    OWNED_NODE_PARAMETERS,
    OWNED_PARAMETERS,
)
from provision.slurm.ports import shared

_KEY = re.compile(r"[A-Z][A-Za-z0-9]{1,63}")
# No blank, quote, "#", backslash or line break: the value could end early or begin another parameter.
_VALUE = re.compile(r"[A-Za-z0-9_.,:;=+*/%@()\[\]|&!~^-]{1,4096}")
#: Where the machine's munged listens.
_SOCKETS = ("/run/munge/munge.socket.2", "/var/run/munge/munge.socket.2")
#: What salloc expands where a user calls it, and Slurm's daemons leave as it is: $SHELL.
_EXPANDED = ("interactivestepoptions",)

#: Parameters that name plugins for control groups.
_OF_CGROUPS = ("taskplugin", "proctracktype", "jobacctgathertype")

#: A place in the inventory: the variable, the entry's number where that is a list, and its key.
Entry = tuple[str, int | None, str]
#: Parameters of slurm.conf by name; None removes one of ours, a tuple is a line for each.
Parameters = Mapping[str, str | tuple[str, ...] | None]


def release_from(value: Any) -> str:
    """Return Slurm's release, the one that is installed where the inventory names none.

    Raises:
        ClusterctlError: there is no such release.
    """
    try:
        return version_from(SLURM_VERSION if value is None else value)
    except ValueError as error:
        raise ClusterctlError(
            f"slurm_version is {value!r}: {error}", fix='set it as slurm_version: "24.11"', said=("slurm_version", "")
        ) from None


def slurm_value(where: str, name: str, value: Any, entry: Entry, *, blanks: bool = False) -> str:
    """Return a parameter's value as it stands in Slurm's files. A list is joined with commas, true is YES.

    With ``blanks``, words may be separated by one: Slurm reads to the end of quotes, in which they then stand.

    Raises:
        ClusterctlError: it could not stand there: it has blanks, quotes, "#" or control characters.
    """
    if isinstance(value, bool):
        return "YES" if value else "NO"
    if isinstance(value, list | tuple) and value:
        return ",".join(slurm_value(where, name, item, entry) for item in value)
    text = str(value).strip() if isinstance(value, str | int | float) else ""
    words = text.split(" ") if blanks else [text]
    plain = text.replace("$", "") if name.lower() in _EXPANDED else text
    if not all(_VALUE.fullmatch(word) for word in (plain.split(" ") if blanks else [plain])):
        raise ClusterctlError(
            f"{where}: {name} is {value!r}: Slurm's files cannot hold that as a value",
            fix="use letters, digits and . , : ; = + * / % @ ( ) [ ] | & ! ~ ^ - _; no "
            f"{'' if blanks else 'blanks, '}quotes or '#'",
            entry=entry,
        )
    return f'"{text}"' if len(words) > 1 else text


def parameters_from(value: Any, release: str) -> dict[str, str | tuple[str, ...] | None]:
    """Return the site's parameters of slurm.conf by their names; None removes one of ours.

    Those of which the file has a line for each value (:data:`provision.slurm.names.LINES`) are tuples.

    Raises:
        ClusterctlError: one is not the site's to set, is none that this release of Slurm reads, or has a value that it
            does not take.
    """
    lines = {name.lower(): name for name in LINES}
    result: dict[str, str | tuple[str, ...] | None] = {}
    example = "MessageTimeout: 60"
    for name, item in _named("slurm.conf", "slurm_conf_parameters", value, OWNED_PARAMETERS, example, release):
        own = lines.get(name.lower())
        if item is None or own is None:
            result[name] = None if item is None else _text("slurm.conf", "slurm_conf_parameters", name, item)
        else:
            programs = lines_from(own, name, item, release)
            result[own] = tuple(_text("slurm.conf", "slurm_conf_parameters", name, program) for program in programs)
    return result


def require_ports(declared: Parameters, *, alone: bool, database: bool) -> None:
    """Refuse ports on which two daemons of one machine, or srun and a daemon, would listen."""
    given = {name: item for name, item in declared.items() if not isinstance(item, tuple)}
    if wrong := shared(given, alone=alone, database=database):
        spelt = next(name for name in declared if name.lower() == wrong[0].lower())
        raise ClusterctlError(
            f"slurm_conf_parameters: {wrong[1]}", fix=wrong[2], entry=("slurm_conf_parameters", None, spelt)
        )


def require_old_control_groups(cluster: Cluster) -> None:
    """Refuse plugins with which slurmd would not start on a node that has the old control groups."""
    for name in cluster.slurm_parameters if cluster.cgroup_v1 else ():
        words = str(cluster.slurm_parameters[name] or "").lower().split(",")
        if name.lower() in _OF_CGROUPS and (found := next((word for word in words if word.endswith("/cgroup")), "")):
            raise ClusterctlError(
                f"slurm_conf_parameters: {name} has {found}, and {hostlist.fold(cluster.cgroup_v1)} has cgroup v1, "
                "with which slurmd would not start",
                fix=f"remove {name}: then it is what nodes of both kinds can use",
                entry=("slurm_conf_parameters", None, name),
            )


def cgroup_parameters_from(value: Any, release: str) -> dict[str, str | None]:
    """Return the site's parameters of cgroup.conf by their names; None removes one of ours.

    Raises:
        ClusterctlError: as :func:`parameters_from`.
    """
    where, owned = "slurm_conf_cgroup_parameters", OWNED_CGROUP_PARAMETERS
    return {
        name: None if item is None else _text("cgroup.conf", where, name, item)
        for name, item in _named("cgroup.conf", where, value, owned, "ConstrainSwapSpace: false", release)
    }


def node_parameters_from(value: Any, release: str) -> tuple[tuple[str, str], ...]:
    """Return what a NodeName line has beside what is computed, in Slurm's spelling and in the order of the names.

    Raises:
        ClusterctlError: as :func:`parameters_from`.
    """
    where, spelt = "node_parameters", {key: one.name for key, one in parameters.known("node").items()}
    given = _named("node", where, value, OWNED_NODE_PARAMETERS, "CoreSpecCount: 2", release)
    found = {
        spelt.get(name.lower(), name): _text("node", where, name, item) for name, item in given if item is not None
    }
    return tuple(sorted(found.items()))


def require_database_parameters(value: Any, release: str) -> None:
    """Refuse parameters of slurmdbd.conf that a site may not set, or that Slurm does not take.

    Raises:
        ClusterctlError: as :func:`parameters_from`.
    """
    where, owned = "slurm_database_parameters", OWNED_DATABASE_PARAMETERS
    for name, item in _named("slurmdbd.conf", where, value, owned, "PurgeJobAfter: 24months", release):
        if item is not None:
            _text("slurmdbd.conf", where, name, item)


def _named(
    place: str, where: str, value: Any, owned: Mapping[str, str], example: str, release: str
) -> Iterator[tuple[str, Any]]:
    """Give names and values of a mapping of parameters, each of a name that a site may set in this release."""
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise ClusterctlError(
            f"{where} is {value!r}: it must map parameters of {parameters.PLACES[place]} to values",
            fix=f"write it in group_vars/all.yml as {where}: {{{example}}}",
        )
    ours, seen = {name.lower(): name for name in owned}, set[str]()
    for key, item in value.items():
        name = str(key)
        if not _KEY.fullmatch(name):
            raise ClusterctlError(
                f"{where}: {name[:70]!r} is no parameter of {parameters.PLACES[place]}",
                fix=f"use the names of {parameters.page(place)}, as {example.partition(':')[0]}",
                entry=(where, None, name),
            )
        if name.lower() in ours:
            raise ClusterctlError(
                f"{where} cannot set {name}: {owned[ours[name.lower()]]}",
                fix=f"remove {name} from there",
                entry=(where, None, name),
            )
        require_known(place, where, name, release, (where, None, name))
        if name.lower() in seen:
            raise ClusterctlError(
                f"{where} sets {name} twice: Slurm's names do not depend on case",
                fix="leave one of them",
                entry=(where, None, name),
            )
        seen.add(name.lower())
        yield name, item


def switch_from(name: str, value: Any) -> bool:
    """Return whether a variable that is off by itself is on; INI makes a text of what is written there."""
    word = str(value).strip().lower()
    if value is None or word in ("false", "no", "off", "0"):
        return False
    if word in ("true", "yes", "on", "1"):
        return True
    raise ClusterctlError(
        f"{name} is {value!r}: it must be true or false",
        fix=f"set {name}=true under [all:vars], or leave it out",
        said=(name, ""),
    )


def require_known(place: str, where: str, name: str, release: str, entry: Entry) -> None:
    """Refuse a parameter that this release of Slurm does not read."""
    if wrong := parameters.unknown(place, name, release):
        raise ClusterctlError(f"{where}: {wrong[0]}", fix=wrong[1], entry=entry)


def parameter_value(place: str, where: str, name: str, value: Any, entry: Entry) -> str:
    """Return a parameter's value as it stands in Slurm's files; refuse one of another type."""
    text = slurm_value(where, name, value, entry, blanks=place == "slurm.conf" and name not in LINES)
    if misfit := parameters.misfit(place, name, text):
        fix = f"correct {name}; {parameters.page(place)}"
        raise ClusterctlError(f"{where}: {name} is {text!r}: {misfit}", fix=fix, entry=entry)
    for word in text.strip('"').split(",") if name.lower() == "authinfo" else ():
        socket = word if word.startswith("/") else word.partition("socket=")[2]
        if socket and socket not in _SOCKETS:
            problem = f"{where}: AuthInfo has socket={socket}: munged's is {_SOCKETS[0]}"
            raise ClusterctlError(problem, fix="remove socket= from AuthInfo", entry=entry)
    return text


def _text(place: str, variable: str, name: str, value: Any) -> str:
    return parameter_value(place, variable, name, value, (variable, None, name))
