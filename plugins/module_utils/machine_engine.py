# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Which container engine a machine has, and whether it answers. Reads only. Standard library only, Python 3.8."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from ansible.module_utils.machine_commands import run as run_command

SYS_RESOURCE = 24  # its bit in a set of capabilities: capabilities(7)


def version(text):
    """Return the version in ``Docker version 20.10.24+dfsg1, build 297e128``, empty where there is none."""
    found = re.search(r"version ([0-9][0-9A-Za-z.+~:-]*)", text)
    return found[1] if found else ""


def can_raise_limits(status):
    """Tell from /proc/1/status whether anything on this machine may have CAP_SYS_RESOURCE."""
    found = re.search(r"^CapBnd:\s*([0-9a-f]+)$", status, re.M)
    return found is not None and bool(int(found[1], 16) >> SYS_RESOURCE & 1)


def ask(command, seconds):
    """Return what a command printed, why that is nothing, and whether it was ended because it took too long."""
    code, text = run_command(command, seconds, errors=False)
    if code is None:
        return "", text or f"{command[0]} is not installed", bool(text)
    if code == 0:
        return text, "", False
    # Its words are on the other stream, where it also warns when all is well.
    lines = run_command(command, seconds)[1].strip().splitlines()
    return text, lines[-1] if lines else f"ended with {code}", False


def info(text):
    """Return version, live restore, swarm and the engine's own complaint from ``docker info --format '{{json .}}'``."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        told = {}
    told = told if isinstance(told, dict) else {}
    server, kept, errors = told.get("ServerVersion"), told.get("LiveRestoreEnabled"), told.get("ServerErrors")
    swarm = told.get("Swarm")
    said = [error for error in errors if isinstance(error, str)] if isinstance(errors, list) else []
    return {
        "server": server[:4096] if isinstance(server, str) else "",
        "live_restore": kept if isinstance(kept, bool) else None,
        "swarm": isinstance(swarm, dict) and swarm.get("LocalNodeState") not in (None, "", "inactive"),
        "problem": "; ".join(said)[:4096],
    }


def collect(root="/", options=None, patience=1, run=ask):
    """Return what provision.model.container_facts.EngineFacts describes; ``options``: ``seconds`` for the engine."""
    limit = int((options or {}).get("seconds", 10)) * patience
    program = shutil.which("dockerd")
    text, problem, late = run(["docker", "info", "--format", "{{json .}}"], limit)
    found = info(text)
    return {
        **found,
        "version": version(run([program, "--version"], 5 * patience)[0]) if program else "",
        "raises_limits": can_raise_limits(Path(root, "proc/1/status").read_text(encoding="ascii")),
        "problem": found["problem"] or problem[:4096],
        "late": late,
        "limit": limit,
    }
