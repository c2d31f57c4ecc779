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

USER = labs.PROVES


def inside(lab: labs.Lab, *words: str, user: str = USER) -> list[str]:
    """Return the command that runs one of Slurm's on the controller, as an ordinary user unless told otherwise."""
    return ["docker", "exec", "-i", lab.container("head"), "docker", "exec", "-i", "--user", user, "slurmctld", *words]


def slurm(lab: labs.Lab, *words: str, user: str = USER) -> str:
    return labs.run(inside(lab, *words, user=user)).stdout.strip()


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

    def wants(self, **parameters: Any) -> None:
        self.variables.write_text(self.given + yaml.safe_dump({"slurm_conf_parameters": parameters}))

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
    slurm(changed.lab, "scancel", f"--user={USER.partition(':')[0]}")
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


def test_jobs_and_interactive_work_go_on_through_a_changed_configuration(site: Site) -> None:
    lab = site.lab
    running = submit(lab)
    labs.until(lambda: queued(lab)[running] == "RUNNING")
    interactive = subprocess.Popen(
        inside(lab, "srun", "--ntasks=1", "--mem=100", "--time=30", "--chdir=/", "cat"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    allocation = subprocess.Popen(
        inside(lab, "salloc", "--ntasks=1", "--mem=100", "cat"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    labs.until(lambda: list(queued(lab).values()).count("RUNNING") == 3)
    before = container(lab), container(lab, "node1", "slurmd"), container(lab, "login1", "sackd")
    site.wants(MessageTimeout=37)

    with Submitting(lab, "--hold") as somebody:
        done = site.provision()

    assert done.returncode == 0, done.stdout
    assert parameter(lab, "MessageTimeout") == "37 sec"
    assert (container(lab), container(lab, "node1", "slurmd"), container(lab, "login1", "sackd")) == before
    assert lab.root("login1", "cat /run/slurm/conf/slurm.conf") == lab.root("head", "cat /etc/slurm/slurm.conf")
    jobs = queued(lab)
    assert len(somebody.accepted) > 10
    assert somebody.refused == 0
    assert sorted(set(somebody.accepted)) == somebody.accepted, "no number is given twice"
    assert set(somebody.accepted) <= set(jobs), "no job is lost"
    assert submit(lab, "--hold") > max(somebody.accepted)
    assert jobs[running] == "RUNNING"
    assert interactive.communicate("still here\n", timeout=30)[0] == "still here\n"
    assert allocation.communicate("here, too\n", timeout=30)[0] == "here, too\n"
    assert (interactive.returncode, allocation.returncode) == (0, 0)


# Two whole configurations more; that work goes on through one is above.
@pytest.mark.faults
def test_jobs_that_begin_while_nodes_are_told_of_programs_that_are_new_to_them_do_not_fail(site: Site) -> None:
    lab = site.lab
    site.wants(Prolog=None, Epilog=None, TaskProlog=None)
    assert site.provision().returncode == 0
    site.take_back()

    with Submitting(lab, work="srun true") as somebody:
        done = site.provision()
    last = slurm(lab, "srun", "--mem=100", "--time=1", "--chdir=/", "printenv", "JOB_SCRATCH")

    assert done.returncode == 0, done.stdout
    assert last.startswith("/scratch/.jobs/job-")
    assert len(somebody.accepted) > 10
    labs.until(lambda: not set(somebody.accepted) & queued(lab).keys())
    ended = slurm(lab, "sacct", "-nXPo", "JobID,State,ExitCode", f"--jobs={','.join(map(str, somebody.accepted))}")
    assert sorted(ended.splitlines()) == sorted(f"{job}|COMPLETED|0:0" for job in somebody.accepted)


def test_a_configuration_that_slurmctld_refuses_fails_with_the_cause_and_the_old_one_stays(site: Site) -> None:
    """What the manual has words for is refused by check; plugins of switches it has none for."""
    lab, cause = site.lab, "switch/nonsense"
    job, before = submit(lab, "--hold"), container(lab)
    files = lab.root("head", "cat /etc/slurm/*.conf")
    site.wants(SwitchType=cause)

    done = site.provision()

    assert done.returncode == 4, done.stdout
    assert cause in done.stdout
    assert container(lab) == before
    assert queued(lab)[job] == "PENDING"
    assert submit(lab, "--hold") > job
    assert lab.root("head", "cat /etc/slurm/*.conf") == files, "a restart finds the files of before"


# That no job is lost with slurmctld's container is seen in test_slurm_client, too.
@pytest.mark.faults
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


def test_two_jobs_with_a_gpu_each_that_ask_for_no_memory_run_side_by_side(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    words = ("sbatch", "--parsable", "--chdir=/", "--output=/dev/null", "--nodelist=node1", "--gres=gpu:1", "--time=30")
    jobs = [int(slurm(lab, *words, "--wrap=sleep 600")) for _ in range(2)]
    try:
        labs.until(lambda: [queued(lab)[job] for job in jobs] == ["RUNNING"] * 2)
    finally:
        slurm(lab, "scancel", *map(str, jobs))


@pytest.mark.parametrize(("machine", "daemon"), [("head", "slurmctld"), ("node1", "slurmd")])
def test_a_daemon_that_was_reconfigured_and_is_killed_comes_back(site: Site, machine: str, daemon: str) -> None:
    lab = site.lab
    slurm(lab, "scontrol", "reconfigure", user="64030:64030")
    before = container(lab, machine, daemon)

    lab.root(machine, f"pkill -KILL -f '^{daemon} --systemd'")

    labs.until(lambda: container(lab, machine, daemon)[1] != before[1])
    assert container(lab, machine, daemon)[0] == before[0]
    labs.until(lambda: "State=IDLE" in slurm(lab, "scontrol", "show", "node", "node1"))
