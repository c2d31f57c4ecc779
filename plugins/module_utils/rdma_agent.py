# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two machines that agree on transfers over a TCP connection of their own. Standard library, Python 3.8."""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import json
import socket
import threading
import time

from ansible.module_utils.rdma_tools import Tool, command, gid_of, ipv4

_BANDWIDTH = ("write", "read")


class GoneError(Exception):
    """The other machine cannot be reached, or has ended."""


class Line:
    """Messages over one connection, a line of JSON each; all of them ``within`` so many seconds."""

    def __init__(self, connection):
        self.connection, self.text, self.end = connection, b"", None

    def within(self, seconds):
        self.end = time.monotonic() + seconds

    def send(self, **message):
        try:
            self.connection.settimeout(10)
            self.connection.sendall(json.dumps(message).encode() + b"\n")
        except (OSError, ValueError) as error:
            raise GoneError(f"the other machine is gone: {error}") from None

    def receive(self, seconds):
        """Return the next message. It is waited for as a whole, since each byte of it can be late."""
        end = time.monotonic() + seconds
        end = end if self.end is None else min(end, self.end)
        try:
            while b"\n" not in self.text[:4096]:
                left = end - time.monotonic()
                if left <= 0:
                    raise GoneError("the other machine says nothing: timed out")
                if len(self.text) >= 4096:
                    raise GoneError("the other machine says too much")
                self.connection.settimeout(left)
                chunk = self.connection.recv(4096)
                if not chunk:
                    raise GoneError("the other machine has ended in the middle of it")
                self.text += chunk
            line, _, self.text = self.text.partition(b"\n")
            message = json.loads(line.decode("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise GoneError(f"the other machine says nothing: {error}") from None
        if not isinstance(message, dict):
            raise GoneError("the other machine says something else")
        return message

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
                    self.waiting[str(message.get("name")), str(message["round"])] = line
                    self.news.notify_all()
        except GoneError:
            line.close()

    def wait(self, peer, number, seconds):
        """Return the line of a machine that came for a round; None where it did not come in time."""
        with self.news:
            self.news.wait_for(lambda: (peer, str(number)) in self.waiting, seconds)
            return self.waiting.pop((peer, str(number)), None)

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # or the port stays taken while somebody waits in accept
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
            if time.monotonic() - self.begun > step["by"]:
                raise GoneError(f"it is there, and did not come for its transfers in {step['by']} s")
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
                line.within(step["within"])
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
            target = address_in(answer) if test == "rping" else step["address"]
            with self.start(test, rail, gid_of(rail), target) as tool:
                told = tool.result(self.settings["timeout"] + 5)
            line.send(said=failure(told))
            self.note(step, rail, test, {**told, "other": said_in(line.receive(limit))})
        line.send(next=None)

    def serve(self, step, line):
        """The side that is called."""
        tests, limit, done = list(self.tests(step)), self.settings["timeout"] + 60, -1
        while True:
            place = line.receive(limit).get("next")
            if place is None:
                return
            if type(place) is not int or not done < place < len(tests):
                raise GoneError("the other machine asks for what is not in the plan")
            done = place
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
                    other = said_in(line.receive(limit))
                    told = tool.result(5)
                    self.note(step, rail, test, {**told, "other": other})
                    line.send(said=failure(told))
                else:
                    told = tool.result(0)
                    problem = "" if told["output"].strip() else "it did not listen"
                    self.note(step, rail, test, {**told, "problem": problem})
                    line.send(ready=False, problem=told["output"].strip()[-300:] or problem)


def said_in(message):
    """Return the other machine's words on a transfer."""
    return str(message.get("said", ""))[:300]


def address_in(message):
    """Return the address under which the other machine can be reached over the fabric."""
    try:
        return str(ipaddress.ip_address(message.get("address")))
    except ValueError:
        raise GoneError("the other machine names no address") from None


def failure(told):
    """Return what the other side is to know: the words of a tool that failed, since its own may have only waited."""
    return "" if told["rc"] == 0 else " ".join(told["output"].split())[-300:]
