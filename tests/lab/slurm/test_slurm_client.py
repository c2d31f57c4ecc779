"""Slurm's commands are the user's own processes: environment, groups, limits, libraries, work that outlives daemons."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import labs
import pytest

#: An ordinary user of these tests alone, and the group of a project that she is in beside her own. slurmctld remembers
#: for ten minutes which groups somebody is in.
USER, PROJECT = "t-person", "t-project"


def words(lab: labs.Lab, script: str, user: str = USER) -> list[str]:
    """Return what runs a script on the controller as she does after a login, or somebody else."""
    return ["docker", "exec", "-i", lab.container("head"), "runuser", "--login", user, "--command", script]


def begun(lab: labs.Lab, script: str, user: str = USER) -> subprocess.Popen[str]:
    """Begin it, with a pipe to it and from it."""
    pipe = subprocess.PIPE
    return subprocess.Popen(words(lab, script, user), stdin=pipe, stdout=pipe, text=True)


def run(lab: labs.Lab, script: str, user: str = USER) -> str:
    return labs.run(words(lab, script, user)).stdout.strip()


def code(lab: labs.Lab, script: str) -> int:
    return labs.run(words(lab, script), check=False).returncode


def jobs(lab: labs.Lab) -> list[str]:
    return run(lab, f"squeue --noheader --user={USER} --format=%T").split()


@pytest.fixture(scope="module")
def lab(provisioned_lab: labs.Lab) -> Iterator[labs.Lab]:
    """Machines that know her."""
    lab = provisioned_lab
    made = (
        f"groupadd --gid 64900 {PROJECT}; useradd --uid 64901 --create-home --groups {PROJECT} --shell /bin/bash {USER}"
    )
    for machine in lab.machines:
        lab.root(machine, made)
    lab.root("head", f"sacctmgr --immediate add user {USER} account=biology")
    yield lab
    run(lab, f"scancel --user={USER}")
    labs.until(lambda: not jobs(lab))
    lab.root("head", f"sacctmgr --immediate delete user {USER}")
    for machine in lab.machines:
        lab.root(machine, f"userdel --remove {USER}; groupdel {PROJECT}")


def test_a_step_has_her_environment_place_and_groups_and_nothing_of_the_commands_own(lab: labs.Lab) -> None:
    """How it begins and ends otherwise, verify proves."""
    told = run(lab, "export SECRET='a b'; cd /usr/share && srun sh -c 'env; pwd; id --groups --name'").splitlines()

    assert {"SECRET=a b", "/usr/share"} <= set(told)
    assert not any(line.startswith("LD_LIBRARY_PATH") for line in told)
    assert PROJECT in told[-1].split()


def test_a_jobs_python_has_its_whole_library(lab: labs.Lab) -> None:
    assert code(lab, "srun --chdir=/ python3 -c 'import ctypes, shutil, ssl, tempfile'") == 0


def test_no_program_makes_root_of_her_but_those_that_rootless_containers_need(lab: labs.Lab) -> None:
    told = run(lab, "srun --chdir=/ sh -c 'find / -xdev -type f -perm /6000 2>&-; true'").split()

    assert {file.rpartition("/")[2] for file in told} <= {"newuidmap", "newgidmap"}


def test_a_script_that_only_her_group_may_read_is_submitted(lab: labs.Lab) -> None:
    lab.root("head", f"mkdir -p /srv/t-project && chgrp {PROJECT} /srv/t-project && chmod 2770 /srv/t-project")
    lab.root("head", f"printf '#!/bin/sh\\nexit 3\\n' >/srv/t-project/job && chgrp {PROJECT} /srv/t-project/job")
    lab.root("head", "chmod 0640 /srv/t-project/job")
    try:
        assert code(lab, "cd /srv/t-project && sbatch --wait --chdir=/ --output=/dev/null job") == 3
    finally:
        lab.root("head", "rm -r /srv/t-project")


def test_another_library_in_her_environment_is_not_theirs(lab: labs.Lab) -> None:
    run(lab, "mkdir -p /tmp/t-lib; for name in libc.so.6 libslurmfull.so; do echo none >/tmp/t-lib/$name; done")
    try:
        assert run(lab, "LD_LIBRARY_PATH=/tmp/t-lib exec sinfo --noheader --format=%P") == "batch*"
    finally:
        run(lab, "rm -r /tmp/t-lib")


def test_work_outlives_slurmctlds_container(lab: labs.Lab) -> None:
    waits = "until [ -e ~/go ]; do sleep 1; done"
    step = begun(lab, f"srun --chdir=/ sh -c 'echo begins; {waits}; echo ends; exit 5'")
    allocation = begun(lab, f"salloc -n1 sh -c '{waits}; srun hostname; exit 6'")
    # Its job alone is not enough: a step that slurmctld has not answered hangs for two minutes.
    assert step.stdout is not None
    assert step.stdout.readline() == "begins\n"
    labs.until(lambda: jobs(lab) == ["RUNNING"] * 2, lambda: run(lab, "squeue"))
    printed = "journalctl --no-pager --output=cat CONTAINER_NAME=slurmctld"
    last = lab.root("head", f"{printed} --lines=1")

    # In order: killed, it would forget what it has not saved for some seconds, and end the job that nobody knows.
    lab.root("head", "docker stop --time 60 slurmctld && docker rm slurmctld")
    done = labs.document(lab.inventory, "provision", "slurm")
    run(lab, "touch go")

    assert done["exit_code"] == 0
    assert (allocation.communicate(timeout=labs.PATIENCE)[0].split()[-1][:4], allocation.returncode) == ("node", 6)
    assert (step.communicate(timeout=labs.PATIENCE)[0], step.returncode) == ("ends\n", 5)
    assert last in lab.root("head", f"{printed} --lines=5000").splitlines(), "what it printed outlives it"
