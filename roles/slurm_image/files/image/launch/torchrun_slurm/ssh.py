# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ssh between the workers' containers, for launchers that know no other way (--env ssh).

Each node has an sshd of the user's own, which takes the key of this job and no other. The first node makes the keys,
and the others read them in a directory that only the user can enter, which is gone before the program starts: whoever
can read it can read the user's home. ``ssh`` on the PATH is the usual one with this job's names, keys and port, so that
pdsh, mpirun and scripts need no option; what it starts has the variables of the container that it comes to.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Mapping

from torchrun_slurm import watch
from torchrun_slurm.step import Refusal, Step

#: Says that this is a session of sshd's.
SESSION = "--torchrun-slurm-session"

#: Where sshd is, which only root's PATH has.
PLACES = ("/usr/sbin", "/usr/local/sbin", "/sbin")

#: Seconds in which sshd begins to answer, and in which another node's files are seen here (NFS: acdirmax and some).
BEGUN, SEEN = 10.0, 90.0

#: What is a task's own, which the launcher says anew to each of its workers.
OF_A_TASK = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")

SSHD = """Port {port}
HostKey {own}/host
AuthorizedKeysFile {own}/key.pub
AllowUsers {user}
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 200
MaxSessions 200
ForceCommand {python} {program} {session} {own}
LogLevel ERROR
"""

CLIENT = """Host *
Port {port}
User {user}
IdentityFile {own}/key
IdentitiesOnly yes
UserKnownHostsFile {own}/known
GlobalKnownHostsFile none
StrictHostKeyChecking yes
BatchMode yes
LogLevel ERROR
"""


def found(name: str, path: str) -> str:
    """Return where a program of OpenSSH's is."""
    place = shutil.which(name, path=os.pathsep.join((path, *PLACES)))
    if not place:
        raise Refusal(f"there is no {name} here", "have openssh-server and openssh-client in the image, and pdsh")
    return place


class Ssh:
    """The way of one node to the others. ``shared``: a directory that all nodes have, ``own`` one of this node's."""

    def __init__(self, step: Step, shared: str, environment: Mapping[str, str]) -> None:
        self._step = step
        path = environment.get("PATH", os.defpath)
        self._sshd, self._client, self._keygen = (found(name, path) for name in ("sshd", "ssh", "ssh-keygen"))
        self._shared = Path(shared) / f".torchrun-slurm.{step.job}.{step.step}.ssh"
        self.daemon: watch.Program | None = None
        try:
            self._user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError as problem:
            raise Refusal(
                f"the user {os.getuid()} has no name here", "getent passwd there: sshd wants a line"
            ) from problem

    def offer(self) -> None:
        """Make this job's keys, for all nodes to take."""
        self.withdraw()
        try:
            self._shared.parent.mkdir(exist_ok=True)
            self._shared.mkdir(mode=0o700)
        except OSError as problem:
            fix = f"mkdir -p {self._shared.parent}, where all nodes see it; or another --output-dir"
            raise Refusal(f"{self._shared}: {problem.strerror}", fix) from problem
        place = self._mine()
        try:
            with tempfile.TemporaryDirectory(prefix="torchrun-slurm-keys-") as made:
                for name in ("host", "key"):
                    words = [self._keygen, "-q", "-t", "ed25519", "-N", "", "-C", f"job {self._step.job}"]
                    subprocess.run([*words, "-f", f"{made}/{name}"], check=True, stdin=subprocess.DEVNULL)
                # Under its name once it is whole; the one that is waited for comes last.
                for name in ("host.pub", "key.pub", "host", "key"):
                    write(f"{name}.new", Path(made, name).read_text(encoding="ascii"), within=place)
                    os.rename(f"{name}.new", name, src_dir_fd=place, dst_dir_fd=place)
        finally:
            os.close(place)

    def _mine(self) -> int:
        """Return the opened directory of keys. Others may write where it is, and put one of theirs into its place."""
        try:
            opened = os.open(self._shared, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as problem:
            raise Refusal(f"{self._shared}: {problem.strerror}", "give a directory of yours: --output-dir") from problem
        about = os.fstat(opened)
        if about.st_uid != os.getuid() or about.st_mode & 0o077:
            os.close(opened)
            raise Refusal(
                f"{self._shared} is somebody else's, or others may look into it",
                "give a directory of yours: --output-dir",
            )
        return opened

    def end(self) -> None:
        """Have nothing of this be left."""
        if self._step.task == 0:
            self.withdraw()
        if self.daemon:
            self.daemon.signal(signal.SIGTERM)

    def withdraw(self) -> None:
        """Have the keys be where they are used, and nowhere else."""
        shutil.rmtree(self._shared, ignore_errors=True)

    def serve(self, own: Path, program: str, environment: Mapping[str, str]) -> list[str]:
        """Write this node's files, and return the words of its sshd."""
        self._take(own)
        about = {"own": own, "port": self._step.talk_port, "python": sys.executable, "program": program}
        about.update(session=SESSION, user=self._user)
        write(own / "sshd_config", SSHD.format(**about))
        write(own / "config", CLIENT.format(**about))
        key = (own / "host.pub").read_text(encoding="ascii").strip()
        write(own / "known", "".join(f"[{name}]:{self._step.talk_port} {key}\n" for name in self._step.nodes))
        (own / "bin").mkdir(mode=0o700)
        write(own / "bin/ssh", f'#!/bin/sh\nexec {self._client} -F {own}/config "$@"\n', 0o700)
        there = {name: value for name, value in environment.items() if name not in OF_A_TASK}
        there.update(PATH=f"{own}/bin:{there.get('PATH', os.defpath)}", PWD=str(Path.cwd()))
        write(own / "environment", json.dumps(there))
        # Of a container without it, sshd would say so at each login.
        with contextlib.suppress(OSError):
            Path(pwd.getpwuid(os.getuid()).pw_dir).mkdir(parents=True, exist_ok=True)
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, parents=True, exist_ok=True)
        return [self._sshd, "-D", "-e", "-f", str(own / "sshd_config")]

    def _take(self, own: Path) -> None:
        end = time.monotonic() + SEEN
        while not (self._shared / "key").exists():
            if time.monotonic() > end:
                raise Refusal(f"{self._shared} is not seen here", "give a directory of all nodes: --output-dir")
            # A list of the directory's files that was kept is asked for anew.
            os.close(os.open(self._shared.parent, os.O_RDONLY))
            time.sleep(0.2)
        place = self._mine()
        try:
            for name in ("host", "host.pub", "key", "key.pub"):
                with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=place), encoding="ascii") as stream:
                    write(own / name, stream.read())
        finally:
            os.close(place)

    def begun(self) -> bool:
        """Tell whether this node's sshd answers."""
        end = time.monotonic() + BEGUN
        while time.monotonic() < end:
            try:
                with socket.create_connection(("127.0.0.1", self._step.talk_port), timeout=1) as one:
                    answers = one.recv(4) == b"SSH-"
                    # Who leaves in the middle of a greeting is an error in sshd's log, which is the job's.
                    one.sendall(b"SSH-2.0-torchrun_slurm\r\n")
                    one.shutdown(socket.SHUT_WR)
                    while one.recv(1 << 12):
                        pass
                    return answers
            except OSError:
                time.sleep(0.05)
        return False


def write(path: Path | str, text: str, mode: int = 0o600, within: int | None = None) -> None:
    """Write a file that nobody else can read at any time; ``within`` an opened directory where that is given."""
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=within)
    with os.fdopen(opened, "w", encoding="utf-8") as stream:
        stream.write(text)


def session(own: Path) -> int:
    """Become what was asked for by ssh, with the variables of this container."""
    environment = json.loads((own / "environment").read_text(encoding="utf-8"))
    asked = os.environ.get("SSH_ORIGINAL_COMMAND", "")
    shell = shutil.which("bash") or "/bin/sh"
    with contextlib.suppress(OSError):
        os.chdir(environment.get("PWD", "/"))
    os.execve(shell, [shell, "-c", asked] if asked else [shell, "-l"], environment)  # noqa: S606 - it is the shell
