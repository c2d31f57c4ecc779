# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a command on a machine so that the wait for it ends. Standard library, Python 3.8.

A question, whose answer is all that matters, is asked by ``run``: at its limit the program is killed with whatever it
has started, and a process that cannot be killed, because it waits for a device, is left behind and not waited for.

What changes something, and what goes through Docker's client, is run by Ansible's own ``module.run_command`` with
``bounded``: it is asked to end before it is killed, which Docker's client hands on to the command in the container, and
it ends also after the module was killed. Ansible's function alone has no limit.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time

#: Bytes of an answer that are read. The longest that is expected, a list of packages, has a tenth of it.
BYTES = 1 << 20


def bounded(command, seconds):
    """Return a command that is asked to end after so many seconds, and killed 5 s later; its code is then 124 or 137.

    ``timeout`` makes a process group for it, and signals all of that.
    """
    return ["timeout", "--kill-after=5", str(seconds), *command]


def run(command, seconds, stdin="", errors=True, environment=None, **identity):
    """Return exit code and output of a command: text, with what it wrote to stderr where ``errors``, or that in a file.

    The code is None where there was no answer: the text then says why, or is empty where there is no such program.
    It runs in the locale C with ``environment`` besides, in a session of its own, as another user where ``identity``
    (``user``, ``group``, ``extra_groups``, as subprocess has them) says so.
    """
    with tempfile.TemporaryFile() as given:
        given.write(stdin.encode("utf-8"))
        given.seek(0)
        try:
            process = subprocess.Popen(
                command,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if errors is True else errors or subprocess.DEVNULL,
                env={**os.environ, "LC_ALL": "C", **(environment or {})},
                start_new_session=True,
                **identity,
            )
        except OSError:
            return None, ""
    end = time.monotonic() + seconds
    answer, why = _read(process.stdout, end, seconds)
    try:
        process.wait(0.1 if why else max(0.1, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        why = why or _late(seconds)
    if why:
        _kill(process)
        return None, why
    return process.returncode, answer.decode("utf-8", "replace")


def printed(command, seconds=60, environment=None):
    """Return what a command printed on standard output, also when it failed; None where there was no answer."""
    code, text = run(command, seconds, errors=False, environment=environment)
    return None if code is None else text


def answer(ask, patience=1):
    """Return exit code and output of a program that is asked: ``argv``, ``stdin``, ``seconds`` (30 where left out)."""
    code, text = run(ask["argv"], int(ask.get("seconds", 30)) * patience, stdin=ask.get("stdin", ""))
    return {"rc": code, "text": text}


def _late(seconds):
    return f"did not answer in {seconds} s"


def _read(stream, end, seconds):
    """Return what was printed until ``end``, and why there is no more of it; nothing where all was read."""
    chunks: list = []
    size = 0
    with stream:
        while select.select([stream], [], [], max(0, end - time.monotonic()))[0]:
            chunk = os.read(stream.fileno(), 65536)
            if not chunk:
                return b"".join(chunks), ""
            chunks.append(chunk)
            size += len(chunk)
            if size > BYTES:
                return b"", f"printed more than {BYTES} bytes"
    return b"", _late(seconds)


def _kill(process):
    """End a process and all of its group, without waiting for one that cannot be ended."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(1)
    except (OSError, subprocess.TimeoutExpired):
        pass
