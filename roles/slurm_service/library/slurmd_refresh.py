#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ensure that slurmd or sackd has the controller's configuration, without touching jobs, and its node takes jobs again.

Why not a handler with C(docker kill --signal): it is forgotten when the run is killed, and after it Docker does not
start slurmd again when that ends. This saves jobs: slurmd is not restarted for a changed file. No figure: safety, as
jobs go on.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.machine_commands import bounded
from ansible.module_utils.slurm_running import taken_up, to_resume

DOCUMENTATION = """
module: slurmd_refresh
short_description: Ensure that slurmd or sackd runs with the controller's configuration
description:
  - Compares the files that slurmd fetched with the controller's and, where they differ, has slurmd fetch them again
    (SIGHUP, which starts it anew in its place; jobs go on). Looks at what is, so an interrupted run is made up for.
  - A slurmd that cannot do with a new configuration ends after it was fetched, and the old one goes on; then the module
    fails with what was logged, because C(scontrol reconfigure) tells of slurmctld alone.
  - The signal goes to the container's first process and not through C(docker kill), after which Docker would no longer
    start the container again when slurmd ends.
  - Without a C(node) it is sackd, which takes what slurmctld sends and fetches at its start alone; where it was not
    reached, its container is started again.
  - A node that slurmctld itself has drained, or keeps DOWN, because it registered with less than declared, and that now
    registers as declared, is resumed. Whoever else drained a node, and for whatever reason, has it stay drained.
options:
  expected: {type: dict, required: true, description: SHA-256 of the controller's files by name.}
  cache: {type: path, default: /var/spool/slurmd/conf-cache, description: Where slurmd keeps what it fetched.}
  ready: {type: path, description: What is put there anew whenever a slurmd has come up; left out where nothing is.}
  container: {type: str, default: slurmd, description: Name of its container.}
  node: {type: str, default: "", description: The node by Slurm's name; empty where no jobs run.}
  wait: {type: int, default: 60, description: Seconds that it may take.}
"""

#: Seconds that an answer of Docker, or of Slurm through it, may take.
ANSWER = 60


def differing(module, expected, cache):
    """Return the files that are not as expected."""
    return [
        name
        for name, checksum in sorted(expected.items())
        if not (path := Path(cache) / name).exists() or module.sha256(str(path)) != checksum
    ]


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "expected": {"type": "dict", "required": True},
            "cache": {"type": "path", "default": "/var/spool/slurmd/conf-cache"},
            "ready": {"type": "path"},
            "container": {"type": "str", "default": "slurmd"},
            "node": {"type": "str", "default": ""},
            "wait": {"type": "int", "default": 60},
        },
    )
    expected, cache, ready, container = (module.params[key] for key in ("expected", "cache", "ready", "container"))

    def docker(*words):
        """Run Docker's command, and return code, output and problem."""
        return module.run_command(bounded(["docker", *words], ANSWER))

    def scontrol(*words):
        """Run scontrol in slurmd's container, and return code, output and problem."""
        return docker("exec", container, "scontrol", *words)

    def hang_up():
        """Send SIGHUP to the container's first process; return what was wrong, or nothing."""
        code, told, problem = docker("inspect", "--format", "{{.State.Pid}}", container)
        pid = int(told) if code == 0 and told.strip().isdecimal() else 0
        if pid < 2:
            return problem or f"{container} does not run"
        try:
            os.kill(pid, signal.SIGHUP)
        except OSError as error:
            return str(error)
        return ""

    def again():
        """Have the files fetched again; return what was wrong, or nothing."""
        if module.params["node"]:
            return hang_up()
        code, _, problem = docker("restart", "--time", "10", container)
        return problem if code else ""

    def not_taken_up():
        """Return in words what the daemon does not run with."""
        if wrong := differing(module, expected, cache):
            return f"{container} did not fetch {', '.join(wrong)}"
        if ready and not taken_up(ready, cache, expected):
            return f"{container} did not come up with what it has fetched, and goes on as before"
        return ""

    def settled(seconds):
        """Wait until the daemon runs with what it is to have, as a new one does by itself."""
        end = time.monotonic() + seconds
        while not_taken_up():
            if time.monotonic() >= end:
                return False
            time.sleep(0.5)
        return True

    def resumable(seconds):
        """Tell whether the node waits for nothing but this; a registration may be on its way."""
        end = time.monotonic() + seconds
        while True:
            _, told, _ = scontrol("show", "node", module.params["node"], "--json")
            try:
                answer = to_resume(json.loads(told)["nodes"][0])
            except (ValueError, LookupError):
                return False  # the role's own proof says what is wrong with a slurmctld that does not answer
            if answer is not None or time.monotonic() >= end:
                return bool(answer)
            time.sleep(1)

    refresh = not settled(10)
    if refresh:
        problem = again()
        if problem or not settled(module.params["wait"]):
            logs = " ".join(text.strip() for text in docker("logs", "--tail", "5", container)[1:])
            module.fail_json(msg=f"{not_taken_up()}: {problem.strip()} {logs}")
    # As long as for the files: a slow machine's registration comes after them.
    resume = bool(module.params["node"]) and resumable(module.params["wait"])
    if resume:
        code, _, problem = scontrol("update", f"NodeName={module.params['node']}", "State=RESUME")
        if code:
            module.fail_json(msg=f"Slurm did not resume {module.params['node']}: {problem.strip()}")
    module.exit_json(changed=refresh or resume, refreshed=refresh, resumed=resume)


if __name__ == "__main__":
    main()
