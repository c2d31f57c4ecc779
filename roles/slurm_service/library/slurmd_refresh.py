#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have slurmd run with the controller's configuration, without touching its jobs."""

from __future__ import annotations

import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: slurmd_refresh
short_description: Have slurmd run with the controller's configuration
description:
  - Compares the files that slurmd fetched with the controller's and, where they differ, has slurmd fetch them again
    (SIGHUP, which starts it anew in its place; jobs go on). Looks at what is, so an interrupted run is made up for.
options:
  expected: {type: dict, required: true, description: SHA-1 of the controller's files by name.}
  cache: {type: path, default: /var/spool/slurmd/conf-cache, description: Where slurmd keeps what it fetched.}
  container: {type: str, default: slurmd, description: Name of its container.}
  wait: {type: int, default: 60, description: Seconds that it may take.}
"""


def differing(module, expected, cache):
    """Return the files that are not as expected."""
    return [
        name
        for name, checksum in sorted(expected.items())
        if not (path := Path(cache) / name).exists() or module.sha1(str(path)) != checksum
    ]


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "expected": {"type": "dict", "required": True},
            "cache": {"type": "path", "default": "/var/spool/slurmd/conf-cache"},
            "container": {"type": "str", "default": "slurmd"},
            "wait": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    expected, cache = module.params["expected"], module.params["cache"]

    def settled(seconds):
        """Wait until slurmd has fetched what it is to have, as a new one does by itself."""
        end = time.monotonic() + seconds
        while differing(module, expected, cache):
            if time.monotonic() >= end:
                return False
            time.sleep(0.5)
        return True

    if settled(0 if module.check_mode else 10):
        module.exit_json(changed=False)
    if not module.check_mode:
        code, _, problem = module.run_command(["docker", "kill", "--signal", "HUP", module.params["container"]])
        if code or not settled(module.params["wait"]):
            wrong = ", ".join(differing(module, expected, cache))
            logs = module.run_command(["docker", "logs", "--tail", "5", module.params["container"]])
            module.fail_json(msg=f"slurmd did not fetch {wrong}: {problem.strip()} {logs[1].strip()} {logs[2].strip()}")
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
