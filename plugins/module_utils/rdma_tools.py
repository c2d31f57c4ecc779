# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One side of one transfer over RDMA: the tool, its addresses, and the device's counters before and after it.

Standard library, Python 3.8.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

from ansible.module_utils.machine_rdma import counters, gids

#: Messages of the pings, and of a bandwidth measurement on software adapters, whose packets cost processor time: an
#: emulated processor takes a tenth of a second for a ping.
_PINGS, _SOFTWARE_PINGS, _PING_BYTES = 1000, 20, 4096
_MESSAGES, _MESSAGE_BYTES = 200, 65536
_LISTENING = "0A"


def gid_index(found):
    """Return the address to use on Ethernet: RoCE v2 over IPv4 before IPv6 before anything; None for InfiniBand."""
    by_preference = sorted(found, key=lambda gid: ("v2" not in gid["type"], ":ffff:" not in gid["gid"], gid["index"]))
    return by_preference[0] if by_preference and by_preference[0]["netdev"] else None


def gid_of(rail):
    """Return the address to use on a rail."""
    return gid_index(gids("/", rail["device"], rail["port"]))


def ipv4(gid):
    """Return the IPv4 address within a GID such as ``0000:...:ffff:0a00:0001``; empty where there is none."""
    found = re.search(r":ffff:([0-9a-f]{2})([0-9a-f]{2}):([0-9a-f]{2})([0-9a-f]{2})$", gid)
    return ".".join(str(int(part, 16)) for part in found.groups()) if found else ""


def command(test, rail, gid, port, peer, seconds):
    """Return the command of one side; ``peer`` is empty for the side that serves. None where it cannot be done."""
    device = ["-d", rail["device"], "-i", str(rail["port"]), "-p", str(port)]
    if test == "rping":
        if not peer:
            return ["rping", "-s", "-a", ipv4(gid["gid"]) if gid else "", "-p", str(port), "-C", "10", "-v"]
        return ["rping", "-c", "-a", peer, "-p", str(port), "-C", "10", "-v"]
    if test == "pingpong":
        chosen = ["-g", str(gid["index"])] if gid else []
        amount = ["-s", str(_PING_BYTES), "-n", str(_SOFTWARE_PINGS if rail["software"] else _PINGS)]
        return ["ibv_rc_pingpong", *device, *chosen, *amount, *([peer] if peer else [])]
    chosen = ["-x", str(gid["index"])] if gid else []
    amount = ["-n", str(_MESSAGES)] if rail["software"] else ["-D", str(seconds), "-q", "4"]
    tool = f"ib_{test}_bw"
    return [
        tool,
        *device,
        *chosen,
        *amount,
        "-s",
        str(_MESSAGE_BYTES),
        "-F",
        "--report_gbits",
        *([peer] if peer else []),
    ]


def listening(port):
    """Tell whether something on this machine listens on a TCP port."""
    wanted = f":{port:04X}"
    for name in ("tcp", "tcp6"):
        try:
            lines = Path("/proc/net", name).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        if any(words[1].endswith(wanted) and words[3] == _LISTENING for words in map(str.split, lines)):
            return True
    return False


class Tool:
    """One side of one transfer: a process as an ordinary user, and the device's counters before and after it."""

    def __init__(self, words, settings, rail):
        self.words, self.rail = words, rail
        self.before = counters("/", rail["device"], rail["port"])
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the tool
        # The outer timeout holds also when this process is killed and cannot end its tools.
        bounded = ["timeout", "-k", "2", str(settings["timeout"]), *words]
        line = " ".join("'" + word.replace("'", "") + "'" for word in bounded)
        whole = ["su", "-s", "/bin/sh", settings["user"], "-c", f"exec {line}"] if os.geteuid() == 0 else bounded
        self.begun = time.monotonic()
        self.process = subprocess.Popen(
            whole,
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env={**os.environ, "LC_ALL": "C", "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin"},
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
        self.output.close()

    def end(self):
        """End the process, if it has not ended. Nothing is left behind, whatever happens here or on the other side."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def ready(self, port, seconds):
        """Wait until the server listens; tell whether it does."""
        if self.words[0] == "rping":
            # It listens with the RDMA connection manager, which nobody can look at from outside.
            time.sleep(1)
            return self.process.poll() is None
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            if listening(port):
                return True
            time.sleep(0.05)
        return False

    def result(self, seconds):
        """Wait for the end, or bring it about, and return what there is to say."""
        ended = True
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            ended = False
            self.end()
        spent = time.monotonic() - self.begun
        after = counters("/", self.rail["device"], self.rail["port"])
        self.output.seek(0)
        text = self.output.read().decode("utf-8", "replace")
        return {
            "command": " ".join(self.words),
            "rc": self.process.returncode if ended else 124,
            "output": text[-1500:],
            "seconds": round(spent, 2),
            "moved": {name: after[name] - was for name, was in self.before.items() if after.get(name, was) != was},
        }
