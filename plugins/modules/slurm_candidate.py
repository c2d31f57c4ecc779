#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start slurmctld with a configuration, in a container of its own that nobody can reach, to hear whether it can.

Why not C(scontrol reconfigure) or a rule of ours for each value: the one says "Unspecified error" after the files were
written, the other is never complete. Measured (November 2026, Slurm 24.11.5): slurmctld says in 0.01 to 0.3 s that it
refuses, or that it runs.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from ansible.module_utils import checksums, slurm_running
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.machine_commands import bounded

DOCUMENTATION = """
module: slurm_candidate
short_description: Start slurmctld with a configuration to hear whether it can
description:
  - Starts slurmctld of an image with these files and a copy of the saved state, and ends it as soon as it runs. It has
    no network but its own, none of the machine's directories but C(/etc) for its users, and no right on the machine.
  - Changes nothing, and starts nothing where the files in the directory are these already.
  - Asks the slurmctld that runs for its jobs and reservations, where the files are to change.
  - To be told by the action of this name, which prepares the files and judges the answer.
options:
  texts: {type: dict, required: true, description: 'The files by name, as this slurmctld gets them.'}
  sums: {type: dict, required: true, description: 'SHA-256 of the files as they are to be written, by name.'}
  names: {type: list, elements: str, required: true, description: Names of the cluster's machines.}
  format: {type: str, required: true, description: How squeue prints a job.}
  image: {type: str, default: "", description: 'Image by digest; empty where there is none yet.'}
  pull: {type: bool, default: false, description: Whether the image is brought where the machine lacks it.}
  directory: {type: path, required: true, description: Directory of the files with which slurmctld runs.}
  state: {type: path, default: /var/spool/slurmctld, description: Where slurmctld keeps its state.}
  user: {type: str, default: '64030:64030', description: Numbers of its user and group.}
  wait: {type: int, default: 20, description: Seconds that it may take to run.}
"""

RETURN = """
code:
  type: str
  returned: always
  description: C(same), C(absent) (of the image), C(started), C(refused), or C(unknown) where nothing answered.
lines: {type: list, returned: always, description: What slurmctld called an error, else the last that was said.}
live: {type: str, returned: always, description: The slurm.conf of now; empty where there is none, or it stays.}
queue: {type: str, returned: always, description: 'What squeue printed, one job a line; none where it did not answer.'}
reservations: {type: str, returned: always, description: 'What scontrol printed, one reservation a line.'}
"""

#: Seconds that an image may take to come: as for the daemon's container.
PULL_LIMIT = 1800
#: Seconds that the engine may take to start a container and to end one.
ENGINE_LIMIT = 30
#: Seconds that one of Slurm's commands may take.
ASK_LIMIT = 60
READY = "Running as primary controller"
PREFIX = "slurmctld: "
#: What it calls an error although it is none: it has neither state nor accounting here, and no program for mail;
#: how fast the machine's clock is read is no word about a configuration.
NO_ERROR = re.compile(
    r"please ignore error|state file /|^error: NOTE: Trying backup|gathered, but not stored|MailProg is invalid"
    r"|can only be used with SlurmDBD|calls to gettimeofday"
)
#: What is in use where nothing was asked.
NOTHING = {"live": "", "queue": None, "reservations": ""}
#: Exit codes of the engine, of a shell and of timeout: slurmctld has not said anything by them.
NOT_ITS_OWN = (0, 124, 125, 126, 127, 137, 143)
#: Lines of its log that are kept, and characters of each.
LINES, LENGTH = 400, 300

#: Gives the container an address beside 127.0.0.1: where that is the only one, names have none (AI_ADDRCONFIG in
#: getaddrinfo(3)). Then it is slurmctld's user, without any right.
START = """
import fcntl, os, socket, struct, sys
address = struct.pack("16sHH4s16x", b"lo:1", socket.AF_INET, 0, socket.inet_aton("127.0.0.2"))
fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8916, address)
user, group = map(int, sys.argv[1].split(":"))
os.setgroups([])
os.setgid(group)
os.setuid(user)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def runs_with(directory, sums):
    """Tell whether the directory has these files, and no other that slurmctld would hand to the nodes."""
    read = slurm_running.read(directory)
    there = {path.name: path.read_text(encoding="utf-8", errors="surrogateescape") for path in _files(directory)
             if path.name in sums}  # fmt: skip
    return checksums.sums(there) == sums and not set(read) - set(sums)


def laid_out(scratch, params):
    """Write what the container sees: the files, those beside them in the directory, a copy of the state, names."""
    conf, state = scratch / "conf", scratch / "state"
    conf.mkdir(mode=0o755)
    state.mkdir(mode=0o700)
    # Keys and such, which slurmctld reads, too. What nodes fetch is there only if it is declared.
    for path in _files(params["directory"]):
        if path.name not in slurm_running.FETCHED and not path.name.startswith("slurmdbd.conf"):
            copied(path, conf / path.name)
    for name, text in params["texts"].items():
        (conf / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    for path in _files(params["state"]):
        if path.suffix not in (".old", ".new", ".pid"):
            copied(path, state / path.name)
    user, group = map(int, params["user"].split(":"))
    os.chown(state, user, group)
    names = "".join(f"127.0.0.1\t{name}\n" for name in dict.fromkeys(["localhost", *params["names"]]))
    (scratch / "hosts").write_text(names, encoding="utf-8")


def _files(directory):
    """Return the files in a directory, none where there is none."""
    return [path for path in sorted(Path(directory).glob("*")) if path.is_file()]


def copied(source, target):
    """Copy a file with mode and owner; slurmctld, which goes on, may just have put another in its place."""
    try:
        shutil.copy2(source, target)
        status = source.stat()
        os.chown(target, status.st_uid, status.st_gid)
    except FileNotFoundError:
        pass


def command(scratch, name, params):
    """Return the words that start the container."""
    mounts = {
        f"{scratch}/conf": "/etc/slurm:ro", f"{scratch}/state": "/var/spool/slurmctld",
        f"{scratch}/hosts": "/etc/hosts:ro", "/etc": "/run/machine-etc:ro",
    }  # fmt: skip
    words = ["docker", "run", "--rm", "--name", name, "--network", "none", "--hostname", socket.gethostname()]
    words += ["--log-driver", "none", "--read-only", "--tmpfs", "/tmp", "--tmpfs", "/run/slurm:mode=1777"]  # noqa: S108
    words += ["--user", "0:0", "--security-opt", "no-new-privileges", "--cap-drop", "ALL"]
    words += [word for right in ("NET_ADMIN", "SETGID", "SETUID") for word in ("--cap-add", right)]
    words += [word for source, target in mounts.items() for word in ("--volume", f"{source}:{target}")]
    words += ["--entrypoint", "python3", params["image"], "-c", START, params["user"]]
    # With -v it says when it is ready, whatever SlurmctldDebug is.
    return [*words, *bounded(["slurmctld", "-D", "-v"], params["wait"])]


def asked(words, seconds, end):
    """Run the container until slurmctld is ready or has ended; return whether it is, the exit code, and its lines."""
    lines: list = []
    ready = False
    process = subprocess.Popen(
        bounded(words, seconds), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        for line in process.stdout or ():
            lines = [*lines[1 - LINES :], re.sub(r"[^\x20-\x7e]", "?", line.rstrip())[:LENGTH]]
            ready = line.startswith(PREFIX) and READY in line
            if ready:
                break
    finally:
        end()
    return ready, process.wait(), lines


def judged(ready, code, lines):
    """Return what this says: a code, and the lines to show."""
    own = [line[len(PREFIX) :] for line in lines if line.startswith(PREFIX)]
    errors = [line for line in own if re.match(r"(?:error|fatal):", line) and not NO_ERROR.search(line)]
    if ready:
        return "started", list(dict.fromkeys(errors))[-4:]
    if code in NOT_ITS_OWN or not errors:
        return "unknown", (errors or lines)[-4:]
    return "refused", list(dict.fromkeys(errors))[-4:]


def used(docker, directory, layout):
    """Return the slurm.conf of now, and what is in use of what it gives, in the words of Slurm's commands."""
    live = Path(directory) / "slurm.conf"
    if not live.is_file():
        return NOTHING

    def said(*words):
        code, out, _ = docker("exec", "slurmctld", *bounded(list(words), ASK_LIMIT), limit=ASK_LIMIT + ENGINE_LIMIT)
        return None if code else out

    queue = said("squeue", "--all", "--noheader", "--array", f"--format={layout}")
    reservations = said("scontrol", "show", "reservation", "--oneliner") if queue is not None else ""
    text = live.read_text(encoding="utf-8", errors="replace")
    return {"live": text, "queue": queue, "reservations": reservations or ""}


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "texts": {"type": "dict", "required": True},
            "sums": {"type": "dict", "required": True},
            "names": {"type": "list", "elements": "str", "required": True},
            "format": {"type": "str", "required": True},
            "image": {"type": "str", "default": ""},
            "pull": {"type": "bool", "default": False},
            "directory": {"type": "path", "required": True},
            "state": {"type": "path", "default": "/var/spool/slurmctld"},
            "user": {"type": "str", "default": "64030:64030"},
            "wait": {"type": "int", "default": 20},
        },
        supports_check_mode=True,
    )
    params = module.params

    def docker(*words, limit=ENGINE_LIMIT):
        return module.run_command(bounded(["docker", *words], limit))

    found = NOTHING

    def end(code, lines=()):
        module.exit_json(changed=False, code=code, lines=list(lines), **found)

    if runs_with(params["directory"], params["sums"]):
        return end("same")
    found = used(docker, params["directory"], params["format"])
    if not params["image"]:
        return end("absent")
    if docker("image", "inspect", params["image"])[0]:
        if not params["pull"]:
            return end("absent")
        code, _, problem = docker("pull", "--quiet", params["image"], limit=PULL_LIMIT)
        if code:
            return end("unknown", problem.strip().splitlines()[-1:])
    name = f"slurmctld-candidate-{os.getpid()}"
    try:
        with tempfile.TemporaryDirectory(prefix="slurmctld-candidate-") as scratch:
            laid_out(Path(scratch), params)
            words, seconds = command(scratch, name, params), params["wait"] + ENGINE_LIMIT
            answer = asked(words, seconds, lambda: docker("rm", "--force", name))
    except OSError as error:
        return end("unknown", [f"the machine: {error}"])
    return end(*judged(*answer))


if __name__ == "__main__":
    main()
