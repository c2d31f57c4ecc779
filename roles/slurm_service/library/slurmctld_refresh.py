#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ensure that slurmctld runs with the files in its directory, in the place where it is, or with those of before.

Why not a handler with C(scontrol reconfigure): it is forgotten when the run is killed after the files were written,
and one that fails leaves files with which slurmctld does not start again. No figure: safety, as a killed run must not
leave a controller that cannot start.
"""

from __future__ import annotations

import calendar
import json
import re
import shutil
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
  - Where slurmctld does not answer with other files, or nodes that were up do not register with them, the files of
    before are put back as well, and slurmctld runs with them again, if need be by a start.
  - Keeps the last five configurations with which slurmctld and its nodes ran, in a directory beside the record.
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
rolled_back: {type: bool, returned: failure, description: Whether it runs with the files of before again.}
"""

#: Seconds after which a question to slurmctld is given up; its clients wait for minutes.
ASK_LIMIT = 20
#: Seconds without a further registration after which the nodes that are missing are taken for being down.
QUIET = 8
#: How many configurations are kept, and by which name, of the time when slurmctld had taken each up.
KEPT, STAMP = 5, "%Y-%m-%dT%H:%M:%SZ"
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


def keep(directory, files):
    """Keep the files below the directory, by the time, as the newest of the last five configurations."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = directory / time.strftime(STAMP, time.gmtime(time.time()))
    new.mkdir(mode=0o700, exist_ok=True)
    for name, text in files.items():
        write(new / name, text, 0o600)
    for old in sorted(directory.iterdir())[:-KEPT]:
        shutil.rmtree(old)


def at_start(files):
    """Return the lines of the slurm.conf among files that the nodes' daemons take up at their start alone."""
    return sorted(slurm_running.AT_START.findall(files.get("slurm.conf", "")))


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

    def nodes(self):
        """Return what it says of its nodes; None where it says nothing."""
        try:
            # With those of which it found no address: it has made them FUTURE.
            told = json.loads(self.client("scontrol", "--future", "show", "nodes", "--json")[1])["nodes"]
        except (ValueError, LookupError, TypeError):
            return None
        return [node for node in told if isinstance(node, dict)]

    def wait_for_registrations(self, seconds):
        """Wait until no node is out any more only because it has not registered with what is declared now."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            nodes = self.nodes()
            if nodes is None or all(slurm_running.to_resume(node) is not None for node in nodes):
                return
            time.sleep(0.5)

    def lost(self, before, seconds):
        """Wait until the nodes that were up are up again, and return which are not at the end."""
        end, missing = time.monotonic() + seconds, sorted(before)
        while before:
            nodes = self.nodes()
            missing = missing if nodes is None else slurm_running.lost(before, nodes)
            if not missing or time.monotonic() >= end:
                break
            time.sleep(0.5)
        return missing

    def started(self):
        """Return when its container was started, in seconds since 1970; 0 where that is not known."""
        command = ["docker", "inspect", "--format", "{{.State.StartedAt}}", self.container]
        told = self.module.run_command(bounded(command, ASK_LIMIT))[1]
        try:
            return calendar.timegm(time.strptime(told[:19], "%Y-%m-%dT%H:%M:%S"))
        except ValueError:
            return 0

    def restart(self):
        """Start its container anew, in an orderly way; jobs go on."""
        self.module.run_command(bounded(["docker", "restart", "-t", "60", self.container], 60 + ASK_LIMIT))

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


class Change:
    """What slurmctld is to run with, beside what it is remembered to run with."""

    def __init__(self, module):
        self.module = module
        self.directory, self.record, self.seconds = (module.params[key] for key in ("directory", "record", "wait"))
        self.files = slurm_running.read(self.directory)
        self.written = slurm_running.written(self.directory, self.files)
        self.known = slurm_running.remembered(self.record)
        if "slurm.conf" not in self.files:
            module.fail_json(msg=f"{self.directory}/slurm.conf is not there. Fix: clusterctl provision slurm")
        self.slurmctld = Slurmctld(module, [self.known.files.get("slurm.conf"), self.files["slurm.conf"]])
        self.began, self.restarts = time.time(), self.slurmctld.restarts()

    @property
    def other(self):
        """Whether there are files of before, and they are others."""
        return bool(self.known.files) and self.known.files != self.files

    def remember(self, boot, files, names):
        """Remember with what it runs; where the files are others, keep them as well."""
        Path(self.record).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        write(self.record, json.dumps({"boot": boot, "files": files, "names": names}), 0o600)
        kept = Path(self.record).parent / "kept"
        if files != self.known.files or not kept.is_dir():
            keep(kept, files)

    def fail(self, what):
        """End with what slurmctld has logged, and, where there are files of before, with those."""
        text = f"{what}: {cause(self.slurmctld.log(self.began - 1)) or 'it logged nothing'}"
        back = self.other and self.take_back()
        if self.other:
            text += f". The files of before are back in {self.directory}"
            text += "" if back else ", and slurmctld does not answer with them: docker logs --tail 20 slurmctld"
        self.module.fail_json(
            msg=f"{text}. Fix: correct the inventory, then run 'clusterctl provision slurm' again", rolled_back=back
        )

    def take_back(self):
        """Have slurmctld run with the files of before; return whether it answers with them."""
        put_back(self.directory, self.known.files)
        boot = self.slurmctld.wait(3)
        if boot is not None and boot == self.known.boot:
            return True  # it never took up the others
        if boot is None:
            self.slurmctld.restart()
        else:
            self.slurmctld.client("scontrol", "reconfigure", limit=self.seconds + ASK_LIMIT)
        after = self.slurmctld.wait(self.seconds, other_than=boot)
        if after is not None:
            self.remember(after, self.known.files, self.known.names)
        return after is not None

    def answered(self):
        """Return since when slurmctld runs; end where it does not answer."""
        boot = self.slurmctld.wait(self.seconds)
        if boot is not None:
            return boot
        if self.slurmctld.restarts() > self.restarts:
            self.fail("slurmctld does not start with these files")
        if self.other and self.slurmctld.started() > self.written:
            self.fail(f"slurmctld does not answer within {self.seconds} s with these files")
        told = cause(self.slurmctld.log(self.began - 1)) or "it logged nothing"
        return self.module.fail_json(
            msg=f"slurmctld does not answer within {self.seconds} s: {told}. "
            "Fix: on the controller: docker logs --tail 20 slurmctld"
        )

    def reconfigure(self, boot):
        """Have slurmctld take up its files, and see that the nodes do; return since when it runs with them."""
        # What the nodes' daemons take up by a start alone they have only when that comes: after this.
        watched = self.other and at_start(self.files) == at_start(self.known.files)
        before = slurm_running.up(self.slurmctld.nodes() or []) if watched else set()
        time.sleep(max(0, boot + 1.1 - time.time()))  # a start is told in whole seconds
        code, told = self.slurmctld.client("scontrol", "reconfigure", limit=self.seconds + ASK_LIMIT)
        # It may be done although its client gave up waiting.
        after = self.slurmctld.wait(self.seconds if code == 0 else 3, other_than=boot)
        if after is None and code == 0:
            self.fail(f"slurmctld does not answer within {self.seconds} s with these files")
        if after is None:
            self.fail(f"slurmctld refuses the new files and goes on with the old ones ({told.strip()[-200:]})")
        if missing := self.slurmctld.lost(before, self.seconds):
            names = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
            self.fail(f"{names}: up before, and not within {self.seconds} s with these files")
        self.slurmctld.wait_for_registrations(QUIET)
        return after


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
    change = Change(module)
    slurmctld, known = change.slurmctld, change.known
    boot = change.answered()
    if known.boot not in (None, boot) and time.time() - boot < change.seconds:
        slurmctld.wait_for_nodes(change.seconds)
    now = slurm_running.found(boot, change.files, change.written, slurmctld.hosts())
    reconfigure = slurm_running.needed(now, known)
    if reconfigure:
        now = now._replace(boot=change.reconfigure(boot))
    if now[:3] != known[:3]:
        change.remember(now.boot, change.files, now.names)
    module.exit_json(changed=reconfigure, reconfigured=reconfigure)


if __name__ == "__main__":
    main()
