#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ensure that slurmd or sackd has the controller's configuration, without touching jobs, and its node takes jobs again.

Why not a handler with C(docker kill --signal): it is forgotten when the run is killed, and after it Docker does not
start slurmd again when that ends. This saves jobs: slurmd is not restarted for a changed file. No figure: safety, as
jobs go on.
"""

from __future__ import annotations

import calendar
import json
import os
import re
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
  - Compares the files that slurmd fetched with the controller's and, where they differ, has slurmctld send them again
    (C(scontrol reconfigure); a slurmd that is told to start anew takes those that it has). Looks at what is, so an
    interrupted run is made up for.
  - A slurmd that cannot do with a new configuration ends after it was fetched, and the old one goes on, of which
    C(scontrol reconfigure) says nothing. It is told once more (SIGHUP, which starts a new one in its place; jobs go
    on); where that ends, too, the module fails with what was logged.
  - The signal goes to the container's first process and not through C(docker kill), after which Docker would no longer
    start the container again when slurmd ends; and to none that has not come up, which it would end.
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
  wait: {type: int, default: 60, description: "Seconds that it may take, beside those for which slurmd waits itself."}
"""

#: Seconds that an answer of Docker, or of Slurm through it, may take.
ANSWER = 60

#: What a daemon may not have got to.
FILES, START, CONFIGURATION = "files", "start", "configuration"

#: Seconds in which the files come by themselves, where slurmctld has sent them.
SENT = 10

#: What slurmd logs where a new one did not come up in its place: _try_to_reconfig() in src/slurmd/slurmd/slurmd.c.
REFUSED = "Resuming operation, reconfigure failed"

#: For how long slurmd waits, at most, for a Prolog, an Epilog or a message before it starts a new one: the same.
WAITED = re.compile(
    r"^(?:MessageTimeout|PrologEpilogTimeout|PrologTimeout|EpilogTimeout)=([0-9]{1,6})\s*$", re.M | re.I
)


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

    def come_up():
        """Tell whether a slurmd has come up since its container was started."""
        code, told, _ = docker("inspect", "--format", "{{.State.StartedAt}}", container)
        try:
            started = calendar.timegm(time.strptime(told[:19], "%Y-%m-%dT%H:%M:%S"))
            return code == 0 and Path(ready).stat().st_mtime >= started
        except (ValueError, OSError):
            return False

    def refused(since):
        """Tell whether it was logged since then, in seconds since 1970, that a new slurmd did not come up."""
        return any(REFUSED in text for text in docker("logs", "--since", f"{since:.6f}", container)[1:])

    def behind():
        """Return what the daemon has not got to, FILES, START or CONFIGURATION, and that in words; else nothing."""
        wrong = differing(module, expected, cache)
        noted = taken_up(ready, cache, expected) if ready and expected else True
        if noted and not wrong:
            return "", ""
        if ready and not come_up():
            return START, f"{container} has not come up"
        if wrong:
            return FILES, f"{container} did not fetch {', '.join(wrong)}"
        return CONFIGURATION, f"{container} did not come up with what it has fetched, and goes on as before"

    def settled(files, since):
        """Wait until the daemon runs with what it is to have, as it does by itself; return what behind() says.

        ``files`` is for how many seconds those are waited for, ``since`` when it was sent or told the last time.
        """
        begun = time.monotonic()
        while True:
            kind, told = behind()
            limit = files if kind == FILES else module.params["wait"] + waits_itself()
            if not kind or time.monotonic() - begun >= limit or (kind == CONFIGURATION and refused(since)):
                return kind, told
            time.sleep(0.5)

    def waits_itself():
        """Return for how many seconds slurmd waits before it starts a new one."""
        try:
            text = Path(cache, "slurm.conf").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return 0
        return max(map(int, WAITED.findall(text)), default=10)

    def again(kind):
        """Have the files sent again, or a new slurmd started with those that are there; return what was wrong."""
        if kind == CONFIGURATION:
            return hang_up()
        code, told, problem = (
            scontrol("reconfigure") if module.params["node"] else docker("restart", "--time", "10", container)
        )
        return (problem or told or f"exit code {code}") if code else ""

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

    sent = [path.stat().st_mtime for name in expected if (path := Path(cache, name)).exists()]
    kind, told = settled(SENT, max(sent, default=0))
    refresh, problem = kind in (FILES, CONFIGURATION), ""
    if refresh:
        now = time.time()
        problem = again(kind)
        if not problem:
            kind, told = settled(module.params["wait"], now)
    if kind:
        logs = " ".join(text.strip() for text in docker("logs", "--tail", "5", container)[1:])
        module.fail_json(msg=f"{told}: {problem.strip()} {logs}")
    # As long as for the files: a slow machine's registration comes after them.
    resume = bool(module.params["node"]) and resumable(module.params["wait"])
    if resume:
        code, _, problem = scontrol("update", f"NodeName={module.params['node']}", "State=RESUME")
        if code:
            module.fail_json(msg=f"Slurm did not resume {module.params['node']}: {problem.strip()}")
    module.exit_json(changed=refresh or resume, refreshed=refresh, resumed=resume)


if __name__ == "__main__":
    main()
