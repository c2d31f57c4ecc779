"""A real OpenSSH server for tests: on the loopback address, on a port of the worker's own, with keys made for it."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from worker import free_port

ADDRESS = "127.0.0.1"

#: Seconds in which a server listens, also on a computer that is busy with much else.
LISTENS = 60.0

#: So many ports are tried where something else has taken one in the meantime.
TRIES = 5


def make_key(path: Path, *, passphrase: str = "") -> Path:
    """Make an ed25519 key pair and return the private half's path."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "test", "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return path


@dataclass(frozen=True)
class Sshd:
    """A running server and everything a client needs for it."""

    directory: Path
    port: int
    client_key: Path
    known_hosts: Path
    log: Path

    @property
    def user(self) -> str:
        """The account that the client's key opens."""
        return getpass.getuser()

    def hostvars(self, **changes: object) -> dict[str, object]:
        """Return the variables of an inventory that describes this server."""
        return {
            "ansible_host": ADDRESS,
            "ansible_port": self.port,
            "ansible_user": self.user,
            "ansible_ssh_private_key_file": str(self.client_key),
            "ansible_ssh_common_args": options(self.known_hosts),
            **changes,
        }


def options(known_hosts: Path) -> str:
    """Return SSH arguments under which only ``known_hosts`` and the key that is named count."""
    words = (f"UserKnownHostsFile={known_hosts}", "GlobalKnownHostsFile=/dev/null", "IdentitiesOnly=yes")
    return "-F /dev/null " + " ".join(f"-o {word}" for word in words)


#: What every server of ours has: it opens for keys alone, whosever files they are in.
SETTINGS = (
    "StrictModes no",
    "UsePAM no",
    "PasswordAuthentication no",
    "KbdInteractiveAuthentication no",
)


@contextmanager
def serving(directory: Path, *lines: str) -> Iterator[tuple[int, Path]]:
    """Run a server with the keys in ``directory`` until the block ends; give its port and its log.

    The keys are ``host_key`` and, for clients, those of ``authorized_keys``; ``lines`` are further settings.

    Raises:
        RuntimeError: there is no sshd, or it does not start.
    """
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if not program:
        raise RuntimeError("sshd is missing: apt-get install openssh-server")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    log, configuration = directory / "sshd.log", directory / "sshd_config"
    places = (
        f"HostKey {directory}/host_key",
        f"AuthorizedKeysFile {directory}/authorized_keys",
        f"PidFile {directory}/pid",
    )
    for _ in range(TRIES):
        port = free_port()
        configuration.write_text("\n".join([f"Port {port}", *places, *SETTINGS, *lines, ""]), encoding="utf-8")
        with log.open("w") as output:
            server = subprocess.Popen([program, "-D", "-e", "-f", str(configuration)], stderr=output)
        try:
            if _listens(server, directory / "pid", log):
                yield port, log
                return
        finally:
            server.terminate()
            server.wait(timeout=LISTENS)
    raise RuntimeError(f"sshd finds no port: {log.read_text()}")


@contextmanager
def running(directory: Path, *extra: str) -> Iterator[Sshd]:
    """Run a server until the block ends; ``extra`` are further lines of its configuration."""
    host_key = make_key(directory / "host_key")
    client_key = make_key(directory / "client_key")
    shutil.copy(directory / "client_key.pub", directory / "authorized_keys")
    kind, blob, *_ = host_key.with_suffix(".pub").read_text().split()
    known_hosts = directory / "known_hosts"
    lines = (f"ListenAddress {ADDRESS}", "PermitRootLogin prohibit-password", "LogLevel VERBOSE", "MaxStartups 100")
    with serving(directory, *lines, *extra) as (port, log):
        known_hosts.write_text(f"[{ADDRESS}]:{port} {kind} {blob}\n")
        yield Sshd(directory, port, client_key, known_hosts, log)


def _listens(server: subprocess.Popen[bytes], pid: Path, log: Path) -> bool:
    """Wait until the server itself notes that it listens; False where something else has its port."""
    end = time.monotonic() + LISTENS
    while not pid.exists() or pid.read_text().strip() != str(server.pid):
        ended = server.poll() is not None
        if ended and "in use" in log.read_text():
            return False
        if ended or time.monotonic() > end:
            raise RuntimeError(f"sshd does not start: {log.read_text()}")
        time.sleep(0.02)
    return True
