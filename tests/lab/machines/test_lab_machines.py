"""What a simulated machine is, and that a lab comes and goes without a trace."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import labs
import pytest

from provision.ansible_env import clean_environment


def started(lab: labs.Lab) -> dict[str, str]:
    """Return since when each machine runs; a machine that was made again or restarted has another time."""
    return {machine: lab.inspect(machine)["State"]["StartedAt"] for machine in lab.machines}


def control_groups(name: str) -> list[Path]:
    """Return the control groups with this name, in whatever hierarchies this computer has."""
    return [path for path in Path("/sys/fs/cgroup").rglob(f"*{name}*") if path.is_dir()]


def test_making_a_lab_that_is_up_changes_nothing(small_lab: labs.Lab) -> None:
    before = started(small_lab)
    files = {path: path.stat().st_mtime_ns for path in small_lab.directory.rglob("*") if path.is_file()}

    variables = {"lab_machines_name": small_lab.name, "lab_machines_compute": small_lab.nodes}
    done = labs.playbook("lab_up", "-i", "localhost,", "-e", json.dumps(variables))

    assert "changed=0" in done.stdout
    assert started(small_lab) == before
    assert {path: path.stat().st_mtime_ns for path in files} == files


def test_a_machine_is_a_machine_to_what_runs_on_it(small_lab: labs.Lab) -> None:
    for machine in small_lab.machines:
        told = small_lab.root(machine, "systemctl is-system-running; hostname; docker info --format '{{.Driver}}'")

        assert told.split() == ["running", machine, "overlay2"]
        # As Debian's installer leaves it.
        assert re.search(rf"127\.0\.1\.1\s+{machine}", small_lab.root(machine, "cat /etc/hosts"))


def test_a_machine_has_of_this_computer_its_control_groups_name_servers_keys_and_home_and_no_cache(
    small_lab: labs.Lab,
) -> None:
    for machine in small_lab.machines:
        mounts = {one["Destination"] for one in small_lab.inspect(machine)["Mounts"] if one["Type"] == "bind"}

        assert mounts == {
            *("/sys/fs/cgroup", "/etc/clusterctl-lab", "/home"),
            "/usr/local/lib/clusterctl-lab/resolv.conf",
        }


def test_a_machine_that_lets_nobody_in_is_missed_by_the_labs_own_proof(small_lab: labs.Lab, tmp_path: Path) -> None:
    lab = {
        "lab_machines_name": small_lab.name,
        "lab_machines_compute": small_lab.nodes,
        "lab_machines_directory": str(small_lab.directory),
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
    }

    def proof() -> str:
        return labs.tasks("localhost,", "localhost", "lab_machines", "verify", tmp_path, **lab).stdout

    small_lab.root("node1", "systemctl stop ssh")
    try:
        told = proof()
    finally:
        small_lab.root("node1", "systemctl start ssh")

    others, all_of_them = (
        ", ".join(name for name in small_lab.machines if name != "node1"),
        ", ".join(small_lab.machines),
    )
    assert f"lab_machines.login: fail: observed {others}, expected {all_of_them}" in told, told
    assert "failed=0" in proof()


def test_a_machine_cannot_set_the_clock_of_this_computer_or_load_its_modules(small_lab: labs.Lab) -> None:
    held = int(small_lab.root("node1", "sed -n 's/^CapBnd:\\s*//p' /proc/1/status"), 16)

    for bit in (16, 17, 25):  # SYS_MODULE, SYS_RAWIO, SYS_TIME in linux/capability.h
        assert not held & 1 << bit


def test_a_machine_that_is_switched_off_and_on_is_the_same_machine(small_lab: labs.Lab) -> None:
    key = small_lab.root("node1", "cat /etc/ssh/ssh_host_ed25519_key.pub /etc/machine-id")
    address = small_lab.address("node1")
    small_lab.root("node1", "echo 192.0.2.7 elsewhere >>/etc/hosts; echo kept >/var/lib/clusterctl/kept")
    try:
        small_lab.restart("node1")

        assert small_lab.address("node1") == address
        assert small_lab.ssh("node1", "true").returncode == 0
        assert small_lab.root("node1", "cat /etc/ssh/ssh_host_ed25519_key.pub /etc/machine-id") == key
        assert "192.0.2.7 elsewhere" in small_lab.root("node1", "cat /etc/hosts")
        assert small_lab.root("node1", "cat /var/lib/clusterctl/kept") == "kept"
        assert small_lab.root("node1", "ls /dev | grep -c 'nvidia[0-9]'") == "2"
    finally:
        small_lab.root("node1", "sed -i /elsewhere/d /etc/hosts; rm /var/lib/clusterctl/kept")


def test_two_labs_live_side_by_side_and_one_goes_without_a_trace(small_lab: labs.Lab) -> None:
    before = started(small_lab)
    with labs.made("t-other", nodes=2, gpus=1) as other:
        machine = other.inspect("node2")["Id"]
        prefix = other.address("head").rsplit(".", 1)[0]
        nested = "0" * 64
        other.root(
            "node2",
            f"mkdir -p /var/lib/docker/containers/{nested} /sys/fs/cgroup/systemd/docker/{nested}/below",
        )
        assert prefix != small_lab.address("head").rsplit(".", 1)[0]
        assert control_groups(machine)
        assert control_groups(nested)

        other.root("node1", "echo old >/var/lib/clusterctl/mark")
        (other.directory / "host_vars").mkdir()

        # Fewer machines, with more GPUs: node2 goes, and node1 is another machine, disks and all.
        fewer = labs.up("t-other", nodes=1, gpus=3)

        assert [name for names in labs.objects("t-other").values() for name in names if "node2" in name] == []
        assert "node2" not in fewer.inventory.read_text(encoding="utf-8")
        assert fewer.root("node1", "ls /dev | grep -c 'nvidia[0-9]'; ls /var/lib/clusterctl") == "3"
        assert not (other.directory / "host_vars").exists()

    assert labs.objects("t-other") == {"containers": [], "volumes": [], "networks": []}
    assert not other.directory.exists()
    assert control_groups(machine) == []
    assert control_groups(nested) == []
    assert started(small_lab) == before


# Two labs each, of which the other tests here have one that was made whole.
@pytest.mark.night
@pytest.mark.parametrize("things", [1, 3, 6])
def test_what_a_killed_lab_up_leaves_does_not_break_the_next(things: int) -> None:
    """Killed when it has made so many things of Docker's."""
    name = "t-killed"
    command = [str(labs.BIN / "clusterctl"), "lab", "up", name, "--nodes", "1"]
    killed = subprocess.Popen(command, env=clean_environment(), start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        labs.until(lambda: killed.poll() is not None or sum(map(len, labs.objects(name).values())) >= things)
        assert killed.poll() is None, "it was over before"
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()

        lab = labs.up(name)

        assert lab.ssh("node1", "hostname").stdout.strip() == "node1"
    finally:
        labs.down(name)
    assert labs.objects(name) == {"containers": [], "volumes": [], "networks": []}


def test_removing_a_lab_that_is_not_there_is_no_error() -> None:
    done = labs.clusterctl("lab", "down", "t-never-made")

    assert done.returncode == 0
