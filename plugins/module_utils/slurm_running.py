# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""With which files slurmctld runs, and which nodes it keeps out for nothing. Standard library only, Python 3.8."""

from __future__ import annotations

import json
import re
from pathlib import Path

#: Where the role remembers with which files slurmctld runs, and since when.
RECORD = "/var/lib/clusterctl/slurm/running.json"

#: How slurmctld begins the reason when a node registers with less than slurm.conf says (validate_node_specs() in
#: src/slurmctld/node_mgr.c, gres_node_config_validate() in src/interfaces/gres.c, both 24.11).
AT_REGISTRATION = re.compile(
    r"Low (RealMemory|TmpDisk|CPUs|socket\*core\*thread count)|gres/\S+ count (reported lower than configured|too low)"
)

#: Why slurmctld sets a node DOWN that has started anew since it last answered (validate_node_specs()); with
#: ReturnToService=1 it stays so.
REBOOTED = "Node unexpectedly rebooted"


def to_resume(node):
    """Tell whether slurmctld keeps the node out for a registration that has been followed by a better one.

    It drained it for less than is declared, or set it DOWN because it had rebooted by itself. ``node`` is its entry in
    ``scontrol show node --json``. None: it has not registered since; asking again may help.
    """
    state = set(node.get("state") or ())
    reason, author = str(node.get("reason") or ""), str(node.get("reason_set_by_user") or "")
    rebooted = "DOWN" in state and "DRAIN" not in state and reason.startswith(REBOOTED)
    if author != "slurm" or not (rebooted or ("DRAIN" in state and AT_REGISTRATION.match(reason))):
        return False
    return None if state & {"INVALID_REG", "NOT_RESPONDING", "UNKNOWN", *(() if rebooted else ("DOWN",))} else True


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


def remembered(path):
    """Return ``(boot, files)`` as they were recorded; ``(None, {})`` where nothing was, or nothing that can be read."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        return int(found["boot"]), {str(name): str(text) for name, text in found["files"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None, {}


def needed(boot, files, last_written, known_boot, known_files):
    """Tell whether slurmctld, which has run since ``boot``, may run with other files than those in the directory.

    One that has started since the last record has read what was there; slurmctld tells its start in whole seconds, so
    a file of the same second counts as a later one.
    """
    return known_files != files if boot == known_boot else last_written >= boot
