"""Provisioning simulated machines: once, again, in part, by the other door, interrupted, and killed."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time

import labs
import pytest
import snapshots

from provision import content
from provision.ansible_env import clean_environment
from provision.runner import journal


def state(lab: labs.Lab) -> dict[str, object]:
    """Return everything on all machines that a run without changes must leave as it is."""
    return {machine: (snapshots.files(lab, machine), snapshots.services(lab, machine)) for machine in lab.machines}


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    document: dict[str, object] = json.loads(done.stdout)
    return document


def start(lab: labs.Lab, *words: str) -> subprocess.Popen[str]:
    """Start a provision in the background, in a session of its own."""
    return subprocess.Popen(
        [str(labs.BIN / "clusterctl"), "provision", str(lab.inventory), *words],
        env=clean_environment(),
        start_new_session=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def marked(lab: labs.Lab, machine: str) -> str:
    """Return the processes on a machine that one of our runs has started and that are still there."""
    return lab.root(machine, "grep -lsz '^CLUSTERCTL_RUN=' /proc/[0-9]*/environ", check=False)


def test_munge_can_be_restarted_and_slurms_containers_keep_its_socket(provisioned_lab: labs.Lab) -> None:
    for machine, container in (("head", "slurmctld"), ("node1", "slurmd")):
        provisioned_lab.root(machine, "systemctl restart munge")

        provisioned_lab.root(machine, f"docker exec {container} test -S /run/munge/munge.socket.2")


def test_a_plan_tells_and_a_limited_provision_mends_one_machine_only(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    for machine in ("node1", "node2"):
        lab.root(machine, "chmod 0640 /etc/docker/daemon.json")
    before = state(lab)

    plan = labs.clusterctl("plan", lab.inventory, "containers", "--detailed-exitcode", "--json", check=False)

    assert plan.returncode == 10, plan.stderr
    pending = [(check["host"], check["id"]) for check in report_of(plan)["pending_checks"]]  # type: ignore[attr-defined]
    assert sorted(pending) == [("node1", "container_engine.files"), ("node2", "container_engine.files")]
    assert state(lab) == before

    done = labs.clusterctl("provision", lab.inventory, "containers", "--limit", "node2", "--json")

    assert snapshots.difference(before["node1"][0], snapshots.files(lab, "node1")) == []  # type: ignore[index]
    assert snapshots.difference(before["node2"][0], snapshots.files(lab, "node2")) == ["/etc/docker/daemon.json"]  # type: ignore[index]
    assert list(report_of(done)["hosts"]) == ["node2"]  # type: ignore[call-overload]
    lab.root("node1", "chmod 0644 /etc/docker/daemon.json")


# Four runs more than the test above, which goes through clusterctl.
@pytest.mark.night
def test_plain_playbooks_tell_and_mend_the_same_and_quiet_machines_are_asked_once(provisioned_lab: labs.Lab) -> None:
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

    done = report_of(labs.clusterctl("provision", lab.inventory, "containers", "--json"))["hosts"]

    assert lab.root("node1", "stat -c %a /etc/docker/daemon.json") == "644"
    tasks = {machine: told["tasks"] for machine, told in done.items()}  # type: ignore[attr-defined]
    # While one machine has work, others on which nothing is to be done are asked once. What is worked out once for all
    # is counted to whichever machine Ansible takes for it.
    assert tasks["node2"] + tasks["login1"] <= 2 + 7 < tasks["node1"], tasks


# One playbook after the other, each for half a minute.
@pytest.mark.night
@pytest.mark.parametrize("stage", [name for name in content.stages() if name != "preflight"])
def test_a_stages_playbook_in_check_mode_on_one_machine_has_nothing_to_say(
    provisioned_lab: labs.Lab, stage: str
) -> None:
    told = labs.playbook(stage, "-i", provisioned_lab.inventory, "--check", "--limit", "node1").stdout

    assert "nothing would change" in told, told
    assert set(re.findall(r"changed=(\d+)", told)) == {"0"}, told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_ends_soon_and_leaves_no_process_anywhere(provisioned_lab: labs.Lab, number: int) -> None:
    lab = provisioned_lab
    run = start(lab, "base", "containers")
    deadline = time.monotonic() + 60
    while not any(marked(lab, machine) for machine in lab.machines) and time.monotonic() < deadline:
        time.sleep(0.1)

    run.send_signal(number)
    asked = time.monotonic()
    told, _ = run.communicate(timeout=60)

    assert time.monotonic() - asked <= 10, told
    assert run.returncode == 128 + number, told
    assert {machine: marked(lab, machine) for machine in lab.machines} == dict.fromkeys(lab.machines, "")


def kill_and_run_again(lab: labs.Lab, seconds: float) -> bool:
    """Kill a provision after some seconds, with everything it had on this computer; then run it to its end.

    Return whether there was anything to kill: a run that had ended by then proves nothing.
    """
    run = start(lab)
    try:
        run.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.kill(run.pid, signal.SIGKILL)
        run.communicate()

    done = labs.clusterctl("provision", lab.inventory, "--json", check=False)

    assert done.returncode == 0, f"killed after {seconds:.1f} s\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return run.returncode == -signal.SIGKILL


def kill_after(lab: labs.Lab, results: int) -> None:
    """Kill a provision once that many results of tasks are in its journal."""
    before = {run.id for run in journal.runs(journal.state_directory(lab.inventory))}
    run = start(lab)
    told = 0
    while told < results:
        assert run.poll() is None, f"it was over after {told} results, before it could be killed at {results}"
        time.sleep(0.05)
        for record in journal.runs(journal.state_directory(lab.inventory)):
            if record.id not in before and (path := record.directory / "journal.jsonl").exists():
                told = path.read_text(encoding="utf-8").count('"event": "result"')
    os.kill(run.pid, signal.SIGKILL)
    run.communicate()


#: Something of each stage on a node, and what the controller has for all.
SPOILT = {
    "node1": "docker rm --force slurmd; rm /etc/munge/munge.key /etc/security/limits.d/90-clusterctl.conf;"
    " echo '{}' >/etc/docker/daemon.json; userdel ben",
    "head": "echo '# by hand' >>/etc/slurm/slurm.conf; rm /usr/local/bin/squeue",
}


def test_what_a_killed_run_leaves_is_finished_by_plain_ansible_and_all_is_as_before(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    before = {machine: snapshots.files(lab, machine) for machine in lab.machines}
    for machine, how in SPOILT.items():
        lab.root(machine, how)

    kill_after(lab, random.randint(8, 40))  # noqa: S311 - a moment, not a secret
    labs.playbook("site", "-i", lab.inventory)

    after = {machine: snapshots.difference(before[machine], snapshots.files(lab, machine)) for machine in lab.machines}
    assert after == {machine: [] for machine in lab.machines}
    again = labs.playbook("site", "-i", lab.inventory)
    assert set(re.findall(r"changed=(\d+)", again.stdout)) == {"0"}


# Four more machines, provisioned from nothing.
@pytest.mark.night
def test_killed_first_runs_do_not_break_the_next_and_both_doors_leave_the_same_files(provisioned_lab: labs.Lab) -> None:
    """On machines of their own: what a killed first run has left is finished by plain Ansible."""
    with labs.made("t-door", nodes=2, logins=1) as other:
        shutil.copytree(provisioned_lab.directory / "group_vars", other.directory / "group_vars")
        # Early, in the middle and late of what a first run does. What one run has done the next does not do again, so
        # it has fewer results; where exactly it is killed is another place every time.
        for results in (random.randint(3, 35), random.randint(20, 45), random.randint(5, 20)):  # noqa: S311
            kill_after(other, results)

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
def test_twenty_runs_killed_at_random_points_all_converge(fresh_lab: labs.Lab) -> None:
    moments = random.Random("twenty kills")  # noqa: S311 - moments, not secrets
    labs.clusterctl("provision", fresh_lab.inventory)
    break_node(fresh_lab)
    begun = time.monotonic()
    labs.clusterctl("provision", fresh_lab.inventory)
    whole = time.monotonic() - begun
    killed = 0
    for _ in range(20):
        break_node(fresh_lab)
        moment = moments.uniform(0.5, whole)
        if kill_and_run_again(fresh_lab, moment):
            killed += 1
        else:
            whole = moment  # the computer is less busy than it was: a run has ended by then

    # The others had ended before.
    assert killed > 10


def break_node(lab: labs.Lab) -> None:
    """Take from a node what a provision brings back: its key and its daemon."""
    lab.root("node1", "docker rm -f slurmd; rm -f /etc/munge/munge.key")
