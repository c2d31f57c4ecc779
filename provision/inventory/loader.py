"""The inventory: read by Ansible's own loader, in a process whose settings are ours."""

from __future__ import annotations

import difflib
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provision import hostlist
from provision.ansible_env import clean_environment
from provision.content import ROOT
from provision.errors import ClusterctlError
from provision.inventory.file import require_plain
from provision.inventory.where import where

#: The groups that mean something here. A site may have others, whose machines are its own.
GROUPS = ("slurm_controller", "slurm_compute", "slurm_login", "slurm_database", "nfs_server", "monitoring")

#: The program that reads inventories, and the directory in which it runs.
DUMP, STANDS = Path(__file__).with_name("dump.py"), ROOT / "playbooks"

#: Seconds. Reading 10,000 nodes takes about 5; an inventory that takes this long does not end.
_PATIENCE = 120


@dataclass(frozen=True)
class Inventory:
    """What the operator wrote. ``groups`` maps each group to all its hosts, those of child groups included;
    ``hostvars`` maps each host to its variables, group variables merged in, templates left as they were written.
    """

    path: Path
    groups: Mapping[str, tuple[str, ...]]
    hostvars: Mapping[str, Mapping[str, Any]]


def default_path() -> Path:
    """Return the inventory that is meant when none is named.

    That is ``$CLUSTERCTL_INVENTORY``, else ``./inventory.ini``, else the one that the newest lab wrote.

    Raises:
        ClusterctlError: there is none of these.
    """
    if named := os.environ.get("CLUSTERCTL_INVENTORY"):
        return Path(named)
    here = Path("inventory.ini")
    if here.exists():
        return here
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    labs = sorted((state / "clusterctl" / "labs").glob("*/inventory.ini"), key=lambda path: path.stat().st_mtime)
    if labs:
        return labs[-1]
    raise ClusterctlError(
        "no inventory was named, and there is no inventory.ini here and no lab",
        fix="name one: clusterctl check path/to/inventory.ini; or make a lab: clusterctl lab up",
    )


def load(path: Path, *, vault: Sequence[str] = ()) -> Inventory:
    """Read an inventory: INI, YAML, or a directory of such files with group_vars and host_vars beside them.

    ``vault`` are Ansible's own options for encrypted variables, such as ``--vault-password-file FILE``.

    Raises:
        ClusterctlError: it is missing, unreadable, empty, executable, or not to be parsed; nothing was run.
    """
    require_plain(path)
    listed = _list(path.absolute(), *vault)
    hostvars = listed.pop("_meta")["hostvars"]
    for variables in hostvars.values():
        # Ansible adds its facts' place, also where nothing was gathered.
        variables.pop("ansible_local", None)
    groups = {name: tuple(_hosts(listed, name)) for name in listed}
    groups.setdefault("all", ())
    if not groups["all"]:
        raise ClusterctlError(
            f"inventory {path} has no hosts",
            fix="name a controller under [slurm_controller] and the compute nodes under [slurm_compute]",
        )
    return Inventory(path=path, groups=groups, hostvars={host: hostvars.get(host, {}) for host in groups["all"]})


def cluster_hosts(inventory: Inventory) -> tuple[str, ...]:
    """Return the hosts that belong to the cluster, in the inventory's order; others are never touched."""
    ours = {host for group in GROUPS for host in inventory.groups.get(group, ())}
    return tuple(host for host in inventory.groups["all"] if host in ours)


def hosts_in(inventory: Inventory, limit: str | None) -> tuple[str, ...]:
    """Return the hosts of the cluster that ``--limit`` leaves, in the inventory's order; without a limit, all of them.

    Names, groups, Slurm's hostlists (``node[1-4]``) and every pattern of Ansible are understood.

    Raises:
        ClusterctlError: it matches nothing.
    """
    ours = cluster_hosts(inventory)
    if limit is None:
        return ours
    words = [word.strip() for word in _words(limit)]
    if all(word in inventory.hostvars or word in inventory.groups for word in words):
        wanted = {host for word in words for host in inventory.groups.get(word, (word,))}
    else:
        wanted = _hostlist(inventory, limit) or _pattern(inventory, limit)
    if not wanted:
        known = [*inventory.hostvars, *inventory.groups]
        near = [name for word in words for name in difflib.get_close_matches(word, known, n=2)]
        raise ClusterctlError(
            f"no host of the inventory matches --limit '{limit}'",
            fix=f"did you mean {' or '.join(near)}?" if near else f"the hosts are {hostlist.fold(inventory.hostvars)}",
        )
    if not wanted.intersection(ours):
        raise ClusterctlError(
            f"--limit '{limit}' names {hostlist.fold(wanted)}, which is in none of the cluster's groups",
            fix=f"write it in one of the inventory's groups {', '.join(GROUPS)}",
        )
    return tuple(host for host in ours if host in wanted)


def _words(limit: str) -> list[str]:
    return [word for word in limit.split(",") if word.strip()]


def _hostlist(inventory: Inventory, limit: str) -> set[str]:
    """Return the hosts of a hostlist, all of which must exist; nothing where it is no hostlist."""
    try:
        names = set(hostlist.expand(limit))
    except ClusterctlError:
        return set()
    return names if names <= inventory.hostvars.keys() else set()


def _pattern(inventory: Inventory, limit: str) -> set[str]:
    """Return the hosts that Ansible finds for one of its patterns."""
    try:
        listed = _list(inventory.path.absolute(), "--limit", limit)
    except ClusterctlError:
        # The inventory itself has been read before: what is refused here is the pattern.
        return set()
    return set(_hosts(listed, "all"))


def _hosts(listed: Mapping[str, Any], group: str) -> dict[str, None]:
    """Return the hosts of a group and of the groups below it, each once, in order (a dict keeps both)."""
    found: dict[str, None] = {}
    waiting, seen = [group], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        found.update(dict.fromkeys(listed.get(name, {}).get("hosts", ())))
        waiting.extend(reversed(listed.get(name, {}).get("children", ())))
    return found


def _list(path: Path, *options: str) -> dict[str, Any]:
    """Return what ``ansible-inventory --list`` says of ``path``."""
    try:
        done = _dumped(["--list", "-i", str(path), *options])
    except subprocess.TimeoutExpired:
        raise ClusterctlError(
            f"inventory {path} was not read within {_PATIENCE} s", fix="look for an endless file or a hanging mount"
        ) from None
    if done.returncode != 0:
        place = f" ({spot})" if (spot := where(path)) else ""
        raise ClusterctlError(
            f"inventory {path} cannot be parsed: {_reason(done.stderr)}{place}", fix=_mend(path, done.stderr)
        )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _dumped(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run Ansible's own loader in a process of its own."""
    return subprocess.run(
        [sys.executable, "-P", str(DUMP), *words],
        env=clean_environment(),
        # The playbooks', because Ansible also reads group_vars/ where it stands.
        cwd=STANDS,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )


def _reason(told: str) -> str:
    """Return the sentence in Ansible's standard error that says what is wrong, without its frame."""
    lines = [line.strip() for line in told.splitlines()]
    parsers = [line for line in lines if line.startswith("[WARNING]: Failed to parse inventory with")]
    errors = [line for line in lines if line.startswith(("[ERROR]:", "ERROR!"))]
    # Ansible tries the parsers in turn: YAML for files that are named so, INI for the others.
    line = (parsers or errors or lines or ["Ansible gave no reason"])[0]
    for frame in ("[WARNING]:", "[ERROR]:", "ERROR!"):
        line = line.removeprefix(frame).strip()
    line = re.sub(r"^Failed to parse inventory with '\w+' plugin: ", "", line)
    line = line.removeprefix("Failed to parse inventory: ").removeprefix("YAML parsing failed: ")
    if line.startswith("not enough values to unpack"):
        line = "the header of a section is not closed, as [slurm_compute] is"
    return line.rstrip(".")


def _mend(path: Path, told: str) -> str:
    if "vault" in told:
        return "give the password: --vault-password-file FILE, or --ask-vault-pass"
    if path.suffix == ".ini" and "Invalid host pattern 'all:'" in told:
        return f"this looks like YAML: name the file {path.with_suffix('.yml')}"
    return "correct that line, then run 'clusterctl check' again"
