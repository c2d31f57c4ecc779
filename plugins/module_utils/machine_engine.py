# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Which container engine a machine has, and whether it answers. Reads only. Standard library only, Python 3.8."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from ansible.module_utils.machine_commands import run as run_command
from ansible.module_utils.machine_hardware import read

SYS_RESOURCE = 24  # its bit in a set of capabilities: capabilities(7)

#: The engine's configuration, and the keys of it that are ours.
DAEMON, KEYS = "etc/docker/daemon.json", "etc/docker/clusterctl-keys.json"
#: Bytes of it that are read: a long one has two pages.
MAX_DAEMON = 65536
#: Where containers and images are unless somebody says otherwise.
DATA_ROOT = "/var/lib/docker"


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
    """Return what is compared of ``docker info --format '{{json .}}'``, and the engine's own complaint."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        told = {}
    told = told if isinstance(told, dict) else {}
    kept, errors, swarm = told.get("LiveRestoreEnabled"), told.get("ServerErrors"), told.get("Swarm")
    said = [error for error in errors if isinstance(error, str)] if isinstance(errors, list) else []
    counts = [told.get(key) for key in ("Containers", "Images")]
    return {
        "server": _text(told.get("ServerVersion")),
        "live_restore": kept if isinstance(kept, bool) else None,
        "swarm": isinstance(swarm, dict) and swarm.get("LocalNodeState") not in (None, "", "inactive"),
        "kept": min(sum(count for count in counts if isinstance(count, int) and count > 0), 2**20),
        "data_root": _text(told.get("DockerRootDir")),
        "driver": _text(told.get("Driver")),
        "problem": "; ".join(said)[:4096],
    }


def _text(value):
    return value[:4096] if isinstance(value, str) else ""


def flags(root, unit):
    """Return the names of dockerd's options: those of its unit, and those of the one that runs, variables resolved."""
    found = re.search(r"argv\[\]=(.*?) ;", unit)
    pid = read(root, "run/docker.pid")
    words = found[1].split() if found else []
    words += read(root, f"proc/{pid}/cmdline").split("\0") if pid.isdigit() else []
    names = {word.lstrip("-").split("=", 1)[0][:64] for word in words if re.match(r"--?[A-Za-z]", word)}
    return sorted(names)[:64]


def daemon(root):
    """Return what daemon.json says, or why that cannot be read; nothing of one that has a password in it."""
    found = {"daemon": {}, "daemon_problem": "", "secret": False, "formatted": False, "keys": _keys(root)}
    try:
        raw = Path(root, DAEMON).read_bytes()
        text = raw.decode("utf-8-sig")
        told = json.loads(text) if text.strip() else {}
    except FileNotFoundError:
        return found
    except (OSError, ValueError, RecursionError) as error:
        # Its own words name a place, and nothing of what is there.
        return {**found, "daemon_problem": str(getattr(error, "strerror", None) or error)[:300]}
    if len(raw) > MAX_DAEMON or not isinstance(told, dict):
        return {**found, "daemon_problem": f"it is no object of JSON of at most {MAX_DAEMON} bytes"}
    if re.search(r"://[^/@\s:]*:[^/@\s]+@", text):
        return {**found, "secret": True}
    ours = json.dumps(told, sort_keys=True, indent=4, separators=(",", ": ")) + "\n"
    return {**found, "daemon": told, "formatted": text == ours}


def _keys(root):
    """Return the keys that are ours; None where nobody has said so."""
    try:
        told = json.loads(read(root, KEYS))
    except (ValueError, RecursionError):
        return None
    return [key for key in told if isinstance(key, str)][:256] if isinstance(told, list) else None


def collect(root="/", options=None, patience=1, run=ask):
    """Return what provision.model.container_facts.EngineFacts describes.

    ``options``: ``seconds`` for the engine, and ``data_root``, where the inventory wants its images.
    """
    options = options or {}
    limit = int(options.get("seconds", 10)) * patience
    program = shutil.which("dockerd")
    text, problem, late = run(["docker", "info", "--format", "{{json .}}"], limit)
    unit = run(["systemctl", "show", "docker", "--property=ExecStart"], 5 * patience)[0] if program else ""
    found, file = info(text), daemon(root)
    there = found["data_root"] or _text(file["daemon"].get("data-root")) or DATA_ROOT
    return {
        **found,
        **file,
        "data_root": there,
        "images_at": options.get("data_root") or there,
        "flags": flags(root, unit),
        "version": version(run([program, "--version"], 5 * patience)[0]) if program else "",
        "raises_limits": can_raise_limits(Path(root, "proc/1/status").read_text(encoding="ascii")),
        "problem": found["problem"] or problem[:4096],
        "late": late,
        "limit": limit,
    }
