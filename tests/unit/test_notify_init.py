"""The first process of a daemon's container: the container lives as long as the daemon, whichever process that is."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import PATIENCE, until

from provision import content

PROGRAM = content.ROOT / "roles/slurm_image/files/image/notify-init"

#: What slurmctld does under --systemd (_try_to_reconfig() of 24.11): at HUP a grandchild takes over, the old one ends.
DAEMON = """
import os, signal, socket, sys, time
def tell(pid):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.connect(os.environ["NOTIFY_SOCKET"])
        sock.send(f"READY=1\\nMAINPID={pid}".encode())
def again(*_):
    if os.path.exists(sys.argv[1] + "/bad"):
        open(sys.argv[1] + "/refused", "w").close()
        return
    reading, writing = os.pipe()
    if os.fork() == 0:
        child = os.fork()
        if child:
            os.write(writing, str(child).encode())
            os._exit(0)
        serve()
    os.wait()
    tell(int(os.read(reading, 20)))
    os._exit(0)
def serve():
    signal.signal(signal.SIGHUP, again)
    signal.signal(signal.SIGTERM, lambda *_: (open(sys.argv[1] + "/orderly", "w").close(), os._exit(0)))
    with open(sys.argv[1] + "/pids", "a") as stream:
        print(os.getpid(), file=stream)
    while True:
        signal.pause()
tell(os.getpid())
serve()
"""


class Container:
    """notify-init with the daemon, outside any container."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.socket = folder / "notify"
        self.process = self.start()
        until(lambda: len(self.pids) == 1)

    def start(self) -> subprocess.Popen[bytes]:
        ready = ["--ready", str(self.folder / "ready")]
        command = [sys.executable, str(PROGRAM), *ready, sys.executable, "-c", DAEMON, str(self.folder)]
        return subprocess.Popen(command, env={**os.environ, "NOTIFY_SOCKET": str(self.socket)})

    @property
    def pids(self) -> list[int]:
        path = self.folder / "pids"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def reconfigure(self) -> int:
        """Have a new process take over, and return it."""
        known = len(self.pids)
        self.process.send_signal(signal.SIGHUP)
        until(lambda: len(self.pids) > known)
        until(lambda: not alive(self.pids[-2]))
        return self.pids[-1]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    made = Container(tmp_path)
    yield made
    for pid in [*made.pids, made.process.pid]:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
    made.process.wait()


def test_a_daemon_is_started_by_its_path_which_it_needs_to_start_itself_again(tmp_path: Path) -> None:
    python = Path(sys.executable)
    environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "PATH": str(python.parent)}
    command = [sys.executable, str(PROGRAM), python.name, "-c", "import sys; print(sys.orig_argv[0])"]

    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)

    assert done.stdout == f"{python}\n"


def test_it_outlives_every_reconfiguration(container: Container) -> None:
    for _ in range(3):
        pid = container.reconfigure()
        assert container.process.poll() is None
        assert alive(pid)


def test_a_reconfiguration_that_fails_leaves_the_old_process(container: Container) -> None:
    ready = container.folder / "ready"
    until(ready.exists)
    since = ready.stat().st_ctime_ns
    (container.folder / "bad").touch()
    container.process.send_signal(signal.SIGHUP)
    until((container.folder / "refused").exists)

    assert container.process.poll() is None
    assert alive(container.pids[0])
    assert ready.stat().st_ctime_ns == since, "and nothing says that it has come up"


def test_what_a_process_has_read_before_it_came_up_is_older_than_the_note_of_that(container: Container) -> None:
    ready, conf = container.folder / "ready", container.folder / "conf"
    for _ in range(2):
        conf.write_text("as it was fetched")
        container.reconfigure()

        until(lambda: ready.stat().st_ctime_ns >= conf.stat().st_ctime_ns)


@pytest.mark.parametrize("reconfigured", [False, True])
def test_a_daemon_that_outlived_its_killed_container_makes_room_for_the_next(
    container: Container, reconfigured: bool
) -> None:
    old = container.reconfigure() if reconfigured else container.pids[0]
    container.process.kill()
    container.process.wait()
    assert alive(old)
    known = len(container.pids)

    container.process = container.start()
    until(lambda: len(container.pids) > known)

    assert not alive(old)
    assert (container.folder / "orderly").exists()


def test_a_daemon_of_another_socket_is_another_one(
    container: Container, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Container(tmp_path_factory.mktemp("other"))
    try:
        assert alive(container.pids[0])
    finally:
        other.process.terminate()
        other.process.wait()


@pytest.mark.parametrize("reconfigured", [False, True])
def test_it_ends_with_the_main_process_so_that_the_engine_starts_the_container_again(
    container: Container, reconfigured: bool
) -> None:
    pid = container.reconfigure() if reconfigured else container.pids[0]
    os.kill(pid, signal.SIGKILL)

    assert container.process.wait(PATIENCE) != 0


@pytest.mark.parametrize("reconfigured", [False, True])
def test_an_orderly_stop_reaches_the_main_process_and_is_waited_for(container: Container, reconfigured: bool) -> None:
    if reconfigured:
        container.reconfigure()
    container.process.terminate()
    container.process.wait(PATIENCE)

    assert (container.folder / "orderly").exists()
    assert container.process.returncode == 0 or reconfigured


def test_what_is_no_process_is_not_believed(container: Container) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.connect(str(container.socket))
        for words in (
            b"MAINPID=",
            b"MAINPID=-1",
            b"MAINPID=0",
            b"MAINPID=99999999999999999999",
            b"\xff",
            b"MAINPID=4194304",
        ):
            sock.send(words)
        # It has heard all of them when it has answered what comes after them.
        ready = container.folder / "ready"
        until(ready.exists)
        ready.unlink()
        sock.send(f"MAINPID={container.pids[0]}".encode())
        until(ready.exists)

    assert container.process.poll() is None
    os.kill(container.pids[0], signal.SIGKILL)
    assert container.process.wait(PATIENCE) == 128 + signal.SIGKILL


def test_only_the_daemons_own_user_can_write_to_its_socket(container: Container) -> None:
    assert container.socket.stat().st_mode & 0o777 == 0o600


def test_a_command_that_is_not_there_ends_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "/no/such/daemon"],
        env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
        capture_output=True,
        check=False,
        timeout=PATIENCE,
    )

    assert done.returncode != 0


def test_the_daemon_is_started_when_its_file_systems_are_mounted(tmp_path: Path) -> None:
    """A job without its home would write below an empty directory."""
    table = tmp_path / "mountinfo"
    there = "22 1 254:0 / / rw - ext4 /dev/vda rw\n90 22 0:45 / /home rw - nfs4 files1:/home rw\n"
    table.write_text(there)
    text = PROGRAM.read_text().replace("/proc/1/mountinfo", str(table))
    assert str(table) in text
    program = tmp_path / "notify-init"
    program.write_text(text)
    command = [
        sys.executable,
        str(program),
        "--mounted",
        "/home",
        "--mounted",
        "/data",
        "touch",
        str(tmp_path / "begun"),
    ]
    environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "notify-init: waits for /data to be mounted\n"
        assert not (tmp_path / "begun").exists()

        table.write_text(there + "91 22 0:46 / /data rw - nfs4 files1:/data rw\n")

        assert process.wait(PATIENCE) == 0
    assert (tmp_path / "begun").exists()


@pytest.mark.parametrize("ends", ["exit 0", "exit 3"])
def test_a_program_is_run_before_the_daemon_whatever_comes_of_it(tmp_path: Path, ends: str) -> None:
    program = tmp_path / "first"
    program.write_text(f"#!/bin/sh\nmkdir {tmp_path}/made\n{ends}\n")
    program.chmod(0o755)
    command = [sys.executable, str(PROGRAM), "--first", str(program), "touch", str(tmp_path / "made" / "begun")]

    done = subprocess.run(
        command, env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}, check=False, timeout=PATIENCE
    )

    assert done.returncode == 0
    assert (tmp_path / "made" / "begun").exists()
