"""Machines that cannot be entered, or not be worked on: one clear message each, nothing changed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import labs
import pytest
import snapshots


@pytest.fixture
def asked(small_lab: labs.Lab) -> Iterator[str]:
    """The password of an account whom the lab's key lets in and sudo asks for it, on every machine."""
    password = "correct horse"
    made = (
        "useradd --create-home --shell /bin/bash someone; cp -r ~admin/.ssh ~someone/; chown -R someone: ~someone/.ssh;"
        f"echo 'someone:{password}' | chpasswd; echo 'someone ALL=(ALL) ALL' >/etc/sudoers.d/someone"
    )
    for machine in small_lab.machines:
        small_lab.root(machine, made)
    yield password
    for machine in small_lab.machines:
        gone = "pkill -KILL -u someone; userdel --remove --force someone; rm -f /etc/sudoers.d/someone"
        small_lab.root(machine, gone, check=False)


def test_where_sudo_asks_for_a_password_a_wrong_one_is_tried_once(
    small_lab: labs.Lab, asked: str, tmp_path: Path
) -> None:
    lab = small_lab
    path = lab.inventory_with(tmp_path, {"ansible_user=admin": "ansible_user=someone"})
    before = failures(lab)

    with snapshots.unchanged(lab):
        wrong = labs.clusterctl("provision", path, "base", "-K", check=False, input="battery staple\n")
    after = failures(lab)
    right = labs.clusterctl("preflight", path, "-K", "--json", check=False, input=f"{asked}\n")

    assert wrong.returncode == 4, wrong.stderr
    assert "sudo" in wrong.stdout + wrong.stderr
    assert {machine: after[machine] - before[machine] for machine in after} == {"head": 1, "node1": 1}
    assert "access.sudo" not in [c["id"] for c in json.loads(right.stdout)["checks"] if c["verdict"] == "fail"]
    left = b"".join(p.read_bytes() for p in (tmp_path / ".clusterctl").rglob("*") if p.is_file())
    assert b"battery staple" not in left
    assert asked.encode() not in left


# A lab of its own, for what clusterctl on any other shows above.
@pytest.mark.night
def test_a_lab_can_have_machines_whose_sudo_asks() -> None:
    password = "correct horse"
    with labs.made("t-sudo", sudo_password=password) as lab:
        assert lab.ssh("node1", "sudo -n id -un").returncode != 0
        assert lab.ssh("node1", f"echo '{password}' | sudo -S id -un").stdout.strip() == "root"
        assert password not in json.dumps(lab.inspect("node1"))


def failures(lab: labs.Lab) -> dict[str, int]:
    """Count the passwords that sudo has refused on each machine."""
    question = "journalctl --no-pager | grep -c 'sudo.*authentication failure'"
    return {machine: int(lab.root(machine, question, check=False)) for machine in lab.machines}


def test_a_full_disk_on_the_controller_is_found_before_anything_changes(small_lab: labs.Lab) -> None:
    small_lab.root("head", "mount -t tmpfs -o size=16m tmpfs /var/cache")
    try:
        with snapshots.unchanged(small_lab):
            done = labs.clusterctl("provision", small_lab.inventory, "--json", check=False)

        checks = json.loads(done.stdout)["checks"]
        assert done.returncode == 3, done.stderr
        assert ("head", "fail") in [(c["host"], c["verdict"]) for c in checks if "disk" in c["id"]]
    finally:
        small_lab.root("head", "umount /var/cache")


def test_a_package_manager_that_is_busy_is_named(small_lab: labs.Lab) -> None:
    lock = "/var/lib/dpkg/lock-frontend"
    # Until its standard input ends.
    hold = f"import fcntl; f = open('{lock}', 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); input()"
    words = ["docker", "exec", "--interactive", small_lab.container("node1"), "python3", "-c", hold]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        done = labs.clusterctl(
            "preflight", small_lab.inventory, "-e", "preflight_lock_timeout=2", "--json", check=False
        )

    checks = json.loads(done.stdout)["checks"]
    locks = {check["host"]: check for check in checks if check["id"] == "preflight.package_lock"}
    assert done.returncode == 3
    assert (locks["head"]["verdict"], locks["node1"]["verdict"]) == ("pass", "fail")
    assert "python3" in locks["node1"]["observed"]
