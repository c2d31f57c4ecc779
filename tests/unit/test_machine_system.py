"""What the module reads about the state of made-up machines, and of this one."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from machines import system, tree

DPKG_LOCK = "var/lib/dpkg/lock-frontend"


@contextmanager
def holding(lock: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds a lock as apt does, until it is ended."""
    program = (
        "import fcntl, sys, time; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX); "
        "print(1, flush=True); time.sleep(3600)"
    )
    command = [sys.executable, "-c", program, str(lock)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        try:
            yield holder
        finally:
            holder.kill()


def test_dgx_os_is_told_from_the_ubuntu_that_it_says_it_is(tmp_path: Path) -> None:
    root = tree(tmp_path, {"etc/os-release": 'ID=ubuntu\nVERSION_ID="24.04"\n'})
    assert system.os_release(root)["dgx"] is False
    tree(tmp_path, {"etc/dgx-release": 'DGX_NAME="DGX Server"\n'})
    assert (system.os_release(root)["id"], system.os_release(root)["dgx"]) == ("ubuntu", True)


def test_the_holder_of_dpkgs_lock_is_named_with_pid_and_command(tmp_path: Path) -> None:
    root = tree(tmp_path, {DPKG_LOCK: ""})
    (tmp_path / "proc").symlink_to("/proc")

    with holding(root / DPKG_LOCK) as process:
        holder = system.package_lock(root)

    assert holder["pid"] == process.pid
    assert holder["command"].endswith("lock-frontend")


def test_a_lock_file_that_nobody_holds_is_no_lock(tmp_path: Path) -> None:
    root = tree(tmp_path, {DPKG_LOCK: ""})

    assert system.package_lock(root) is None
    assert system.package_lock(tmp_path / "a-machine-without-dpkg") is None


def test_asking_for_the_lock_does_not_take_it(tmp_path: Path) -> None:
    root = tree(tmp_path, {DPKG_LOCK: ""})

    system.package_lock(root)

    with (root / DPKG_LOCK).open("r+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class MadeUpTime:
    """The module time, in which a wait takes none; what happens in the meantime is told by the second."""

    def __init__(self, happens: dict[int, Callable[[], object]]) -> None:
        self.now, self.happens = 0, happens

    def monotonic(self) -> int:
        return self.now

    def sleep(self, seconds: int) -> None:
        self.now += seconds
        if self.now in self.happens:
            self.happens[self.now]()


def test_a_lock_is_waited_for_until_it_is_free_or_patience_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree(tmp_path, {DPKG_LOCK: ""})

    with holding(root / DPKG_LOCK) as process:
        monkeypatch.setattr(system, "time", MadeUpTime({2: lambda: (process.kill(), process.wait())}))
        holder, waited = system.wait_for_package_lock(root, 30)
    with holding(root / DPKG_LOCK):
        monkeypatch.setattr(system, "time", MadeUpTime({}))
        stuck, waited_in_vain = system.wait_for_package_lock(root, 30)

    assert (holder, waited) == (None, 2)
    assert stuck is not None
    assert waited_in_vain == 30


def test_packages_that_dpkg_was_stopped_in_are_found(tmp_path: Path) -> None:
    status = "\n\n".join(
        f"Package: {name}\nStatus: install ok {state}\nVersion: 1"
        for name, state in {"good": "installed", "half": "half-configured", "new": "unpacked"}.items()
    )
    root = tree(tmp_path, {"var/lib/dpkg/status": status, "var/lib/dpkg/updates/0001": ""})

    assert system.packages_interrupted(root) == ["half", "new", "dpkg"]


def test_a_removed_package_is_not_an_interrupted_one(tmp_path: Path) -> None:
    root = tree(tmp_path, {"var/lib/dpkg/status": "Package: old\nStatus: deinstall ok config-files\n"})

    assert system.packages_interrupted(root) == []


def test_packages_that_are_missing_are_told() -> None:
    def dpkg(command: list[str]) -> str | None:
        return "curl installed\nold config-files\n" if command[0] == "dpkg-query" else None

    assert system.packages_missing(["curl", "old", "chrony"], dpkg) == ["old", "chrony"]
    assert system.packages_missing(["curl"], lambda _: None) == ["curl"]


def test_free_space_is_measured_where_a_path_will_be_made(tmp_path: Path) -> None:
    root = tree(tmp_path, {"var/lib/docker/x": ""})

    found = system.disks(root, ["/", "/var/lib/docker", "/var/lib/clusterctl/images"])

    assert found["/var/lib/docker"]["used"] is True
    assert found["/var/lib/clusterctl/images"]["used"] is False
    assert {entry["device"] for entry in found.values()} == {tmp_path.stat().st_dev}
    assert all(entry["free"] > 0 for entry in found.values())


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"run/systemd/container": "lxc\n"}, "lxc"),
        ({"proc/1/environ": "PATH=/bin\0container=docker\0"}, "docker"),
        ({".dockerenv": ""}, "docker"),
        ({"proc/1/environ": "PATH=/bin\0"}, ""),
    ],
)
def test_a_container_is_recognised(tmp_path: Path, files: dict[str, str], kind: str) -> None:
    assert system.container(tree(tmp_path, files)) == kind


@pytest.mark.parametrize(
    ("mask", "resource", "clock"),
    [("000001ffffffffff", True, True), ("000001fffeffffff", False, True), ("0000000000000000", False, False)],
)
def test_capabilities_are_read_from_their_bits(tmp_path: Path, mask: str, resource: bool, clock: bool) -> None:
    root = tree(tmp_path, {"proc/self/status": f"Name:\tx\nCapEff:\t{mask}\n"})

    assert system.capabilities(root) == {"sys_resource": resource, "sys_time": clock}


def test_a_slurm_that_runs_beside_ours_is_found_and_one_in_a_container_is_not(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/100/comm": "slurmd\n",
            "proc/200/comm": "slurmctld\n",
            "proc/400/comm": "slurmd-wlm\n",
            "proc/300/comm": "chronyd\n",
            "etc/systemd/system/multi-user.target.wants/slurmdbd.service": "",
            "elsewhere/x": "",
        },
    )
    for pid, place in {100: "/", 200: str(tmp_path / "elsewhere"), 300: "/", 400: "/"}.items():
        (root / f"proc/{pid}/root").symlink_to(place)

    found = system.daemons(root)

    assert found["slurm_daemons"] == ["slurmd (pid 100)", "slurmd (pid 400)", "slurmdbd.service (enabled)"]
    assert found["time_daemons"] == ["chronyd"]


def test_names_are_looked_up_as_programs_would() -> None:
    found = system.resolved(["localhost", "no-such-machine.invalid", "x" * 300])

    assert "127.0.0.1" in found["localhost"]
    assert found["no-such-machine.invalid"] == found["x" * 300] == []


def test_limits_end_where_the_machine_does(tmp_path: Path) -> None:
    root = tree(
        tmp_path, {"proc/1/limits": "Max locked memory         8388608              8388608              bytes\n"}
    )

    assert system.memlock(root, True)["service_highest"] == "unlimited"
    assert system.memlock(root, False)["service_highest"] == "8192"


def test_a_limit_that_limits_conf_has_lowered_is_not_taken_for_the_highest(tmp_path: Path) -> None:
    # This process, sudo and the login's own have what limits.conf says now; the daemon above them has the machine's.
    chain = {os.getpid(): (30, 64), 30: (20, 64), 20: (10, 7777), 10: (1, 7777), 1: (0, 999999)}
    files = {}
    for pid, (parent, kib) in chain.items():
        files[f"proc/{pid}/status"] = f"Name:\tx\nPPid:\t{parent}\n"
        limit = f"{kib * 1024}".ljust(20)
        files[f"proc/{pid}/limits"] = f"Max locked memory         {limit} {limit} bytes\n"
    root = tree(tmp_path, files)

    told = system.memlock(root, can_raise=False)

    assert (told["login_highest"], told["service_highest"]) == ("7777", "999999")


def test_this_computer_can_be_described() -> None:
    found = system.collect(disk_paths=["/"])

    assert found["uid"] == os.geteuid()
    assert found["hostname"] in found["addresses"]
