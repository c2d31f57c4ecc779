#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take a node out of Slurm's hands before it is worked on or proven, and give it back: only what we took ourselves.

Why not C(ansible.builtin.command) of scontrol: nothing tells it whose a drain is, and a run that ends while it waits
would leave the drain. This saves jobs (none is running when it returns) and drains that nobody takes back. No figure:
safety, as jobs and other people's drains are not ours to end.
"""

from __future__ import annotations

import json
import re
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.machine_commands import bounded

DOCUMENTATION = """
module: slurm_node
short_description: Drain a Slurm node and wait for its jobs, or resume what this has drained; reserve or release it
description:
  - Runs on the controller, through slurmctld's container.
  - The reason says whose a drain is. A node that somebody else drained or set down stays as it is.
  - Jobs that do not end in time have the drain undone and the task fail, so that nothing has happened.
  - Where there is no slurmctld, or it does not know the node, nothing can be running through it; C(known) says so. A
    slurmctld that does not answer is a failure before draining, because jobs may be running.
  - A new node is C(reserved) for one user's jobs until it is C(released). A reservation without nodes is deleted.
options:
  names: {type: list, elements: str, required: true, description: Nodes by Slurm's names.}
  state: {type: str, required: true, choices: [drained, resumed, reserved, released], description: 'What is wanted.'}
  reason: {type: str, default: '', description: 'The reason, which marks a drain as ours.'}
  reservation: {type: str, default: '', description: The name of the reservation.}
  user: {type: str, default: '', description: Who may use the reservation.}
  gpus:
    type: list
    elements: str
    description: GPUs that each node is to have, as in C([gpu:1g.5gb:4]). One with others in slurmctld is not resumed.
  prefix: {type: bool, default: false, description: 'Whether each reason that begins with C(clusterctl:) is ours.'}
  wait: {type: int, default: 0, description: Seconds to wait for the jobs of the nodes.}
  jobs_allowed: {type: bool, default: false, description: Go on although jobs are running.}
  container: {type: str, default: slurmctld, description: Name of slurmctld's container.}
"""

RETURN = """
known: {type: list, returned: always, description: The nodes that slurmctld knows.}
drained: {type: list, returned: always, description: 'Nodes that were drained, resumed, reserved or released.'}
jobs: {type: list, returned: always, description: Jobs that were still running when waiting ended.}
"""

#: Jobs in these states are on their nodes.
HOLDING = "RUNNING,COMPLETING,CONFIGURING,SUSPENDED,STOPPED,SIGNALING,STAGE_OUT"


#: How the reason of each drain of ours begins.
OURS = "clusterctl:"


def to_drain(node):
    """Tell whether the node is to be drained: unless it is already, by us or by others, or set down."""
    state = set(node.get("state") or ())
    return not state & {"DRAIN", "DOWN", "FAIL"}


def to_resume(node, reason, prefix=False):
    """Tell whether the node's drain is ours: by the exact reason, or by how each of ours begins."""
    said = str(node.get("reason") or "").strip()
    ours = said.startswith(OURS) if prefix else said == reason
    return "DRAIN" in set(node.get("state") or ()) and ours


def has(node, gpus):
    """Tell whether slurmctld gives a node these GPUs, with or without their sockets: gpu:a40:4(S:0-1)."""
    plain = re.sub(r"\([^)]*\)", "", str(node.get("gres") or "")).lower()
    return sorted(one for one in plain.split(",") if one.startswith("gpu:")) == sorted(gpus)


#: Seconds that an answer may take; a slurmctld with a thousand nodes takes some.
ANSWER = 60

#: What timeout(1) ends with where there is no such program.
NO_PROGRAM = 127


class Controller:
    """slurmctld, asked through its container."""

    def __init__(self, module):
        self.module = module
        self.container = module.params["container"]

    def _run(self, *words):
        return self.module.run_command(bounded(["docker", "exec", self.container, *words], ANSWER))

    def is_there(self):
        """Tell whether there may be such a container, running or not: not where there is no Docker, or Docker says no.

        An engine that does not answer leaves its containers running, and jobs with them.
        """
        code, _, problem = self.module.run_command(bounded(["docker", "container", "inspect", self.container], ANSWER))
        return code != NO_PROGRAM and not (code and "no such container" in problem.lower())

    def nodes(self, names, needed=True, others=False):
        """Return the entries of those nodes, or of all, that slurmctld knows; none where it need not answer."""
        code, told, problem = self._run("scontrol", "show", "nodes", "--json")
        try:
            entries = json.loads(told)["nodes"] if code == 0 else None
        except (ValueError, LookupError):
            entries = None
        if entries is None and not needed:
            self.module.warn("slurmctld does not answer; nodes that were drained stay so until the next run")
            return {}
        if entries is None:
            self.module.fail_json(
                msg=f"slurmctld does not say what runs on {', '.join(names)}: {problem.strip()[-300:]}. "
                "Fix: clusterctl provision slurm; or, if nothing can be running, set nvidia_driver_jobs_allowed"
            )
        return {entry["name"]: entry for entry in entries or () if others or entry.get("name") in names}

    def jobs(self, names):
        """Return the jobs that hold any of the nodes."""
        words = ("squeue", "--noheader", "--format=%A", "--states=" + HOLDING, "--nodelist=" + ",".join(names))
        code, told, problem = self._run(*words)
        if code:
            self.module.fail_json(msg=f"slurmctld does not list the jobs of {', '.join(names)}: {problem.strip()}")
        return sorted(set(told.split()), key=int)

    def update(self, names, *words):
        """Change nodes."""
        if names:
            self.scontrol("update", "NodeName=" + ",".join(names), *words)

    def scontrol(self, *words):
        """Have slurmctld change something."""
        if self.module.check_mode:
            return
        code, _, problem = self._run("scontrol", *words)
        if code:
            self.module.fail_json(msg=f"Slurm refused '{' '.join(words)}': {problem.strip()}")


def drain(controller, params, check_mode):
    """Drain, wait for jobs, and undo it all where they do not end."""
    names, reason = params["names"], params["reason"]
    known = controller.nodes(names)
    mine = [name for name in sorted(known) if to_drain(known[name])]
    controller.update(mine, "State=DRAIN", "Reason=" + reason)
    # Ours from an earlier run, too, if this one has to undo it.
    ours = mine + [name for name in sorted(known) if to_resume(known[name], reason)]
    running, end = [], time.monotonic() + params["wait"]
    while known and not check_mode:
        running = controller.jobs(sorted(known))
        if not running or params["jobs_allowed"] or time.monotonic() >= end:
            break
        time.sleep(5)
    failed = bool(running) and not params["jobs_allowed"]
    if failed:
        controller.update(ours, "State=UNDRAIN")
    return {"known": sorted(known), "drained": mine, "jobs": running, "changed": bool(mine) and not failed}, failed


def resume(controller, params):
    """Resume the nodes whose drain is ours."""
    known = controller.nodes(params["names"], needed=False)
    mine = [name for name in sorted(known) if to_resume(known[name], params["reason"], params["prefix"])]
    if params["gpus"] is not None:
        mine = [name for name in mine if has(known[name], params["gpus"])]
    # Not UNDRAIN: a node that was rebooted meanwhile is down as well, by our doing.
    controller.update(mine, "State=RESUME")
    return {"known": sorted(known), "drained": mine, "jobs": [], "changed": bool(mine)}


def reserve(controller, params):
    """Keep nodes for one user's jobs, or no longer, in one reservation with all others that are kept."""
    nodes, name = controller.nodes(params["names"], others=True), params["reservation"]
    there = {node for node, entry in nodes.items() if entry.get("reservation") == name}
    named = {node for node in params["names"] if node in nodes}
    wanted = there | named if params["state"] == "reserved" else there - named
    which = ("ReservationName=" + name, "Nodes=" + ",".join(sorted(wanted)))
    if not there and wanted:
        fixed = ("Users=" + params["user"], "StartTime=now", "Duration=UNLIMITED", "Flags=IGNORE_JOBS")
        controller.scontrol("create", *which, *fixed)
    elif there and not wanted:
        controller.scontrol("delete", which[0])
    elif there != wanted:
        controller.scontrol("update", *which)
    return {"known": sorted(named), "drained": sorted(there ^ wanted), "jobs": [], "changed": there != wanted}


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "names": {"type": "list", "elements": "str", "required": True},
            "state": {"type": "str", "required": True, "choices": ["drained", "resumed", "reserved", "released"]},
            "reason": {"type": "str", "default": ""},
            "reservation": {"type": "str", "default": ""},
            "user": {"type": "str", "default": ""},
            "gpus": {"type": "list", "elements": "str"},
            "prefix": {"type": "bool", "default": False},
            "wait": {"type": "int", "default": 0},
            "jobs_allowed": {"type": "bool", "default": False},
            "container": {"type": "str", "default": "slurmctld"},
        },
        supports_check_mode=True,
    )
    controller = Controller(module)
    if not controller.is_there():
        module.exit_json(changed=False, known=[], drained=[], jobs=[])
    if module.params["state"] == "resumed":
        module.exit_json(**resume(controller, module.params))
    if module.params["state"] in ("reserved", "released"):
        module.exit_json(**reserve(controller, module.params))
    result, failed = drain(controller, module.params, module.check_mode)
    if failed:
        jobs, nodes = ", ".join(result["jobs"]), ", ".join(result["known"])
        module.fail_json(
            msg=f"jobs {jobs} were still running on {nodes} after {module.params['wait']} s; nothing was changed, and "
            "it takes jobs again. Fix: wait for them and run again, or raise nvidia_driver_drain_timeout",
            **result,
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
