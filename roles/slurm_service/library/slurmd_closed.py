#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have no job begin on a node while its slurmd is replaced: one that slurmd was told to start and has not, is lost.

Why not C(ansible.builtin.command): it takes three questions in a loop, of which one is about processes. This saves
jobs: slurmctld ends such a batch job with NODE_FAIL, and runs it once more only if it may. slurmd_refresh opens the
node again. No figure: safety, as jobs go on.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

from ansible.module_utils import slurm_running
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.machine_commands import bounded

DOCUMENTATION = """
module: slurmd_closed
short_description: Keep new jobs from a node whose slurmd is to be replaced, and wait for those that are about to begin
description:
  - Drains the node, unless somebody has, with a reason of its own. Jobs that run go on.
  - Waits until each job of the node has begun. Where one does not in time, the drain is undone and the module fails.
  - A slurmd that does not run starts nothing; there is nothing to do.
options:
  node: {type: str, required: true, description: The node by Slurm's name.}
  container: {type: str, default: slurmd, description: Name of slurmd's container.}
  wait: {type: int, default: 300, description: Seconds to wait for jobs that are about to begin.}
"""

#: Seconds that an answer of Docker, or of Slurm through it, may take.
ANSWER = 60
#: What slurmstepd of a batch script calls itself: _set_job_log_prefix() in src/slurmd/slurmstepd/slurmstepd.c.
STEP = re.compile(r"slurmstepd: \[(\d+)(?:\+\d+)?\.batch\]")


class Node:
    """A node, asked through its slurmd's container; ``run`` returns a command's exit code, output and problem."""

    def __init__(self, params, run):
        self.node, self.container = params["node"], params["container"]
        self.wait = params["wait"]
        self._run = run

    def slurm(self, *words):
        """Run a command of Slurm's."""
        return self._run(bounded(["docker", "exec", self.container, *words], ANSWER))

    def asked(self, key, *words):
        """Return the list that a command of Slurm's prints as JSON, None where it does not."""
        code, told, _ = self.slurm(*words, "--json")
        try:
            return json.loads(told)[key] if code == 0 else None
        except (ValueError, LookupError):
            return None

    def update(self, *words):
        """Change the node; return what was wrong, or nothing."""
        code, told, problem = self.slurm("scontrol", "update", f"NodeName={self.node}", *words)
        return (problem.strip() or told.strip() or f"exit code {code}") if code else ""

    def starting(self):
        """Return the jobs that have not begun: their Prolog runs, or slurmd has not started their script yet."""
        jobs = self.asked("jobs", "squeue", f"--nodelist={self.node}", "--states=CONFIGURING,RUNNING")
        if jobs is None:
            return ["slurmctld does not answer"]
        begun = begun_here()
        return [
            f"job {job['job_id']}"
            for job in jobs
            if "CONFIGURING" in job["job_state"]
            or (job.get("batch_flag") and job.get("batch_host") == self.node and job["job_id"] not in begun)
        ]

    def close(self):
        """Close the node; return whether it was drained, and what is wrong."""
        nodes = self.asked("nodes", "scontrol", "show", "node", self.node)
        # Without an answer slurmd, or its container, is not there.
        if not nodes or set(nodes[0].get("state") or ()) & {"DRAIN", "DOWN", "FAIL"}:
            return False, ""
        if problem := self.update("State=DRAIN", f"Reason={slurm_running.REPLACED}"):
            return False, problem
        end = time.monotonic() + self.wait
        while left := self.starting():
            if time.monotonic() >= end:
                self.update("State=UNDRAIN")
                return False, f"after {self.wait} s not begun: {', '.join(left[:5])}; slurmd goes on as before"
            time.sleep(1)
        return True, ""


def begun_here(processes="/proc"):
    """Return the jobs whose batch script has a slurmstepd on this machine."""
    found = set()
    for path in Path(processes).glob("[0-9]*/cmdline"):
        try:
            name = STEP.match(path.read_bytes().decode("utf-8", "replace"))
        except OSError:
            continue
        if name:
            found.add(int(name.group(1)))
    return found


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "container": {"type": "str", "default": "slurmd"},
            "wait": {"type": "int", "default": 300},
        },
    )
    closed, problem = Node(module.params, module.run_command).close()
    if problem:
        module.fail_json(msg=problem)
    module.exit_json(changed=closed)


if __name__ == "__main__":
    main()
