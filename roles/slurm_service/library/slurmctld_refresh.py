#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ensure that slurmctld runs with the files in its directory, in the place where it is, or with those of before.

Why not a handler with C(scontrol reconfigure): it is forgotten when the run is killed after the files were written,
and one that fails leaves files with which slurmctld does not start again. No figure: safety, as a killed run must not
leave a controller that cannot start.
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
module: slurmctld_refresh
short_description: Ensure that slurmctld runs with the files in its directory
description:
  - Remembers with which files and which addresses of the cluster's machines slurmctld runs, and since when by its own
    answer. Where they are others, has it reconfigure itself in its place (scontrol reconfigure), which tells the nodes
    as well. Looks at what is, so an interrupted run is made up for.
  - A reconfiguration that fails leaves the old slurmctld running (scontrol(1), 23.11 and later). The files of before
    are then put back, so that a restart finds them, and the module fails with what slurmctld logged.
  - After a reconfiguration, waits for nodes to register that slurmctld has taken out for having less than declared.
  - After a start, waits for nodes to register, because steps that are asked for before that hang for two minutes.
options:
  directory: {type: path, required: true, description: Directory of the files.}
  container: {type: str, default: slurmctld, description: Name of its container.}
  record: {type: path, default: /var/lib/clusterctl/slurm/running.json, description: Where it is remembered.}
  wait: {type: int, default: 60, description: Seconds that slurmctld may take to answer.}
"""

RETURN = """
reconfigured: {type: bool, returned: success, description: Whether slurmctld was reconfigured.}
"""

#: Seconds after which a question to slurmctld is given up; its clients wait for minutes.
ASK_LIMIT = 20
#: Seconds without a further registration after which the nodes that are missing are taken for being down.
QUIET = 8
#: slurmctld's own word for an error that it logs at each start without control groups.
NO_ERROR = "please ignore error"
#: With the slurm.conf on standard input: the one in the directory may be what no client can read.
ASK = """
d=$(mktemp -d /tmp/clusterctl.XXXXXX) && trap 'rm -rf "$d"' EXIT && cat >"$d/slurm.conf" &&
SLURM_CONF=$d/slurm.conf "$@"
"""


def write(path, text, mode):
    """Write a file, whole or not at all."""
    new = Path(f"{path}.new")
    new.write_text(text, encoding="utf-8", errors="surrogateescape")
    new.chmod(mode)
    new.replace(path)


def put_back(directory, wanted):
    """Give the directory the files of ``wanted``, and no other that slurmctld would read."""
    for name in set(slurm_running.read(directory)) - set(wanted):
        (Path(directory) / name).unlink()
    for name, text in wanted.items():
        write(Path(directory) / name, text, 0o644)


def cause(log):
    """Return what a log says about a failure: its last errors, or else its last lines, without control characters.

    After what ends a reconfiguration ("fatal") the old slurmctld goes on, and what it logs then is not the cause.
    """
    lines = [re.sub(r"[^\x20-\x7e]", "?", line)[:300] for line in log.splitlines() if line.strip()]
    ended = max((number for number, line in enumerate(lines) if re.search(r"\bfatal\b", line)), default=len(lines))
    errors = [line for line in lines[: ended + 1] if re.search(r"\b(fatal|error)\b", line) and NO_ERROR not in line]
    return "; ".join((errors or lines)[-4:])


class Slurmctld:
    """slurmctld, asked and told through its container."""

    def __init__(self, module, confs):
        # The first with which it answers is kept: only a start gives it another port.
        self.module, self.confs = module, list(dict.fromkeys(conf for conf in confs if conf))
        self.container = module.params["container"]

    def client(self, *words, conf=None, limit=ASK_LIMIT):
        """Run a client command, which reads ``conf``, and return its exit code and output."""
        command = ["docker", "exec", "--interactive", "--env", "SLURM_TIME_FORMAT=%s", self.container, "sh", "-c", ASK]
        code, output, problem = self.module.run_command(
            bounded([*command, "sh", *words], limit), data=conf or self.confs[0]
        )
        return code, output if code == 0 else problem

    def boot(self):
        """Return since when it has run with its files, in seconds since 1970, or None where it does not answer."""
        for conf in self.confs:
            told = self.client("scontrol", "show", "config", conf=conf)[1]
            found = re.search(r"^BOOT_TIME\s*=\s*([0-9]{1,12})$", told, re.M)
            if found:
                self.confs = [conf]
                return int(found[1])
        return None

    def hosts(self):
        """Return what its container's hosts file holds of the cluster, and since when (slurm_running.HOSTS)."""
        command = ["docker", "exec", self.container, "sh", "-c", slurm_running.HOSTS]
        return self.module.run_command(bounded(command, ASK_LIMIT))[1]

    def wait(self, seconds, other_than=None):
        """Return its start once it answers, and names another than the given one; None if it does not."""
        end = time.monotonic() + seconds
        while True:
            boot = self.boot()
            if boot is not None and boot != other_than:
                return boot
            if time.monotonic() >= end:
                return None
            time.sleep(0.5)

    def unregistered(self):
        """Return how many nodes have not registered since its start."""
        code, told = self.client("sinfo", "--noheader", "--states=unknown", "--format=%D")
        return sum(int(word) for word in told.split() if word.isdecimal()) if code == 0 else 0

    def wait_for_nodes(self, seconds):
        """Wait until all nodes have registered, or no further one does."""
        end, fewest, since = time.monotonic() + seconds, None, time.monotonic()
        while time.monotonic() < end:
            count = self.unregistered()
            if fewest is None or count < fewest:
                fewest, since = count, time.monotonic()
            if count == 0 or time.monotonic() - since > QUIET:
                return
            time.sleep(0.5)

    def wait_for_registrations(self, seconds):
        """Wait until no node is out any more only because it has not registered with what is declared now."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                nodes = json.loads(self.client("scontrol", "show", "nodes", "--json")[1])["nodes"]
            except (ValueError, LookupError, TypeError):
                return
            if all(slurm_running.to_resume(node) is not None for node in nodes):
                return
            time.sleep(0.5)

    def log(self, since):
        """Return what it has logged since a point in time."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since))
        command = ["docker", "logs", "--since", stamp, "--tail", "200", self.container]
        _, output, problem = self.module.run_command(bounded(command, ASK_LIMIT))
        return output + problem

    def restarts(self):
        """Return how often the engine has started it again after it had ended by itself."""
        command = ["docker", "inspect", "--format", "{{.RestartCount}}", self.container]
        output = self.module.run_command(bounded(command, ASK_LIMIT))[1].strip()
        return int(output) if output.isdecimal() else 0


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "container": {"type": "str", "default": "slurmctld"},
            "record": {"type": "path", "default": slurm_running.RECORD},
            "wait": {"type": "int", "default": 60},
        },
    )
    directory, record, wait = (module.params[key] for key in ("directory", "record", "wait"))
    files = slurm_running.read(directory)
    known = slurm_running.remembered(record)
    if "slurm.conf" not in files:
        module.fail_json(msg=f"{directory}/slurm.conf is not there. Fix: clusterctl provision slurm")
    slurmctld = Slurmctld(module, [known.files.get("slurm.conf"), files["slurm.conf"]])
    began, restarts = time.time(), slurmctld.restarts()

    def fail(what):
        told = cause(slurmctld.log(began - 1))
        text = f"{what}: {told or 'it logged nothing'}"
        if known.files and known.files != files:
            put_back(directory, known.files)
            text += f". The files of before are back in {directory}"
        module.fail_json(msg=f"{text}. Fix: correct the inventory, then run 'clusterctl provision slurm' again")

    boot = slurmctld.wait(wait)
    if boot is None:
        if slurmctld.restarts() > restarts:
            fail("slurmctld does not start with these files")
        module.fail_json(
            msg=f"slurmctld does not answer within {wait} s: {cause(slurmctld.log(began - 1)) or 'it logged nothing'}. "
            "Fix: on the controller: docker logs --tail 20 slurmctld"
        )
    if known.boot not in (None, boot) and time.time() - boot < wait:
        slurmctld.wait_for_nodes(wait)
    now = slurm_running.found(boot, files, slurm_running.written(directory, files), slurmctld.hosts())
    reconfigure = slurm_running.needed(now, known)
    if reconfigure:
        time.sleep(max(0, boot + 1.1 - time.time()))  # a start is told in whole seconds
        code, told = slurmctld.client("scontrol", "reconfigure", limit=wait + ASK_LIMIT)
        # It may be done although its client gave up waiting.
        after = slurmctld.wait(wait if code == 0 else 3, other_than=boot)
        if after is None:
            fail(f"slurmctld refuses the new files and goes on with the old ones ({told.strip()[-200:]})")
        now = now._replace(boot=after)
        slurmctld.wait_for_registrations(QUIET)
    if now[:3] != known[:3]:
        Path(record).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        write(record, json.dumps({"boot": now.boot, "files": files, "names": now.names}), 0o600)
    module.exit_json(changed=reconfigure, reconfigured=reconfigure)


if __name__ == "__main__":
    main()
