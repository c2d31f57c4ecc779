"""Machines of a lab before anything is done to them: what they are, and what is refused without a change."""

from __future__ import annotations

import json
from pathlib import Path

import labs
import snapshots
import yaml


def test_a_check_run_works_on_clean_machines_and_changes_nothing(new_lab: labs.Lab) -> None:
    with snapshots.unchanged(new_lab):
        done = labs.clusterctl("provision", new_lab.inventory, "--check", "--json", check=False)

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert json.loads(done.stdout)["changed"] > 0
    assert not list(new_lab.directory.glob("host_vars/*"))


def test_only_the_owner_can_read_a_labs_directory(new_lab: labs.Lab) -> None:
    modes = {path: path.stat().st_mode & 0o077 for path in (new_lab.directory, *new_lab.directory.rglob("*"))}
    # The machines' users enter this one from there; on this computer the directory above keeps everybody out.
    home = new_lab.directory / "home"

    assert {path for path, mode in modes.items() if mode and path != home} == set()


def test_a_machine_answers_with_the_key_that_was_recorded_for_it(new_lab: labs.Lab) -> None:
    recorded = (new_lab.directory / "known_hosts").read_text(encoding="utf-8")

    for machine in new_lab.machines:
        scanned = labs.run(["ssh-keyscan", "-t", "ed25519", new_lab.address(machine)]).stdout.split()
        assert " ".join(scanned[:3]) in recorded


def test_a_machine_is_entered_as_an_ordinary_user_and_never_as_root(new_lab: labs.Lab) -> None:
    user = new_lab.ssh("node1", "id -un; sudo -n id -un")
    root = new_lab.ssh("node1", "id -un", user="root")

    assert user.stdout.split() == ["admin", "root"]
    assert root.returncode == 255
    assert "Permission denied" in root.stderr


def test_a_lab_describes_itself(new_lab: labs.Lab) -> None:
    described = yaml.safe_load((new_lab.directory / "lab.yml").read_text(encoding="utf-8"))
    state = json.loads(labs.clusterctl("lab", "status", new_lab.name, "--json").stdout)

    assert described["machines"] == {machine: new_lab.address(machine) for machine in new_lab.machines}
    assert described["simulated"] == ["gpu"]
    assert described["cgroup_version"] in (1, 2)
    assert {machine["name"]: machine["state"] for machine in state["machines"]} == dict.fromkeys(
        new_lab.machines, "running"
    )
    assert state["inventory"] == str(new_lab.inventory)


def test_gpus_are_device_files_and_a_stand_in_that_says_so(new_lab: labs.Lab) -> None:
    listed = new_lab.ssh("node1", "nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader")
    devices = new_lab.root("node1", "stat --format '%n %F %Hr,%Lr' /dev/nvidia0 /dev/nvidia1")
    on_the_controller = new_lab.root("head", "ls /dev | grep -c nvidia; command -v nvidia-smi", check=False)

    assert listed.stdout.splitlines() == ["0, SIM, 0.0", "1, SIM, 0.0"]
    assert "SIMULATED" in listed.stderr
    assert devices.splitlines() == [f"/dev/nvidia{n} character special file 195,{n}" for n in (0, 1)]
    assert on_the_controller == "0"


def test_a_changed_host_key_is_refused_before_anything_is_sent(new_lab: labs.Lab, tmp_path: Path) -> None:
    labs.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "host"])
    public = (tmp_path / "host.pub").read_text().split()
    forged = tmp_path / "known_hosts"
    forged.write_text("".join(f"{new_lab.address(m)} {public[0]} {public[1]}\n" for m in new_lab.machines))
    path = new_lab.inventory_with(tmp_path, {str(new_lab.directory / "known_hosts"): str(forged)})
    before = new_lab.root("node1", "journalctl --unit ssh --no-pager | grep -c 'Accepted\\|Failed'", check=False)

    with snapshots.unchanged(new_lab):
        done = labs.clusterctl("provision", path, "--json", check=False)

    report = json.loads(done.stdout)
    assert done.returncode == 5
    assert [check["id"] for check in report["checks"] if check["host"] == "node1"] == ["access.host_key"]
    assert "SHA256:" in json.dumps(report["checks"])
    after = new_lab.root("node1", "journalctl --unit ssh --no-pager | grep -c 'Accepted\\|Failed'", check=False)
    assert after == before


def test_more_memory_than_the_machine_has_is_refused_and_nothing_is_changed(new_lab: labs.Lab, tmp_path: Path) -> None:
    """Of the machine alone: provision would leave it out (tests/runs/test_left_out.py)."""
    path = new_lab.inventory_with(
        tmp_path, {"[slurm_compute]\nnode1": "[slurm_compute]\nnode1 node_real_memory=99999999"}
    )

    with snapshots.unchanged(new_lab):
        done = labs.clusterctl("preflight", path, "--json", check=False)

    document = json.loads(done.stdout)
    assert (done.returncode, document["exit_code"]) == (3, 3), done.stdout[-3000:] + done.stderr[-3000:]
    found = {check["host"]: check for check in document["checks"] if check["id"] == "hardware.real_memory"}
    assert found["node1"]["verdict"] == "fail"
    assert "99999999" in found["node1"]["expected"]
    assert found["node1"]["observed"].endswith(" MB")
    assert found["node1"]["fix"]
