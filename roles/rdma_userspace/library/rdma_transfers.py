#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Move data to other machines over RDMA, both sides at once, and report what the tools and the counters said."""

from __future__ import annotations

import hmac
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.machine_rdma import counters, gids

DOCUMENTATION = """
module: rdma_transfers
short_description: Move data to other machines over RDMA and report what the tools and the counters said
description:
  - Runs on all machines at the same time. Each goes through its own steps in order and meets the machine of each step;
    they agree over a TCP connection of their own, so nobody guesses when the other is ready, and a machine that is
    gone is noticed at once and costs the others one wait.
  - The tools run as an ordinary user after a login's limits, because root may lock any amount of memory. Every one of
    them is bounded by a timeout of its own, also when this module is killed.
options:
  address: {type: str, required: true, description: This machine's address for the agreement.}
  name: {type: str, required: true, description: This machine's name in the others' steps.}
  steps: {type: list, elements: dict, required: true, description: 'As provision.rdma.rounds.schedule returns them.'}
  token: {type: str, required: true, description: 'What all machines of this run know, so that no stranger is served.'}
  port: {type: int, default: 18514, description: TCP port of the agreement; the tools use the next one.}
  user: {type: str, default: nobody, description: The ordinary user as whom the tools run.}
  seconds: {type: int, default: 3, description: How long bandwidth is measured on real adapters.}
  timeout: {type: int, default: 30, description: Seconds that one tool may take.}
  patience: {type: int, default: 120, description: Seconds until all machines have begun.}
"""

#: Messages of the pings, and of a bandwidth measurement on software adapters, whose packets cost processor time: an
#: emulated processor takes a tenth of a second for a ping.
_PINGS, _SOFTWARE_PINGS, _PING_BYTES = 1000, 20, 4096
_MESSAGES, _MESSAGE_BYTES = 200, 65536

_BANDWIDTH = ("write", "read")
_LISTENING = "0A"


class GoneError(Exception):
    """The other machine cannot be reached, or has ended."""


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


class Line:
    """Messages over one connection, a line of JSON each."""

    def __init__(self, connection):
        self.connection = connection
        self.stream = connection.makefile("rw", encoding="utf-8", newline="\n")

    def send(self, **message):
        try:
            self.stream.write(json.dumps(message) + "\n")
            self.stream.flush()
        except (OSError, ValueError) as error:
            raise GoneError(f"the other machine is gone: {error}") from None

    def receive(self, seconds):
        self.connection.settimeout(seconds)
        try:
            text = self.stream.readline(4096)
            if not text:
                raise GoneError("the other machine has ended in the middle of it")
            return json.loads(text)
        except (OSError, ValueError) as error:
            raise GoneError(f"the other machine says nothing: {error}") from None

    def close(self):
        self.connection.close()


class Door:
    """Where others come in: each is kept until the step that is about it."""

    def __init__(self, address, port, token):
        self.token, self.waiting, self.news = token, {}, threading.Condition()
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        self.socket = socket.socket(family[0], socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(family[4])
        self.socket.listen(64)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection = self.socket.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._greet, args=(Line(connection),), daemon=True).start()

    def _greet(self, line):
        try:
            message = line.receive(10)
            if not hmac.compare_digest(str(message.get("token")), self.token):
                line.close()
            elif message.get("round") is None:
                line.send(alive=True)
                line.close()
            else:
                with self.news:
                    self.waiting[message["name"], message["round"]] = line
                    self.news.notify_all()
        except GoneError:
            line.close()

    def wait(self, peer, number, seconds):
        """Return the line of a machine that came for a round; None where it did not come in time."""
        with self.news:
            self.news.wait_for(lambda: (peer, number) in self.waiting, seconds)
            return self.waiting.pop((peer, number), None)

    def close(self):
        self.socket.close()


class Agent:
    """Goes through this machine's steps."""

    def __init__(self, settings):
        self.settings, self.results = settings, []
        self.begun = time.monotonic()
        self.door = Door(settings["address"], settings["port"], settings["token"])

    def call(self, step, **message):
        """Return a line to the machine of a step. Until all have begun, one that is not there yet is waited for."""
        while True:
            try:
                target = (step["address"], self.settings["port"])
                line = Line(socket.create_connection(target, 5))
                line.send(token=self.settings["token"], **message)
                return line
            except (OSError, GoneError) as error:
                if time.monotonic() - self.begun > self.settings["patience"]:
                    raise GoneError(f"connect to {step['address']} port {target[1]}: {error}") from None
                time.sleep(0.5)

    def meet(self, step):
        """Return the line to the machine of a step, whoever calls."""
        if not step["serves"]:
            return self.call(step, name=self.settings["name"], round=step["round"])
        while True:
            line = self.door.wait(step["peer"], step["round"], 5)
            if line:
                return line
            # It may be busy with an earlier step, or not be there at all.
            probe = self.call(step)
            try:
                probe.receive(10)
            finally:
                probe.close()

    def run(self):
        try:
            for step in self.settings["steps"]:
                try:
                    line = self.meet(step)
                except GoneError as error:
                    self.note(step, {}, "meet", {"problem": str(error)})
                    continue
                try:
                    (self.serve if step["serves"] else self.lead)(step, line)
                except GoneError as error:
                    self.note(step, {}, "meet", {"problem": str(error)})
                finally:
                    line.close()
        finally:
            self.door.close()
        return self.results

    def note(self, step, rail, test, told):
        about = {"peer": step["peer"], "serves": step["serves"], "test": test, "problem": ""}
        about.update(device=rail.get("device", ""), port=rail.get("port", 0), software=rail.get("software", False))
        self.results.append({**about, **told})

    def tests(self, step):
        yield from ((rail, test) for rail in step["rails"] for test in ("pingpong", "rping"))
        if step["bandwidth"]:
            yield from ((rail, test) for rail in step["rails"] for test in _BANDWIDTH)

    def start(self, test, rail, gid, peer=""):
        words = command(test, rail, gid, self.settings["port"] + 1, peer, self.settings["seconds"])
        return Tool(words, self.settings, rail)

    def lead(self, step, line):
        """The side that calls: says what is next, and connects once the other listens."""
        limit = self.settings["timeout"] + 30
        for place, (rail, test) in enumerate(self.tests(step)):
            line.send(next=place)
            answer = line.receive(limit)
            if answer.get("skip"):
                continue
            if not answer.get("ready"):
                self.note(step, rail, test, {"problem": f"the other side did not start: {answer.get('problem')}"})
                continue
            target = answer["address"] if test == "rping" else step["address"]
            with self.start(test, rail, gid_of(rail), target) as tool:
                told = tool.result(self.settings["timeout"] + 5)
            line.send(said=failure(told))
            self.note(step, rail, test, {**told, "other": line.receive(limit).get("said", "")})
        line.send(next=None)

    def serve(self, step, line):
        """The side that is called."""
        tests, limit = list(self.tests(step)), self.settings["timeout"] + 60
        while True:
            place = line.receive(limit).get("next")
            if place is None:
                return
            rail, test = tests[place]
            gid = gid_of(rail)
            address = ipv4(gid["gid"]) if gid else ""
            if test == "rping" and not address:
                # The connection manager wants an IP address on the port, which InfiniBand has only with IPoIB.
                line.send(skip=True)
                continue
            with self.start(test, rail, gid) as tool:
                if tool.ready(self.settings["port"] + 1, 10):
                    line.send(ready=True, address=address)
                    other = line.receive(limit).get("said", "")
                    told = tool.result(5)
                    self.note(step, rail, test, {**told, "other": other})
                    line.send(said=failure(told))
                else:
                    told = tool.result(0)
                    problem = "" if told["output"].strip() else "it did not listen"
                    self.note(step, rail, test, {**told, "problem": problem})
                    line.send(ready=False, problem=told["output"].strip()[-300:] or problem)


def failure(told):
    """Return what the other side is to know: the words of a tool that failed, since its own may have only waited."""
    return "" if told["rc"] == 0 else " ".join(told["output"].split())[-300:]


def stopped(*_):
    """End in order, so that the tools are ended too."""
    raise SystemExit(143)


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "address": {"type": "str", "required": True},
            "name": {"type": "str", "required": True},
            "steps": {"type": "list", "elements": "dict", "required": True},
            "token": {"type": "str", "required": True, "no_log": True},
            "port": {"type": "int", "default": 18514},
            "user": {"type": "str", "default": "nobody"},
            "seconds": {"type": "int", "default": 3},
            "timeout": {"type": "int", "default": 30},
            "patience": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    signal.signal(signal.SIGTERM, stopped)
    help_text = subprocess.run(
        ["sh", "-c", "ib_write_bw --help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=10, check=False
    )
    try:
        results = [] if module.check_mode else Agent(module.params).run()
    except OSError as error:
        module.fail_json(msg=f"{module.params['address']} port {module.params['port']}: {error}")
    module.exit_json(changed=False, results=results, cuda=b"use_cuda" in help_text.stdout)


if __name__ == "__main__":
    main()
