# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell the control node how far a long work is, while it goes on. Standard library, Python 3.8.

Ansible hands over what a module has printed when the module has ended. What it writes on its standard error comes over
ssh at once, and the control node, which reads it in any case, shows lines of this form (provision/ssh/told.py). So
nothing polls, and no connection is made for it.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import threading

#: The beginning of a line that tells; provision/model/told.py reads it.
MARK = "clusterctl-told:"

#: Seconds between two texts of one work.
EVERY = 2

#: Characters of a program's standard error that are kept, from the end.
KEPT = 100_000


def tell(text, ended=False):
    """Tell how far it is, or what has ended. Where nobody listens, nothing is lost."""
    line = f"{MARK} {'ended' if ended else 'going'} {text}"
    with contextlib.suppress(OSError):
        os.write(2, (" ".join(line.split())[:1000] + "\n").encode("utf-8", "replace"))


class Pace:
    """Tells in a thread what ``look`` returns whenever that has changed: seldom, and the last of it in any case."""

    def __init__(self, look):
        self.look, self.last, self.over = look, "", threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.once()

    def once(self):
        """Tell it, if it is new."""
        text = self.look()
        if text and text != self.last:
            self.last = text
            tell(text)

    def _watch(self):
        while not self.over.wait(EVERY):
            self.once()


def follow(command, reader, what, stdin=None, environment=None):
    """Run a command and return its exit code and output, both streams together; tell what ``reader`` reads in it.

    ``reader`` takes a line and returns how far it is, or nothing; ``what`` is told before that.
    """
    process = subprocess.Popen(
        command,
        stdin=stdin or subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(environment or {})},
    )
    output = tell_of(process.stdout, reader, what)
    return process.wait(), output


def tell_of(stream, reader, what):
    """Return everything in a stream of bytes; tell what ``reader`` reads in its lines."""
    lines, read = [], [""]
    with Pace(lambda: read[-1] and f"{what}: {read[-1]}"):
        for line in stream:
            lines.append(line.decode("utf-8", "replace"))
            read[:] = [reader(lines[-1]) or read[-1]]
    return "".join(lines)


def listen(argv):
    """Run a program that tells by itself; return exit code, standard output and the rest of standard error.

    Raises:
        OSError: it cannot be started.
    """
    rest = []
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE)
        for raw in process.stderr or ():
            line = raw.decode("utf-8", "replace")
            mark, kind, text = (*line.split(None, 2), "", "", "")[:3]
            if mark == MARK and kind in ("going", "ended"):
                tell(text, ended=kind == "ended")
            else:
                rest.append(line)
        code = process.wait()
        output.seek(0)
        return code, output.read().decode("utf-8", "replace"), "".join(rest)[-KEPT:]


class Layers:
    """Reads what ``docker pull`` and ``docker push`` print where there is no terminal: a layer's state in each line."""

    LINE = re.compile(r"([0-9a-f]{12}): (.+)")
    DONE = ("Pushed", "Pull complete", "Already exists", "Layer already exists", "Mounted from")

    def __init__(self):
        self.layers, self.done = set(), set()

    def __call__(self, line):
        """Return how many of the layers are done."""
        found = self.LINE.match(line)
        if not found:
            return ""
        self.layers.add(found[1])
        if found[2].startswith(self.DONE):
            self.done.add(found[1])
        return f"{len(self.done)} of {len(self.layers)} layers"


class Build:
    """Reads what ``docker build`` prints: its steps, and the packages that apt or pip installs in one."""

    STEP = re.compile(r"Step (\d+)/(\d+) : (\w+)")
    APT = re.compile(r"\d+ upgraded, (\d+) newly installed")
    PIP = "Installing collected packages: "

    def __init__(self):
        self.step, self.packages, self.ready = "", 0, 0

    def __call__(self, line):
        """Return the step, and how many packages of it are done."""
        step, apt = self.STEP.match(line), self.APT.match(line)
        if step:
            self.step, self.packages = f"step {step[1]} of {step[2]} ({step[3]})", 0
        elif apt:
            self.packages, self.ready = int(apt[1]), 0
        elif line.startswith(("Unpacking ", "Setting up ")):
            # Each package comes twice: unpacked, then set up.
            self.ready += 1
        elif line.startswith(self.PIP):
            return f"{self.step}: pip installs {len(line[len(self.PIP) :].split(','))} packages"
        if not self.step or not self.packages:
            return self.step
        return f"{self.step}: {min(self.ready // 2, self.packages)} of {self.packages} packages"


def stages(line):
    """Read what mmdebstrap prints: a line for each of its stages."""
    return line[3:].strip().rstrip(".") if line.startswith("I: ") else ""
