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

from ansible.module_utils import checksums, slurm_running
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.machine_commands import bounded

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
#: The same for sackd, which is started anew where they do not come: commands of users notice that, and no job waits.
SENT_TO_LOGINS = 30

#: What slurmd logs where a new one did not come up in its place: _try_to_reconfig() in src/slurmd/slurmd/slurmd.c.
REFUSED = "Resuming operation, reconfigure failed"

#: For how long slurmd waits, at most, for a Prolog, an Epilog or a message before it starts a new one: the same.
WAITED = re.compile(
    r"^(?:MessageTimeout|PrologEpilogTimeout|PrologTimeout|EpilogTimeout)=([0-9]{1,6})\s*$", re.M | re.I
)


class Daemon:
    """slurmd or sackd in its container; ``run`` runs a command and returns its exit code, output and problem."""

    def __init__(self, params, run):
        self.expected = params["expected"]
        self.cache = Path(params["cache"])
        self.ready = params["ready"] and Path(params["ready"])
        self.container = params["container"]
        self.node = params["node"]
        self.wait = params["wait"]
        self._run = run

    def docker(self, *words):
        """Run Docker's command, and return code, output and problem."""
        return self._run(bounded(["docker", *words], ANSWER))

    def scontrol(self, *words):
        """Run scontrol in its container, and return code, output and problem."""
        return self.docker("exec", self.container, "scontrol", *words)

    def differing(self):
        """Return the files that are not as expected: other content, or a script that slurmd cannot run.

        slurmd 24.11.5 once left the scripts without that permission, and drained its node with "Prolog error".
        """
        texts = slurm_running.read(self.cache)
        found = checksums.sums(texts)
        return sorted(
            name
            for name, checksum in self.expected.items()
            if found.get(name) != checksum
            or (texts[name].startswith("#!") and not os.access(self.cache / name, os.X_OK))
        )

    def behind(self):
        """Return what it has not got to, FILES, START or CONFIGURATION, and that in words; else nothing."""
        wrong = self.differing()
        noted = not self.ready or slurm_running.taken_up(self.ready, self.cache, self.expected)
        if noted and not wrong:
            return "", ""
        if self.ready and not self.come_up():
            return START, f"{self.container} has not come up"
        if wrong:
            return FILES, f"{self.container} did not fetch {', '.join(wrong)}"
        return CONFIGURATION, f"{self.container} did not come up with what it has fetched, and goes on as before"

    def come_up(self):
        """Tell whether a slurmd has come up since its container was started."""
        code, told, _ = self.docker("inspect", "--format", "{{.State.StartedAt}}", self.container)
        try:
            started = calendar.timegm(time.strptime(told[:19], "%Y-%m-%dT%H:%M:%S"))
            return code == 0 and self.ready.stat().st_mtime >= started
        except (ValueError, OSError):
            return False

    def refused(self, since):
        """Tell whether it was logged since then, in seconds since 1970, that a new slurmd did not come up."""
        return any(REFUSED in text for text in self.docker("logs", "--since", f"{since:.6f}", self.container)[1:])

    def waits_itself(self):
        """Return for how many seconds slurmd waits before it starts a new one."""
        return max(map(int, WAITED.findall(slurm_running.read(self.cache).get("slurm.conf", ""))), default=10)

    def settled(self, files, since):
        """Wait until it runs with what it is to have, as it does by itself; return what behind() says.

        ``files`` is for how many seconds those are waited for, ``since`` when it was sent or told the last time.
        """
        begun = time.monotonic()
        while True:
            kind, told = self.behind()
            limit = files if kind == FILES else self.wait + self.waits_itself()
            if not kind or time.monotonic() - begun >= limit or (kind == CONFIGURATION and self.refused(since)):
                return kind, told
            time.sleep(0.5)

    def again(self, kind):
        """Have the files sent again, or a new slurmd started with those that are there; return what was wrong."""
        if kind == CONFIGURATION:
            return self.hang_up()
        code, told, problem = (
            self.scontrol("reconfigure") if self.node else self.docker("restart", "--time", "10", self.container)
        )
        return (problem or told or f"exit code {code}") if code else ""

    def hang_up(self):
        """Send SIGHUP to the container's first process; return what was wrong, or nothing."""
        code, told, problem = self.docker("inspect", "--format", "{{.State.Pid}}", self.container)
        pid = int(told) if code == 0 and told.strip().isdecimal() else 0
        if pid < 2:
            return problem or f"{self.container} does not run"
        try:
            os.kill(pid, signal.SIGHUP)
        except OSError as error:
            return str(error)
        return ""

    def refresh(self):
        """Have it run with what it is to have; return whether it was told to, and what is wrong in the end."""
        paths = (self.cache / name for name in self.expected)
        sent = SENT if self.node else SENT_TO_LOGINS
        kind, told = self.settled(sent, max((path.stat().st_mtime for path in paths if path.exists()), default=0))
        problem, needed = "", kind in (FILES, CONFIGURATION)
        if needed:
            now = time.time()
            problem = self.again(kind)
            if not problem:
                kind, told = self.settled(self.wait, now)
        if not kind:
            return needed, ""
        logs = " ".join(text.strip() for text in self.docker("logs", "--tail", "5", self.container)[1:])
        return needed, f"{told}: {problem.strip()} {logs}"

    def resumable(self):
        """Tell whether the node waits for nothing but this; a registration may be on its way."""
        # As long as for the files: a slow machine's registration comes after them.
        end = time.monotonic() + self.wait
        while True:
            _, told, _ = self.scontrol("show", "node", self.node, "--json")
            try:
                answer = slurm_running.to_resume(json.loads(told)["nodes"][0])
            except (ValueError, LookupError):
                return False  # the role's own proof says what is wrong with a slurmctld that does not answer
            if answer is not None or time.monotonic() >= end:
                return bool(answer)
            time.sleep(1)


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
    daemon = Daemon(module.params, module.run_command)
    refreshed, problem = daemon.refresh()
    if problem:
        module.fail_json(msg=problem)
    resumed = bool(daemon.node) and daemon.resumable()
    if resumed:
        code, _, problem = daemon.scontrol("update", f"NodeName={daemon.node}", "State=RESUME")
        if code:
            module.fail_json(msg=f"Slurm did not resume {daemon.node}: {problem.strip()}")
    module.exit_json(changed=refreshed or resumed, refreshed=refreshed, resumed=resumed)


if __name__ == "__main__":
    main()
