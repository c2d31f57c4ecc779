#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have the engine's configuration, with what depends on the machine: its engine's release, and what it allows."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.machine_commands import run

DOCUMENTATION = """
module: engine_config
short_description: Have the configuration of Docker's engine
description:
  - Writes daemon.json. Nobody else writes it, and nothing else is in it.
  - Two things can only be told on the machine, and are told here without a task of their own, namely how this release
    of the engine hands devices to containers (CDI), and whether the machine allows a limit above its own.
options:
  path: {type: path, default: /etc/docker/daemon.json, description: The file.}
  options: {type: dict, required: true, description: Keys that the role sets, by Docker's names.}
  site: {type: dict, default: {}, description: The site's keys, over all others; null removes one.}
  gpus: {type: bool, default: false, description: 'Whether containers are given NVIDIA GPUs, by CDI.'}
  memlock: {type: int, default: 0, description: 'Locked memory of a container in bytes, -1 for no limit; 0 sets none.'}
"""

RETURN = """
cdi: {type: str, returned: always, description: 'How containers get GPUs, engine, feature or runtime; empty without.'}
"""

SYS_RESOURCE = 24  # its bit in a set of capabilities: capabilities(7)

#: The engine's releases that know CDI, and that have it switched on: Docker's release notes.
CDI_SINCE, CDI_BY_DEFAULT_SINCE = (25, 0), (28, 3)

#: These hold settings that do not depend on each other, so the site's and ours can stand side by side.
_MERGED = ("features", "runtimes", "default-ulimits")


def release(text):
    """Return the release in ``Docker version 20.10.24+dfsg1, build 297e128``, nothing where there is none."""
    found = re.search(r"version (\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else ()


def how_cdi(version):
    """Return how a release of the engine takes ``--device nvidia.com/gpu=...``.

    ``engine``: it does. ``feature``: it does when told to. ``runtime``: it does not, and NVIDIA's runtime, which reads
    the same descriptions, takes its place.
    """
    if version >= CDI_BY_DEFAULT_SINCE:
        return "engine"
    return "feature" if version >= CDI_SINCE else "runtime"


def can_raise_limits(status):
    """Tell from /proc/1/status whether anything on this machine may have CAP_SYS_RESOURCE."""
    found = re.search(r"^CapBnd:\s*([0-9a-f]+)$", status, re.M)
    return found is not None and bool(int(found[1], 16) >> SYS_RESOURCE & 1)


def merged(options, site, cdi, memlock):
    """Return all of daemon.json. ``memlock`` 0 sets no limit."""
    result = dict(options)
    if cdi == "feature":
        result["features"] = {"cdi": True}
    elif cdi == "runtime":
        result["runtimes"] = {"nvidia": {"path": "nvidia-container-runtime"}}
    if memlock:
        result["default-ulimits"] = {"memlock": {"Name": "memlock", "Hard": memlock, "Soft": memlock}}
    for key, value in site.items():
        both = key in _MERGED and isinstance(value, dict) and key in result
        result[key] = dict(result[key], **value) if both else value
    return {key: value for key, value in result.items() if value is not None}


def write(module, path, text):
    """Replace the file in one step."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    handle, new = tempfile.mkstemp(dir=str(path.parent))
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    module.atomic_move(new, str(path))


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "default": "/etc/docker/daemon.json"},
            "options": {"type": "dict", "required": True},
            "site": {"type": "dict", "default": {}},
            "gpus": {"type": "bool", "default": False},
            "memlock": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    path, cdi, memlock = Path(module.params["path"]), "", module.params["memlock"]
    if module.params["gpus"]:
        program = module.get_bin_path("dockerd")
        version = release(run([program, "--version"], 60)[1]) if program else ()
        if not version and not module.check_mode:
            module.fail_json(msg="dockerd does not tell its version, so it is not known how containers get GPUs")
        cdi = how_cdi(version) if version else ""
    if not can_raise_limits(Path("/proc/1/status").read_text(encoding="ascii")):
        # A machine that is itself a container: no container on it could start with such a limit.
        memlock = 0
    wanted = merged(module.params["options"], module.params["site"], cdi, memlock)
    after = json.dumps(wanted, indent=4, sort_keys=True) + "\n"
    try:
        before = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        before = ""
    changed = before != after
    if changed and not module.check_mode:
        write(module, path, after)
    # Also after writing: what takes a file's place takes its mode.
    changed = module.set_mode_if_different(str(path), 0o644, changed)
    diff = {"before_header": str(path), "after_header": str(path), "before": before, "after": after}
    module.exit_json(changed=changed, cdi=cdi, diff=diff)


if __name__ == "__main__":
    main()
