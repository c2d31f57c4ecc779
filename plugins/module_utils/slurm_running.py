# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""With which files slurmctld runs, and which nodes it keeps out for nothing. Standard library only, Python 3.8."""

from __future__ import annotations

import json
import re
from collections import namedtuple
from pathlib import Path

from ansible.module_utils.hosts_text import BEGIN, END

#: Where the role remembers with which files slurmctld runs, and since when.
RECORD = "/var/lib/clusterctl/slurm/running.json"

#: Parameters that a daemon takes up at its start only (scontrol(1), "reconfigure"; job_container.conf(5)), or on which
#: rests what is run before it.
AT_START = re.compile(
    r"^(?:ClusterName|SlurmctldHost|SlurmctldPort|SlurmdPort|Auth[A-Za-z]*|CredType|TLS[A-Za-z]*|JobContainerType"
    r"|NamespaceType|PrologFlags)=.*$",
    re.M | re.I,
)
#: How slurmctld begins the reason when it does not take a node as it registers (validate_node_specs() in
#: src/slurmctld/node_mgr.c, gres_node_config_validate() in src/interfaces/gres.c, both 24.11).
AT_REGISTRATION = re.compile(
    r"Low (RealMemory|TmpDisk|CPUs|socket\*core\*thread count)|gres/\S+ count (reported lower than configured|too low)"
    r"|gres/\S+ GRES (autodetected core affinity|core specification) |gres/\S+ type \(.*\) reported but not configured"
)

#: Why slurmctld sets a node DOWN that has started anew since it last answered (validate_node_specs()); with
#: ReturnToService=1 it stays so.
REBOOTED = "Node unexpectedly rebooted"

#: The reason of a node that is drained for seconds, while its slurmd is replaced.
REPLACED = "clusterctl: slurmd is replaced"


def to_resume(node):
    """Tell whether a node is out for a slurmd that was replaced, or for a registration that a better one has followed.

    slurmctld drained it for less than is declared, or set it DOWN because it had rebooted by itself. One that was DOWN
    because it did not answer, and came back with less, stays DOWN: the reason is then another than that with which
    ReturnToService=1 has it back. ``node`` is its entry in ``scontrol show node --json``. None: it has not registered
    since; asking again may help.
    """
    state = set(node.get("state") or ())
    reason, author = str(node.get("reason") or ""), str(node.get("reason_set_by_user") or "")
    rebooted = "DOWN" in state and "DRAIN" not in state and reason.startswith(REBOOTED)
    lacking = state & {"DOWN", "DRAIN"} and AT_REGISTRATION.match(reason)
    replaced = "DRAIN" in state and reason == REPLACED
    if not replaced and (author != "slurm" or not (rebooted or lacking)):
        return False
    return None if state & {"INVALID_REG", "NOT_RESPONDING", "UNKNOWN"} else True


#: States in which a node is not there, and those of one that Slurm itself has sent away.
AWAY = {"DOWN", "ERROR", "FUTURE", "NOT_RESPONDING", "UNKNOWN"}
SENT_AWAY = {"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "REBOOT_ISSUED", "REBOOT_REQUESTED"}


def up(nodes):
    """Return the names of the nodes that are there, of the entries of ``scontrol show nodes --json``.

    slurmctld that was told of its files knows nothing of a node (UNKNOWN) until that has registered: 0.3 s on 24.11.5.
    """
    return {str(node.get("name")) for node in nodes if not set(node.get("state") or ()) & (AWAY | SENT_AWAY)}


def lost(before, nodes):
    """Return which of the nodes that were up are not any more; not those that were taken out, or sent away."""
    return sorted(
        str(node["name"])
        for node in nodes
        if node.get("name") in before - up(nodes) and not set(node.get("state") or ()) & SENT_AWAY
    )


#: What slurmctld hands to the nodes, but for scripts: slurmd_config_files in src/common/fetch_config.c of Slurm.
FETCHED = (
    *(
        "slurm.conf",
        "acct_gather.conf",
        "cgroup.conf",
        "cli_filter.lua",
        "gres.conf",
        "helpers.conf",
        "job_container.conf",
    ),
    *("mpi.conf", "namespace.yaml", "oci.conf", "plugstack.conf", "scrun.lua", "topology.conf", "topology.yaml"),
)
#: A program without a directory is one that slurmctld hands to the nodes, too.
SCRIPT = re.compile(r"^(?:Prolog|Epilog)=([^/\s]+)\s*$", re.M | re.I)


def read(directory):
    """Return the texts of the files that slurmctld hands to the nodes, by name; others may lie there."""
    found = {}
    names = list(FETCHED)
    for name in names:
        path = Path(directory, name)
        if path.is_file():
            found[name] = path.read_text(encoding="utf-8", errors="surrogateescape")
        if name == "slurm.conf":
            names += SCRIPT.findall(found.get(name, ""))
    return dict(sorted(found.items()))


def written(directory, files):
    """Return when the last of the files was put there, in seconds since 1970."""
    return max(((Path(directory) / name).lstat().st_ctime for name in files), default=0)


def taken_up(ready, cache, files):
    """Tell whether slurmd runs with what it has fetched; None where nothing says so.

    ``ready`` is put there anew whenever a slurmd has come up (notify-init). One that cannot do with a new configuration
    ends, after it was fetched, and the old one goes on: slurmctld is told nothing, and scontrol reconfigure says 0.
    """
    try:
        noted = Path(ready).lstat().st_mtime
    except OSError:
        return None
    return all(noted >= path.lstat().st_mtime for path in (Path(cache, name) for name in files) if path.exists())


#: With what slurmctld runs: since when by its own word (seconds since 1970), its files by name, the cluster's names and
#: addresses as its hosts file has them, because it looks those up once. ``written``: when the last of it was put there.
Running = namedtuple("Running", "boot files names written")

#: Prints when a container's hosts file was written, and the cluster's block of it.
HOSTS = f"stat -c %Z /etc/hosts; sed -n '/^{BEGIN}/,/^{END}/p' /etc/hosts"


def hosts(said):
    """Return what HOSTS has printed: seconds since 1970 and text; ``(0, "")`` where it could not be asked.

    A second less than was printed: the engine writes the file just before it starts the container, and what was written
    in the second of a start counts as later than it.
    """
    first, _, text = said.partition("\n")
    return (int(first) - 1, text.strip()) if first.isdecimal() else (0, "")


def found(boot, files, last_written, said):
    """Return with what slurmctld may run now, by what HOSTS has printed in its container beside its files."""
    since, names = hosts(said)
    return Running(boot, files, names, max(last_written, since))


def remembered(path):
    """Return what was recorded last; with ``boot`` None where nothing was, or nothing that can be read."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        files = {str(name): str(text) for name, text in found["files"].items()}
        return Running(int(found["boot"]), files, str(found.get("names", "")), 0)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return Running(None, {}, "", 0)


def needed(now, known):
    """Tell whether slurmctld may run with other files or names than there are ``now``.

    One that has started since the last record has read what was there; slurmctld tells its start in whole seconds, so
    a file of the same second counts as a later one.
    """
    if now.boot == known.boot:
        return (known.files, known.names) != (now.files, now.names)
    return now.written >= now.boot
