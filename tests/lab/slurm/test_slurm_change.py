"""A changed configuration on a cluster that people work on: nothing of theirs ends, and a bad one changes nothing."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import labs
import pytest
import yaml

#: Who submits, and who works interactively beside: ordinary users of the lab.
USER, BESIDE = "grace", "ada"


def slurm(lab: labs.Lab, *words: str, user: str = USER) -> str:
    """Run one of Slurm's commands on the controller, as an ordinary user unless told otherwise."""
    command = ["docker", "exec", "-i", lab.container("head"), "runuser", "--user", user, "--", *words]
    return labs.run(command).stdout.strip()


def begun(lab: labs.Lab, script: str) -> subprocess.Popen[str]:
    """Begin a script of hers who works beside, with a pipe to it and from it."""
    words = ["docker", "exec", "-i", lab.container("head"), "runuser", "--login", BESIDE, "--command", script]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run(lab: labs.Lab, script: str) -> str:
    """Run it to its end, and return what it prints."""
    return lab.said(script, user=BESIDE)


def submit(lab: labs.Lab, *options: str, work: str = "sleep 600") -> int:
    fixed = ("sbatch", "--parsable", "--chdir=/", "--output=/dev/null", "--ntasks=1", "--mem=100", "--time=30")
    return int(slurm(lab, *fixed, *options, f"--wrap={work}"))


def queued(lab: labs.Lab) -> dict[int, str]:
    lines = slurm(lab, "squeue", "--noheader", "--format=%i %T").splitlines()
    return {int(number): state for number, state in (line.split() for line in lines)}


def parameter(lab: labs.Lab, name: str) -> str:
    lines = slurm(lab, "scontrol", "show", "config").splitlines()
    return next(line.partition("=")[2].strip() for line in lines if line.startswith(f"{name} "))


def container(lab: labs.Lab, machine: str = "head", name: str = "slurmctld") -> tuple[str, str]:
    """Return which container it is, and since when it runs."""
    found = json.loads(lab.root(machine, f"docker inspect {name}"))[0]
    return found["Id"], found["State"]["StartedAt"]


class Site:
    """The lab's inventory with a slurm.conf of its operator's own."""

    def __init__(self, lab: labs.Lab) -> None:
        self.lab = lab
        self.variables = lab.directory / "group_vars" / "all.yml"
        self.given = self.variables.read_text()

    def wants(
        self, files: dict[str, str] | None = None, *, cgroup: dict[str, Any] | None = None, **parameters: Any
    ) -> None:
        further = {"slurm_conf_files": files, "slurm_conf_cgroup_parameters": cgroup}
        wanted = {"slurm_conf_parameters": parameters, **{name: value for name, value in further.items() if value}}
        self.variables.write_text(self.given + yaml.safe_dump(wanted))

    def provision(self) -> subprocess.CompletedProcess[str]:
        return labs.clusterctl("provision", "--json", self.lab.inventory, "slurm", check=False)

    def take_back(self) -> None:
        """Have the inventory as it was; the cluster follows with the next provision, here or in a later test."""
        self.variables.write_text(self.given)


@pytest.fixture(scope="module")
def changed(provisioned_lab: labs.Lab) -> Iterator[Site]:
    """The shared machines, which are as their inventory says again when these tests have ended."""
    site = Site(provisioned_lab)
    yield site
    done = json.loads(site.provision().stdout)
    assert done["exit_code"] == 0, done["failures"]


@pytest.fixture
def site(changed: Site) -> Iterator[Site]:
    """The same; each test's operator takes the change back, and no job is left."""
    yield changed
    for user in (USER, BESIDE):
        slurm(changed.lab, "scancel", "--me", user=user)
    changed.take_back()


class Submitting(threading.Thread):
    """Somebody who submits jobs one after the other, so that some are a moment old whenever something happens."""

    def __init__(self, lab: labs.Lab, *options: str, work: str = "sleep 600") -> None:
        super().__init__()
        self.lab, self.stop, self.refused = lab, threading.Event(), 0
        self.options, self.work = options, work
        self.accepted: list[int] = []

    def run(self) -> None:
        while not self.stop.wait(0.3):
            try:
                self.accepted.append(submit(self.lab, *self.options, work=self.work))
            except AssertionError:
                self.refused += 1

    def __enter__(self) -> Submitting:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.join()


def test_interactive_work_and_submissions_go_on_through_a_changed_configuration(site: Site) -> None:
    lab = site.lab
    interactive = begun(lab, "srun --chdir=/ cat")
    allocation = begun(lab, "salloc -n1 sh -c 'read -r word; srun --chdir=/ hostname </dev/null; exit 6'")
    labs.until(lambda: list(queued(lab).values()).count("RUNNING") == 2, lambda: slurm(lab, "squeue"))
    daemons = (("head", "slurmctld"), ("node1", "slurmd"), ("login1", "sackd"))
    before = [container(lab, *daemon)[0] for daemon in daemons]
    site.wants(MessageTimeout=37)

    with Submitting(lab, "--hold") as somebody:
        done = site.provision()

    told, _ = allocation.communicate("go\n", timeout=labs.PATIENCE)
    assert (told.strip()[:4], allocation.returncode) == ("node", 6), told
    assert done.returncode == 0, done.stdout
    assert somebody.accepted
    assert set(somebody.accepted) <= set(queued(lab))
    assert parameter(lab, "MessageTimeout") == "37 sec"
    # The same containers. sackd in it may have been started anew: slurmctld forgets one that once took its time to
    # answer (agent.c, sackd_mgr.c), and only a start lets that have the files again.
    assert [container(lab, *daemon)[0] for daemon in daemons] == before
    assert lab.root("login1", "cat /run/slurm/conf/slurm.conf") == lab.root("head", "cat /etc/slurm/slurm.conf")
    assert interactive.communicate("still here\n", timeout=labs.PATIENCE)[0] == "still here\n"
    assert interactive.returncode == 0


#: Five submissions a second until there is a file "stop": each has its number, or what sbatch says, and its job writes
#: its number, at once: jobs wait for no other.
SUBMITTING = """rm -rf t-many && mkdir -p t-many/submitted && cd t-many || exit
number=0
while [ ! -e stop ]; do
    number=$((number + 1))
    { sbatch --parsable --chdir="$PWD" --output=/dev/null --mem=16 --time=1 --job-name=many \\
        --wrap 'echo $SLURM_JOB_ID >>ran' >submitted/$number 2>submitted/$number.said \\
        && mv submitted/$number submitted/$number.taken; } &
    sleep 0.2
done
wait"""


def some_submitted(lab: labs.Lab, number: int) -> None:
    """Wait until so many have been accepted."""
    labs.until(lambda: int(run(lab, "ls t-many/submitted | grep -c taken || true")) >= number)


def each_ran_once(lab: labs.Lab, submitting: subprocess.Popen[str]) -> list[str]:
    """End the submissions, and see that each accepted one ran once; return why others were refused."""
    run(lab, "touch t-many/stop")
    submitting.communicate(timeout=labs.LIMIT)
    taken = run(lab, "cat t-many/submitted/*.taken").split()
    refused = "cd t-many/submitted; for one in *; do case $one in *.*) ;; *) head -n 1 $one.said ;; esac; done"
    reasons = run(lab, refused).splitlines()
    assert len(taken) + len(reasons) == int(run(lab, "ls t-many/submitted/*.said | wc -l")), "all have an answer"
    labs.until(lambda: not run(lab, "squeue --me --noheader --name=many"))
    ran = run(lab, "cat t-many/ran").split()
    assert sorted(ran) == sorted(taken), "none is lost, none runs twice, and no number is given twice"
    asked = f"sacct --allocations --duplicates --noheader --parsable2 --jobs={','.join(taken)} --format=JobIDRaw,State"
    told = sorted(f"{job}|COMPLETED" for job in taken)
    # slurmctld tells the database of some at a time.
    labs.until(lambda: sorted(run(lab, asked).splitlines()) == told, lambda: run(lab, asked))
    run(lab, "rm -r t-many")
    return reasons


#: How slurmctld comes by another configuration, and what sbatch may say meanwhile, which itself tries again for as long
#: as it waits for an answer (MessageTimeout).
WAYS: dict[str, tuple[str, ...]] = {
    "told": (),
    "replaced": ("Unable to contact slurm controller", "Connection reset by peer"),
}


@pytest.mark.night
@pytest.mark.parametrize("way", WAYS)
def test_each_of_five_submissions_a_second_runs_once_while_slurmctld_is_told_or_replaced(site: Site, way: str) -> None:
    lab = site.lab
    site.wants(MessageTimeout=38)
    submitting = begun(lab, SUBMITTING)
    some_submitted(lab, 10)
    if way == "replaced":
        lab.root("head", "docker stop --time 60 slurmctld && docker rm slurmctld")

    done = site.provision()

    some_submitted(lab, int(run(lab, "ls t-many/submitted | grep -c taken")) + 10)
    reasons = each_ran_once(lab, submitting)
    assert done.returncode == 0, done.stdout
    assert not [reason for reason in reasons if not any(word in reason for word in WAYS[way])], reasons


#: Two switches, one above them; and a program of the site's before each job and after it.
TOPOLOGY = "SwitchName=t-one Nodes=node1\nSwitchName=t-two Nodes=node2\nSwitchName=t-all Switches=t-one,t-two\n"
MARKS = {f"t_{word}.sh": f'#!/bin/sh\necho {word} >>"/scratch/t-site-$SLURM_JOB_ID"\n' for word in ("begin", "end")}


def test_a_sites_prolog_and_epilog_run_beside_ours_and_slurm_knows_its_switches(site: Site) -> None:
    lab = site.lab
    site.wants(
        {**MARKS, "topology.conf": TOPOLOGY},
        Prolog=["t_begin.sh"], Epilog=["t_end.sh"], TopologyPlugin="topology/tree",
        cgroup={"MinRAMSpace": 41},
    )  # fmt: skip

    done = site.provision()
    look = "echo $SLURM_JOB_ID; cat /scratch/t-site-$SLURM_JOB_ID; echo $JOB_SCRATCH"
    job, began, scratch = slurm(lab, "srun", "--nodelist=node2", "--chdir=/", "sh", "-c", look).splitlines()

    try:
        assert done.returncode == 0, done.stdout
        assert (began, scratch) == ("begin", f"/scratch/.jobs/job-{job}")
        labs.until(lambda: lab.root("node2", f"cat /scratch/t-site-{job}").split() == ["begin", "end"])
        labs.until(lambda: lab.root("node2", f"ls -d {scratch} || echo gone").strip() == "gone")
        fetched = lab.root("node2", "docker exec slurmd cat /run/slurm/conf/cgroup.conf")
        assert "MinRAMSpace=41" in fetched.splitlines()
        told = slurm(lab, "scontrol", "show", "topology")
        assert [word for word in told.split() if word.startswith("SwitchName=")] == [
            "SwitchName=t-one", "SwitchName=t-two", "SwitchName=t-all",
        ]  # fmt: skip
    finally:
        for machine in ("node1", "node2"):
            lab.root(machine, "rm -f /scratch/t-site-*")


# A whole configuration more; that work goes on through one is above.
@pytest.mark.night
def test_jobs_that_begin_while_nodes_are_told_of_programs_that_are_new_to_them_do_not_fail(site: Site) -> None:
    lab = site.lab
    files = {name.replace("t_", "t_new_"): text for name, text in MARKS.items()}
    site.wants(files, Prolog=["t_new_begin.sh"], Epilog=["t_new_end.sh"])

    with Submitting(lab, work="srun true") as somebody:
        done = site.provision()
    last = slurm(lab, "srun", "--mem=100", "--time=1", "--chdir=/", "sh", "-c", "cat /scratch/t-site-$SLURM_JOB_ID")
    for machine in ("node1", "node2"):
        lab.root(machine, "rm -f /scratch/t-site-*")

    assert done.returncode == 0, done.stdout
    assert last == "begin"
    assert somebody.accepted
    labs.until(lambda: not set(somebody.accepted) & queued(lab).keys())
    ended = slurm(lab, "sacct", "-nXPo", "JobID,State,ExitCode", f"--jobs={','.join(map(str, somebody.accepted))}")
    assert sorted(ended.splitlines()) == sorted(f"{job}|COMPLETED|0:0" for job in somebody.accepted)


def test_a_configuration_that_slurmctld_refuses_fails_with_the_cause_and_the_old_one_stays(site: Site) -> None:
    """Which plugins the image's packages have, slurmctld says."""
    lab, cause = site.lab, "switch/hpe_slingshot"
    job, before = submit(lab, "--hold"), container(lab)
    files = lab.root("head", "cat /etc/slurm/*.conf")
    site.wants(SwitchType=cause)

    done = site.provision()

    assert done.returncode == 3, done.stdout
    assert cause in done.stdout
    assert container(lab) == before
    assert queued(lab)[job] == "PENDING"
    assert submit(lab, "--hold") > job
    assert lab.root("head", "cat /etc/slurm/*.conf") == files, "a restart finds the files of before"


def test_a_node_whose_slurmd_refuses_what_slurmctld_has_taken_up_is_named(site: Site) -> None:
    """scontrol reconfigure says 0: it tells of slurmctld alone."""
    lab = site.lab
    inside = "docker exec --user 0:0 slurmd sh -c"
    # A new slurmd there lacks a plugin, and ends at once; the one that runs has it, and goes on.
    plugin = lab.root("node2", f"{inside} 'ls /usr/lib/*/slurm-wlm/select_cons_tres.so'")
    lab.root("node2", f"{inside} 'mount --bind /dev/null {plugin}'")
    site.wants(MessageTimeout=41)
    # Each of two processes is waited for so long; of other nodes as long as they need.
    own = lab.directory / "host_vars/node2.yml"
    discovered = own.read_text()
    own.write_text(discovered + "slurm_service_start_timeout: 10\n")
    try:
        done = site.provision()
    finally:
        own.write_text(discovered)
        lab.root("node2", f"{inside} 'umount {plugin}'")

    told = json.loads(done.stdout)
    assert told["exit_code"] == 4, done.stdout
    assert {host for one in told["failures"] for host in one["hosts"]} == {"node2"}, told["failures"]
    assert "did not come up with what it has fetched" in str(told["failures"])

    # The cause is mended: slurmctld has nothing to send, and slurmd is told once more.
    again = json.loads(site.provision().stdout)
    assert (again["exit_code"], again["failures"]) == (0, [])


# That no job is lost with slurmctld's container is seen in test_slurm_client, too.
@pytest.mark.night
def test_only_what_a_start_takes_up_stops_slurmctld_and_no_job_of_the_last_seconds_is_lost(site: Site) -> None:
    lab = site.lab
    before = container(lab)
    site.wants(AuthInfo="cred_expire=119")

    with Submitting(lab, "--hold") as somebody:
        done = site.provision()

    assert done.returncode == 0, done.stdout
    assert container(lab)[0] != before[0]
    assert parameter(lab, "AuthInfo") == "cred_expire=119"
    assert set(somebody.accepted) <= set(queued(lab))


@pytest.mark.parametrize(("machine", "daemon"), [("head", "slurmctld"), ("node1", "slurmd")])
def test_a_daemon_that_was_reconfigured_and_is_killed_comes_back(site: Site, machine: str, daemon: str) -> None:
    lab = site.lab
    slurm(lab, "scontrol", "reconfigure", user="slurm")
    before = container(lab, machine, daemon)

    lab.root(machine, f"pkill -KILL -f '^[^ ]*{daemon} --systemd'")

    labs.until(lambda: container(lab, machine, daemon)[1] != before[1])
    assert container(lab, machine, daemon)[0] == before[0]
    labs.until(lab.nodes_are_well, lambda: slurm(lab, "scontrol", "show", "nodes"))
