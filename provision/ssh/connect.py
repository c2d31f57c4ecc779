"""One SSH connection made step by step, so that the step which fails can be named.

Nothing is ever trusted on first sight: a host key that no known_hosts file holds, or that differs from the one held,
ends the connection before the user's name or any credential has been sent.
"""

from __future__ import annotations

import logging
import queue
import secrets
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

import paramiko

from provision.ssh.findings import (
    Finding,
    left_out,
    no_connection,
    no_login,
    no_name,
    no_proxy,
    no_settings,
    no_ssh,
    untrusted,
)
from provision.ssh.keys import ONLY_OPENSSH, fingerprint, known_keys, offered_keys, shown
from provision.ssh.target import Target, settle

#: paramiko logs tracebacks of refused connections; what matters of them becomes a Finding.
_LOG = "provision.ssh.transport"
logging.getLogger(_LOG).addHandler(logging.NullHandler())
logging.getLogger(_LOG).propagate = False

#: More than this from one session is a machine gone wrong, not an answer.
_MOST_OUTPUT = 65536

#: Keys are stored under the name of their format, offered under those of their signatures.
_SIGNATURES = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}

#: How paramiko and sockets report that the other side went away or spoke nonsense.
_BROKEN = (OSError, EOFError, paramiko.SSHException)

_Result = TypeVar("_Result")


class Stopped(Exception):  # noqa: N818 - a refused connection is a finding here, not an error
    """The connection ended at a step; ``finding`` says which and why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.observed)
        self.finding = finding


class Deadline:
    """Seconds that are left of a budget."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds left, never less than a hundredth: zero means "do not wait" to sockets."""
        return max(0.01, self._end - time.monotonic())

    @property
    def over(self) -> bool:
        """True when nothing is left."""
        return time.monotonic() >= self._end


def within(deadline: Deadline, call: Callable[[], _Result]) -> _Result:
    """Return what ``call`` returns; for calls that know no deadline, such as the resolver's and the agent's.

    Raises:
        TimeoutError: nothing was returned in time; the call goes on in a thread that nobody waits for.
        Exception: whatever ``call`` raises.
    """
    done: queue.SimpleQueue[tuple[_Result | None, Exception | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            done.put((call(), None))
        except Exception as error:
            done.put((None, error))

    threading.Thread(target=work, daemon=True).start()
    try:
        result, error = done.get(timeout=deadline.left())
    except queue.Empty:
        raise TimeoutError("no answer in time") from None
    if error is not None:
        raise error
    return cast(_Result, result)


class Proxy:
    """A command whose input and output lead to the machine."""

    def __init__(self, command: tuple[str, ...], end: socket.socket) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close(); a pipe nobody reads may fill up
        self._process = subprocess.Popen(command, stdin=end.fileno(), stdout=end.fileno(), stderr=self._errors)

    def last_words(self) -> str:
        """End the command and return the last line that it printed as its error."""
        self._process.kill()
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read(4000).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def close(self) -> None:
        """End the command and wait for it, so that no zombie stays."""
        self._process.kill()
        self._process.wait()
        self._errors.close()


class Connection:
    """A verified and authenticated transport. Use as a context manager; leaving it closes everything.

    Entering raises Stopped, and nothing else that a machine or a network can cause.
    """

    def __init__(self, target: Target, *, timeout: float) -> None:
        self.target = target
        self._deadline = Deadline(timeout)
        self._open: list[Any] = []

    def __enter__(self) -> Connection:
        try:
            self._connect()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what was opened, last first."""
        while self._open:
            try:
                self._open.pop().close()
            except _BROKEN:
                continue

    def _connect(self) -> None:
        try:
            self.route = settle(self.target)
        except (OSError, ValueError) as error:
            raise Stopped(no_settings(self.target, error)) from None
        self._negotiate(self._through_proxy() if self.route.proxy else self._direct())
        self._verify_host_key()
        if self.target.password_login:
            raise Stopped(left_out("login", "host key verified", "logins by password are left to Ansible"))
        self._log_in()

    def _through_proxy(self) -> socket.socket:
        # A socket pair, because paramiko's own ProxyCommand spins until its timeout when the command has ended.
        ours, theirs = socket.socketpair()
        with theirs:
            self._proxy = Proxy(self.route.proxy, theirs)
        self._open += [self._proxy, ours]
        return ours

    def _direct(self) -> socket.socket:
        addresses = self._addresses()
        problem: OSError = OSError("no address")
        for position, address in enumerate(addresses):
            patience = self._deadline.left() / (len(addresses) - position)
            try:
                stream = socket.create_connection(address, timeout=patience)
            except OSError as error:
                problem = error
                continue
            self._open.append(stream)
            return stream
        raise Stopped(no_connection(self.target, self.route, problem, self._deadline.seconds))

    def _addresses(self) -> list[tuple[str, int]]:
        host, port = self.route.host, self.route.port
        try:
            found = within(self._deadline, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except TimeoutError:
            raise Stopped(no_name(self.target, self.route, "no name server answered in time")) from None
        except (OSError, UnicodeError) as error:
            words = getattr(error, "strerror", None) or str(error)
            raise Stopped(no_name(self.target, self.route, words)) from None
        return [(str(entry[4][0]), int(entry[4][1])) for entry in found]

    def _negotiate(self, stream: socket.socket) -> None:
        self.known = list(known_keys(self.route))
        try:
            self.transport = paramiko.Transport(stream)
            self._open.append(self.transport)
            self.transport.set_log_channel(_LOG)
            self.transport.banner_timeout = self.transport.handshake_timeout = self._deadline.left()
            # As OpenSSH does: ask for a key of a kind that is already known, so that it can be compared.
            wanted = {name for key in self.known for name in _SIGNATURES.get(key.kind, (key.kind,))}
            options = self.transport.get_security_options()
            options.key_types = sorted(options.key_types, key=lambda name: name not in wanted)
            self.transport.start_client(timeout=self._deadline.left())
            self.presented = self.transport.get_remote_server_key()
        except _BROKEN as error:
            if self.route.proxy:
                raise Stopped(no_proxy(self.target, self.route, self._proxy.last_words())) from None
            silent = self._deadline.seconds if self._deadline.over or _is_timeout(error) else None
            raise Stopped(no_ssh(self.target, self.route, error, silent)) from None

    def _verify_host_key(self) -> None:
        same = [known for known in self.known if known.blob == self.presented.get_base64()]
        plain = [known for known in self.known if not known.revoked and not known.authority]
        if any(known.revoked for known in same):
            raise Stopped(untrusted(self.route, shown(self.presented), "", same[0].file, revoked=True))
        if any(known in plain for known in same):
            return
        if any(known.authority for known in self.known):
            raise Stopped(left_out("host_key", shown(self.presented), "host certificates are left to OpenSSH"))
        held = ", ".join(sorted({fingerprint(known) for known in plain}))
        raise Stopped(untrusted(self.route, shown(self.presented), held, plain[0].file if plain else None))

    def _log_in(self) -> None:
        transport, user = self.transport, self.route.user
        transport.auth_timeout = self._deadline.left()
        tried: list[str] = []
        allowed, offered, undecided = "", False, False
        try:
            transport.auth_none(user)
        except paramiko.BadAuthenticationType as error:
            allowed = ", ".join(error.allowed_types)
        except _BROKEN as error:
            tried.append(f"the connection ended: {error or 'closed'}")
        for label, key in offered_keys(self.route, self.target, self._agent_keys()):
            if transport.is_authenticated() or not transport.is_active():
                break
            if isinstance(key, str):
                tried.append(f"{label} ({key})")
                undecided = undecided or key == ONLY_OPENSSH
                continue
            offered = True
            try:
                more = transport.auth_publickey(user, key)
                tried.append(f"{label} (accepted, but also wanted: {', '.join(more)})" if more else label)
            except _BROKEN:
                tried.append(f"{label} (refused)")
        if not transport.is_authenticated():
            raise Stopped(no_login(self.target, self.route, tried, allowed, offered=offered, undecided=undecided))

    def _agent_keys(self) -> tuple[paramiko.PKey, ...]:
        try:
            agent = within(self._deadline, paramiko.Agent)
        except (TimeoutError, *_BROKEN):
            return ()
        self._open.append(agent)
        return tuple(agent.get_keys())

    def run(self, command: str, *, secret: str | None = None, timeout: float) -> str:
        """Run ``command``, with ``secret`` as the only line on its standard input; return what it printed.

        At most 64 KiB and ``timeout`` seconds; whatever came until then is returned.
        """
        deadline = Deadline(timeout)
        received = b""
        try:
            channel = self.transport.open_session(timeout=deadline.left())
            self._open.append(channel)
            channel.settimeout(deadline.left())
            channel.set_combine_stderr(True)
            # paramiko waits without an end for a server that does not say whether it runs the command
            within(deadline, lambda: channel.exec_command(command))
            if secret is not None:
                channel.sendall(secret.encode() + b"\n")
            channel.shutdown_write()
            while len(received) < _MOST_OUTPUT and not deadline.over:
                channel.settimeout(deadline.left())
                piece = channel.recv(4096)
                if not piece:
                    break
                received += piece
        except _BROKEN:
            pass  # what arrived is the answer; that its end is missing is judged by the caller
        return received.decode(errors="replace")


def mark() -> str:
    """Return a word that no greeting of a machine contains."""
    return f"@{secrets.token_hex(8)}"


def _is_timeout(error: Exception) -> bool:
    # paramiko reports a missing banner as SSHException with these words and no cause
    return isinstance(error, TimeoutError) or ("banner" in str(error) and "EOF" not in str(error))
