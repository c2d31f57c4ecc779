"""Provisioning simulated machines: by the other door, interrupted, and killed."""

from __future__ import annotations

import random
import re
import shutil
import signal

import interrupting
import labs
import pytest
import snapshots

from provision import content


def state(lab: labs.Lab) -> dict[str, object]:
    """Return everything on all machines that a run without changes must leave as it is."""
    return {machine: (snapshots.files(lab, machine), snapshots.services(lab, machine)) for machine in lab.machines}


def marked(lab: labs.Lab, machine: str) -> str:
    """Return the processes on a machine that one of our runs has started and that are still there."""
    return lab.root(machine, "grep -lsz '^CLUSTERCTL_RUN=' /proc/[0-9]*/environ", check=False)


def test_munge_can_be_restarted_and_slurms_containers_keep_its_socket(provisioned_lab: labs.Lab) -> None:
    for machine, container in (("head", "slurmctld"), ("node1", "slurmd")):
        provisioned_lab.root(machine, "systemctl restart munge")

        provisioned_lab.root(machine, f"docker exec {container} test -S /run/munge/munge.socket.2")


# Four runs; what goes through clusterctl is for every day (tests/runs).
@pytest.mark.night
def test_plain_playbooks_tell_and_mend_the_same(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    for machine in ("head", "node1"):
        lab.root(machine, "chmod 0640 /etc/docker/daemon.json")
    before = state(lab)

    told = labs.playbook("containers", "-i", lab.inventory, "--check", "--diff").stdout

    (line,) = [line for line in told.splitlines() if "/etc/docker/daemon.json has mode 0640, not 0644" in line]
    assert all(words in line for words in ("container_engine.files", "head", "node1")), line
    assert state(lab) == before

    labs.playbook("containers", "-i", lab.inventory, "--limit", "head")

    modes = {machine: lab.root(machine, "stat -c %a /etc/docker/daemon.json") for machine in ("head", "node1")}
    assert modes == {"head": "644", "node1": "640"}
    labs.clusterctl("provision", lab.inventory, "containers")


# One playbook after the other, each for half a minute.
@pytest.mark.night
@pytest.mark.parametrize("stage", [name for name in content.stages() if name != "preflight"])
def test_a_stages_playbook_in_check_mode_on_one_machine_has_nothing_to_say(
    provisioned_lab: labs.Lab, stage: str
) -> None:
    told = labs.playbook(stage, "-i", provisioned_lab.inventory, "--check", "--limit", "node1").stdout

    assert "nothing would change" in told, told
    assert set(re.findall(r"changed=(\d+)", told)) == {"0"}, told


def test_a_stopped_run_ends_and_leaves_no_process_anywhere(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    run = interrupting.begun(lab, 1, "provision", "base", "containers")

    run.send_signal(signal.SIGINT)
    told, _ = run.communicate(timeout=labs.PATIENCE)

    assert run.returncode == 128 + signal.SIGINT, told
    assert {machine: marked(lab, machine) for machine in lab.machines} == dict.fromkeys(lab.machines, "")


# Four more machines, provisioned from nothing.
@pytest.mark.night
def test_killed_first_runs_do_not_break_the_next_and_both_doors_leave_the_same_files(provisioned_lab: labs.Lab) -> None:
    """On machines of their own: what a killed first run has left is finished by plain Ansible."""
    with labs.made("t-door", nodes=2, logins=1) as other:
        shutil.copytree(provisioned_lab.directory / "group_vars", other.directory / "group_vars")
        # Early, in the middle and late of what a first run does. What one run has done the next does not do again, so
        # it has fewer results.
        for results in (15, 40, 10):
            interrupting.killed(other, results)

        labs.playbook("site", "-i", other.inventory)

        for machine in provisioned_lab.machines:
            ours = snapshots.files(provisioned_lab, machine)
            theirs = snapshots.files(other, machine)
            # Each lab has a key of its own, with which its users log in.
            keys = {"/etc/ssh/authorized_keys.d/ada", "/etc/ssh/authorized_keys.d/ben"}
            assert set(snapshots.difference(ours, theirs)) <= keys, machine
        again = labs.playbook("site", "-i", other.inventory)
        assert set(re.findall(r"changed=(\d+)", again.stdout)) == {"0"}


@pytest.fixture(scope="module")
def fresh_lab() -> object:
    with labs.made("t-fault", nodes=1) as made:
        yield made


@pytest.mark.night
@pytest.mark.timeout(2 * 3600)
def test_twenty_runs_killed_at_any_result_all_converge(fresh_lab: labs.Lab) -> None:
    lab, dice = fresh_lab, random.Random("twenty kills")  # noqa: S311 - results, not secrets
    labs.clusterctl("provision", lab.inventory)
    break_node(lab)
    before = interrupting.runs(lab)
    labs.clusterctl("provision", lab.inventory)
    whole = interrupting.results(lab, before)
    killed = 0
    for _ in range(20):
        break_node(lab)
        killed += interrupting.killed(lab, dice.randrange(1, whole))

        labs.clusterctl("provision", lab.inventory)

    # The others were over before.
    assert killed > 10


def break_node(lab: labs.Lab) -> None:
    """Take from a node what a provision brings back: its key and its daemon."""
    lab.root("node1", "docker rm -f slurmd; rm -f /etc/munge/munge.key")
