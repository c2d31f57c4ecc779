"""Nodes that leave the cluster, come back, and are rebooted: no job is lost by it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator

import labs
import pytest

#: Paths and commands that show on a machine that it is part of a cluster.
OURS = """
docker ps --all --format '{{.Names}}' | grep -E 'slurmd|sackd'
ls -d /etc/munge/munge.key /etc/clusterctl /etc/docker/certs.d/head:* /usr/local/bin/sinfo 2>/dev/null
ls -A /var/lib/clusterctl /var/cache/clusterctl /var/spool/slurmd 2>/dev/null | grep -v :$
systemctl is-active munge clusterctl-mirror 2>/dev/null | grep -x active
grep clusterctl /etc/hosts
findmnt --noheadings --types nfs,nfs4
find /etc /usr/local -name '*clusterctl*' -not -path '/etc/docker/*' -not -name '*gpus*' -not -name 'clusterctl-lab*'
"""


def slurm(lab: labs.Lab, *words: str, user: str = "0:0") -> str:
    """Run one of Slurm's commands on the controller."""
    return labs.docker("exec", lab.container("head"), "docker", "exec", "--user", user, "slurmctld", *words)


def submit(lab: labs.Lab, *options: str) -> str:
    """Submit a job that sleeps for ten minutes, and return its number."""
    fixed = ("sbatch", "--parsable", "--time=30", "--chdir=/", "--output=/dev/null", "--mem=100", "--wrap=sleep 600")
    return slurm(lab, *fixed, *options, user=labs.PROVES)


def remove(lab: labs.Lab, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command on node2."""
    return labs.clusterctl("node", "remove", "node2", "-i", lab.inventory, *options, check=False)


@pytest.fixture
def lab(provisioned_lab: labs.Lab) -> Iterator[labs.Lab]:
    """The shared machines, provisioned again as they were, whatever happens."""
    inventory = provisioned_lab.inventory.read_text()
    yield provisioned_lab
    slurm(provisioned_lab, "scancel", f"--user={labs.PROVES.partition(':')[0]}")
    provisioned_lab.root("head", "scontrol delete ReservationName=mine", check=False)
    provisioned_lab.inventory.write_text(inventory)
    assert labs.document(provisioned_lab.inventory, "provision")["exit_code"] == 0
    labs.until(provisioned_lab.nodes_are_well, "all nodes take jobs")


def test_a_node_that_jobs_need_stays_and_then_leaves_without_a_trace(lab: labs.Lab) -> None:
    given, conf = lab.inventory.read_text(), lab.root("head", "sha256sum /etc/slurm/*")
    beside, running = submit(lab, "--nodelist=node1"), submit(lab, "--nodelist=node2")
    waiting = submit(lab, "--nodelist=node[1-2]", "--nodes=2", "--exclusive")
    later = submit(lab, "--nodelist=node2", "--begin=now+1hour")
    labs.until(lambda: lab.state(beside) == lab.state(running) == "RUNNING", lambda: lab.state(running))
    slurm(lab, "scontrol", "create", "ReservationName=mine", "Users=root", "Nodes=node2", "StartTime=now+1hour",
          "Duration=60")  # fmt: skip

    refused = json.loads(remove(lab, "--json").stdout)
    queue = next(check for check in refused["checks"] if check["id"] == "slurm_conf.queue")

    assert refused["exit_code"] == 3, refused
    for number in (running, waiting, later):
        assert f"job {number} " in queue["observed"]
    assert f"job {beside} " not in queue["observed"]
    assert "reservation mine" in queue["observed"]
    assert lab.inventory.read_text() == given
    assert lab.root("head", "sha256sum /etc/slurm/*") == conf

    slurm(lab, "scancel", running, waiting, later)
    slurm(lab, "scontrol", "delete", "ReservationName=mine")
    done = remove(lab, "--drain")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "node2" not in slurm(lab, "sinfo", "--noheader", "--Node")
    assert lab.state(beside) == "RUNNING"
    assert lab.root("node2", OURS, check=False) == ""
    assert "node2" not in lab.root("node1", "cat /etc/hosts")


def test_a_rebooted_node_takes_jobs_when_it_is_as_declared(lab: labs.Lab) -> None:
    beside, since = submit(lab, "--nodelist=node1"), lab.root("node2", "cut -d' ' -f22 /proc/1/stat")
    labs.until(lambda: lab.state(beside) == "RUNNING", lambda: lab.state(beside))

    words = [labs.BIN / "clusterctl", "node", "reboot", "node2", "--wait", "300", "-i", lab.inventory]
    command = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    # A container that reboots has ended; a machine's firmware would start it again.
    labs.until(lambda: command.poll() is not None or not lab.inspect("node2")["State"]["Running"])
    labs.docker("start", lab.container("node2"))
    said = command.communicate()[0]

    assert command.returncode == 0, said
    assert lab.root("node2", "cut -d' ' -f22 /proc/1/stat") != since
    labs.until(lambda: lab.node_is_well("node2"), lambda: str(lab.node("node2")))
    assert lab.state(beside) == "RUNNING"


def test_another_machine_takes_a_nodes_place_and_the_jobs_that_wait_for_it(lab: labs.Lab) -> None:
    # The same machine with new host keys and without what was ours: as if it were another.
    waiting = submit(lab, "--nodelist=node2", "--hold")
    lab.root("node2", "docker rm --force slurmd; systemctl stop munge; rm -r /etc/munge/munge.key /etc/docker/certs.d; "
             "rm /etc/ssh/ssh_host_*_key*; ssh-keygen -A >/dev/null; systemctl restart ssh")  # fmt: skip
    key = lab.root("node2", "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub").split()[1]
    words = ("node", "replace", "node2", "-i", lab.inventory, "--fingerprint")

    refused = labs.clusterctl(*words, "SHA256:other", check=False)
    done = labs.clusterctl(*words, key, check=False)

    assert (refused.returncode, done.returncode) == (2, 0), refused.stderr + done.stdout + done.stderr
    slurm(lab, "scontrol", "release", waiting)
    labs.until(lambda: lab.state(waiting) == "RUNNING", lambda: lab.state(waiting))


def test_a_new_node_has_nobodys_jobs_until_verify_has_passed_there(lab: labs.Lab) -> None:
    given = lab.inventory.read_text()
    # Taken out by hand: its slurmd goes on, and would register as soon as slurmctld knows the node again.
    lab.inventory.write_text(re.sub(r"(?m)^node2 .*\n", "", given))
    labs.clusterctl("provision", lab.inventory)
    beside, waiting = submit(lab, "--exclusive"), submit(lab, "--exclusive")
    labs.until(lambda: lab.state(beside) == "RUNNING", lambda: lab.state(beside))
    lab.inventory.write_text(given)

    done = labs.clusterctl("node", "add", "node2", "-i", lab.inventory, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    labs.until(lambda: lab.state(waiting) == "RUNNING", lambda: lab.state(waiting))
    asked = "sacct --allusers --noheader --parsable2 --allocations --nodelist=node2 --starttime=now-1hour"
    told = lab.root("head", f"{asked} --format=JobID,Start,End").splitlines()
    jobs = {number: (start, end) for number, start, end in (line.split("|") for line in told)}
    start = jobs.pop(waiting)[0]
    # Times as 2026-11-29T00:26:05. Those of verify, which were submitted later, have ended before it began.
    of_verify = [end for number, (_, end) in jobs.items() if int(number) > int(waiting)]
    assert of_verify, jobs
    assert max(of_verify) <= start
    assert lab.state(beside) == "RUNNING"
    assert "clusterctl-new" not in slurm(lab, "scontrol", "show", "reservation")
