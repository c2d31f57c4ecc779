# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""With which configuration Slurm's daemons run on a machine. Reads only. Standard library only, Python 3.8."""

from __future__ import annotations

import json
import re
from pathlib import Path

from ansible.module_utils import checksums, slurm_running
from ansible.module_utils.machine_commands import run as command_run

#: All questions in one command of the engine: each costs a process in the container. Of nodes only those that are
#: out for a reason of slurmctld's own are described, because that takes 5 KB for each; to_resume() looks closer.
ASK = rf"""
scontrol show config || exit
echo "== hosts"
{slurm_running.HOSTS}
echo "== nodes"
out=$(sinfo --noheader --Node --states=drain,down --format='%N|%E' |
  sed -nE 's/\|(Low |gres\/|Node unex|{slurm_running.REPLACED}).*//p' | sort -u | paste -sd,)
[ -z "$out" ] || scontrol show nodes "$out" --json | head -c 900000
"""


def slurmctld(container, files, last_written, known, seconds, run=None):
    """Return what slurmctld says: ``answered``, or else ``problem`` and whether it was ``late``.

    ``current``: it runs with the files and the names as they are. ``resume``: the nodes that it took out at a
    registration which has been followed by a better one.
    """
    inside = ["timeout", "-k", "1", str(seconds), "sh", "-c", ASK]
    command = ["docker", "exec", "--env", "SLURM_TIME_FORMAT=%s", container, *inside]
    code, said = (run or command_run)(command, seconds + 2)
    config, _, more = said.partition("== hosts\n")
    names, _, nodes = more.partition("== nodes\n")
    boot = re.search(r"^BOOT_TIME\s*=\s*([0-9]{1,12})$", config, re.M)
    if code != 0 or not boot:
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        return {
            "answered": False,
            "late": code in (124, 137) or (code is None and bool(said)),
            "problem": lines[0][:300] if lines else "it said nothing",
        }
    try:
        out = json.loads(nodes or '{"nodes": []}')["nodes"]
        found = {"resume": [str(node["name"]) for node in out if slurm_running.to_resume(node)]}
    except (ValueError, LookupError, TypeError, AttributeError):
        found = {}  # cut off: nobody can tell
    now = slurm_running.found(int(boot.group(1)), files, last_written, names)
    current = not slurm_running.needed(now, known)
    return {"answered": True, "late": False, "problem": "", "current": current, **found}


def collect(root, ask, patience=1):
    """Return what was asked: of the controller (``directory``, ``container``), of a node (``cache``, ``ready``).

    ``files`` and ``fetched`` are checksums by name, of the controller's files and of what slurmd has fetched;
    ``taken_up``: it runs with that, where that is noted; ``start`` are those lines of slurm.conf that only a start
    takes up. With ``belongs``, ``saved`` is the cluster whose state there is, ``cluster`` and ``controller`` those of
    which the node has the configuration; empty for none.
    """
    found = {}
    if "directory" in ask:
        directory = Path(root, ask["directory"].lstrip("/"))
        files = slurm_running.read(directory)
        known = slurm_running.remembered(Path(root, slurm_running.RECORD.lstrip("/")))
        found["files"] = checksums.sums(files)
        found["start"] = "\n".join(slurm_running.AT_START.findall(files.get("slurm.conf", "")))
        found["slurmctld"] = slurmctld(
            ask["container"], files, slurm_running.written(directory, files), known, 10 * patience
        )
    if "cache" in ask:
        cache = Path(root, ask["cache"].lstrip("/"))
        files = slurm_running.read(cache)
        found["fetched"] = checksums.sums(files)
        ready = Path(root, ask["ready"].lstrip("/")) if "ready" in ask else None
        if ready and (taken_up := slurm_running.taken_up(ready, cache, files)) is not None:
            found["taken_up"] = taken_up
    if "belongs" in ask:
        saved, conf = (_text(root, ask["belongs"][name]) for name in ("state", "conf"))
        found["saved"] = saved.partition("|")[0].strip()[:200]
        for name, parameter in (("cluster", "ClusterName"), ("controller", "SlurmctldHost")):
            line = re.search(rf"^{parameter}=([^\s(]{{1,200}})", conf, re.M | re.I)
            found[name] = line.group(1) if line else ""
    return found


def _text(root, path):
    """Return the beginning of a file, where the names stand; nothing of one that there is not."""
    try:
        with Path(root, path.lstrip("/")).open(encoding="utf-8", errors="replace") as file:
            return file.read(20_000)
    except OSError:
        return ""
