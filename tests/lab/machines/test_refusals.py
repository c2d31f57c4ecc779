"""Machines that cannot be entered, and surroundings that would mislead: one clear message each, nothing changed.

Nor does a check run change anything.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import labs
import pytest
import snapshots


@contextmanager
def unchanged(lab: labs.Lab) -> Iterator[None]:
    """Assert that the block leaves every machine's files as they are."""
    before = {machine: snapshots.files(lab, machine) for machine in lab.machines}
    yield
    for machine in lab.machines:
        assert snapshots.difference(before[machine], snapshots.files(lab, machine)) == [], machine


def inventory(lab: labs.Lab, tmp_path: Path, replace: dict[str, str] | None = None, extra: str = "") -> Path:
    """Write a copy of the lab's inventory with something changed in it."""
    text = lab.inventory.read_text(encoding="utf-8")
    for old, new in (replace or {}).items():
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "inventory.ini"
    path.write_text(text + extra, encoding="utf-8")
    return path


def test_a_key_that_the_machines_do_not_accept_is_named_as_the_cause(small_lab: labs.Lab, tmp_path: Path) -> None:
    labs.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"])
    path = inventory(small_lab, tmp_path, {str(small_lab.directory / "id_ed25519"): str(tmp_path / "other")})

    with unchanged(small_lab):
        done = labs.clusterctl("provision", path, "--json", check=False)

    refused = {check["host"]: check["id"] for check in json.loads(done.stdout)["checks"] if check["verdict"] == "fail"}
    assert done.returncode == 5
    assert refused == dict.fromkeys(small_lab.machines, "access.login")
    assert "Traceback" not in done.stderr


def test_hostile_settings_around_the_command_are_ignored_with_a_warning(small_lab: labs.Lab, tmp_path: Path) -> None:
    (tmp_path / "ansible.cfg").write_text("[defaults]\nhost_key_checking = False\nroles_path = /nowhere\n")
    (tmp_path / "known_hosts").write_text("")
    path = inventory(small_lab, tmp_path, {str(small_lab.directory / "known_hosts"): str(tmp_path / "known_hosts")})

    done = labs.clusterctl("preflight", path, check=False, cwd=tmp_path, env={"ANSIBLE_HOST_KEY_CHECKING": "False"})

    assert done.returncode == 3
    assert "access.host_key" in done.stdout + done.stderr
    assert "ignored" in done.stderr
    assert "ANSIBLE_HOST_KEY_CHECKING" in done.stderr
    assert "ansible.cfg" in done.stderr


# The same is seen without machines in tests/runs, and of a real one in test_access.
@pytest.mark.night
def test_a_machine_that_is_down_costs_little_and_stops_nobody_else(small_lab: labs.Lab, tmp_path: Path) -> None:
    absent = small_lab.address("head").rsplit(".", 1)[0] + ".250"
    path = inventory(small_lab, tmp_path, {"[slurm_compute]\n": f"[slurm_compute]\nnode9 ansible_host={absent}\n"})
    start = time.monotonic()
    labs.clusterctl("preflight", small_lab.inventory)
    alone = time.monotonic() - start

    start = time.monotonic()
    done = labs.clusterctl("preflight", path, "--json", check=False)
    together = time.monotonic() - start

    report = json.loads(done.stdout)
    # What a provision then does is seen in tests/runs.
    assert done.returncode == 3, done.stderr
    assert report["hosts"]["node9"]["unreachable"] == 1
    assert report["hosts"]["node1"]["ok"] > 0
    assert report["hosts"]["node1"]["failed"] == 0
    assert together <= alone + 30


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
    path = inventory(lab, tmp_path, {"ansible_user=admin": "ansible_user=someone"})
    before = failures(lab)

    with unchanged(lab):
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
        with unchanged(small_lab):
            done = labs.clusterctl("provision", small_lab.inventory, "--json", check=False)

        checks = json.loads(done.stdout)["checks"]
        assert done.returncode == 3, done.stderr
        assert ("head", "fail") in [(c["host"], c["verdict"]) for c in checks if "disk" in c["id"]]
    finally:
        small_lab.root("head", "umount /var/cache")


def test_a_package_manager_that_is_busy_is_named(small_lab: labs.Lab) -> None:
    lock = "/var/lib/dpkg/lock-frontend"
    hold = f"import fcntl, time; f = open('{lock}', 'w'); fcntl.lockf(f, fcntl.LOCK_EX); time.sleep(40)"
    holder = subprocess.Popen(["docker", "exec", small_lab.container("node1"), "python3", "-c", hold])
    try:
        time.sleep(1)
        done = labs.clusterctl(
            "preflight", small_lab.inventory, "-e", "preflight_lock_timeout=2", "--json", check=False
        )
    finally:
        holder.kill()
        small_lab.root("node1", "pkill -f lock-frontend", check=False)

    checks = json.loads(done.stdout)["checks"]
    locks = {check["host"]: check for check in checks if check["id"] == "preflight.package_lock"}
    assert done.returncode == 3
    assert (locks["head"]["verdict"], locks["node1"]["verdict"]) == ("pass", "fail")
    assert "python3" in locks["node1"]["observed"]


def same_cluster(lab: labs.Lab) -> tuple[int, dict[str, str]]:
    """Return how preflight ends, and what it has seen of clusters on each machine."""
    done = labs.clusterctl("preflight", lab.inventory, "--json", check=False)
    checks = json.loads(done.stdout)["checks"]
    return done.returncode, {one["host"]: one["observed"] for one in checks if one["id"] == "preflight.same_cluster"}


def test_another_name_for_a_cluster_with_state_and_a_controller_without_it_are_refused(small_lab: labs.Lab) -> None:
    state, cache = "/var/spool/slurmctld", "/var/spool/slurmd/conf-cache"
    declared = re.findall(r"cluster_name=(\S+)", small_lab.inventory.read_text(encoding="utf-8"))[0]
    lines = f"ClusterName={declared}\\nSlurmctldHost=old\\n"
    small_lab.root("node1", f"mkdir -p {cache}; printf '{lines}' >{cache}/slurm.conf")
    try:
        moved = same_cluster(small_lab)
        small_lab.root("head", f"mkdir -p {state}; printf 'former|7' >{state}/clustername")
        renamed = same_cluster(small_lab)
        small_lab.root("head", f"printf '{declared}|7' >{state}/clustername")
        copied = same_cluster(small_lab)
    finally:
        small_lab.root("head", f"rm -rf {state}")
        small_lab.root("node1", f"rm -rf {cache}")

    assert (moved[0], moved[1]["node1"]) == (3, "its slurmd is old's")
    assert (renamed[0], renamed[1]["head"]) == (3, "the state of cluster former")
    assert (copied[0], copied[1]["node1"]) == (0, "old")
