"""Slurm's commands are the user's own processes: environment, groups, terminal, signals, exit codes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

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


def test_a_job_gets_the_environment_and_nothing_of_the_commands_own(lab: labs.Lab) -> None:
    told = run(lab, "export FOO=1 SECRET='a b'; srun --chdir=/ env")

    assert {"FOO=1", "SECRET=a b"} <= set(told.splitlines())
    assert "LD_LIBRARY_PATH" not in told
    assert code(lab, "FOO=2 sbatch --wait --chdir=/ --output=/dev/null --wrap '[ $FOO = 2 ]'") == 0


def test_exit_codes_place_umask_and_groups_are_hers(lab: labs.Lab) -> None:
    assert code(lab, "srun --chdir=/ sh -c 'exit 7'") == 7
    assert code(lab, "sbatch --wait --chdir=/ --output=/dev/null --wrap 'exit 9'") == 9
    assert code(lab, "salloc -n1 sh -c 'exit 5'") == 5
    assert run(lab, "cd /usr/share && srun pwd") == "/usr/share"
    assert run(lab, "umask 027; srun --chdir=/ sh -c umask") == "0027"
    assert PROJECT in run(lab, "srun --chdir=/ id --groups --name").split()
    assert run(lab, "cd / && salloc -n1 cat /etc/hostname") == "head", "salloc's command runs where she is"


def test_limits_of_where_she_typed_stay_there_unless_she_asks_for_them(lab: labs.Lab) -> None:
    assert run(lab, "ulimit -S -n 77; srun --chdir=/ sh -c 'ulimit -S -n'") != "77"
    assert run(lab, "ulimit -S -n 77; srun --propagate=NOFILE --chdir=/ sh -c 'ulimit -S -n'") == "77"


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


@pytest.mark.parametrize("signal", ["TERM", "HUP"])
def test_a_signal_ends_the_step_and_the_job(lab: labs.Lab, signal: str) -> None:
    assert code(lab, f"timeout --signal={signal} 4 srun --chdir=/ sleep 600") != 0

    labs.until(lambda: not jobs(lab))


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


def some_submitted(lab: labs.Lab, user: str = USER, number: int = 10) -> None:
    """Wait until so many have been accepted."""
    labs.until(lambda: int(run(lab, "ls t-many/submitted | grep -c taken || true", user)) >= number)


def each_ran_once(lab: labs.Lab, submitting: subprocess.Popen[str], user: str = USER) -> tuple[int, list[str]]:
    """End the submissions, and see that each accepted one ran once; return how many, and why others were refused."""
    run(lab, "touch t-many/stop", user)
    submitting.communicate(timeout=120)
    taken = run(lab, "cat t-many/submitted/*.taken", user).split()
    refused = "cd t-many/submitted; for one in *; do case $one in *.*) ;; *) head -n 1 $one.said ;; esac; done"
    reasons = run(lab, refused, user).splitlines()
    assert len(taken) + len(reasons) == int(run(lab, "ls t-many/submitted/*.said | wc -l", user)), "all have an answer"
    labs.until(lambda: not run(lab, "squeue --me --noheader --name=many", user))
    ran = run(lab, "cat t-many/ran", user).split()
    assert sorted(ran) == sorted(taken), "none is lost, none runs twice, and no number is given twice"
    asked = f"sacct --allocations --duplicates --noheader --parsable2 --jobs={','.join(taken)} --format=JobIDRaw,State"
    told = sorted(f"{job}|COMPLETED" for job in taken)
    # slurmctld tells the database of some at a time.
    labs.until(lambda: sorted(run(lab, asked, user).splitlines()) == told, lambda: run(lab, asked, user))
    run(lab, "rm -r t-many", user)
    return len(taken), reasons


def test_work_outlives_slurmctlds_container_and_none_of_five_submissions_a_second_is_lost(lab: labs.Lab) -> None:
    step = begun(lab, "srun --chdir=/ sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 2; done; exit 5'")
    allocation = begun(lab, "salloc -n1 sh -c 'until [ -e go ]; do sleep 0.2; done; srun hostname; exit 6'")
    labs.until(lambda: jobs(lab) == ["RUNNING"] * 2)
    submitting = begun(lab, SUBMITTING)
    some_submitted(lab)

    printed = "journalctl --no-pager --output=cat CONTAINER_NAME=slurmctld"
    last = lab.root("head", f"{printed} --lines=1")
    # In order: killed, it would forget what it has not saved for some seconds, and end the job that nobody knows.
    lab.root("head", "docker stop --time 60 slurmctld && docker rm slurmctld")
    with ThreadPoolExecutor(1) as pool:
        provision = pool.submit(labs.document, lab.inventory, "provision", "slurm")
        labs.until(lambda: lab.root("head", "docker exec slurmctld scontrol ping", check=False).endswith("UP"))
        before = len(run(lab, "ls t-many/submitted/*.taken").split())
        some_submitted(lab, number=before + 10)
        done = provision.result()
        # At once. Before slurmctld has heard of all nodes, it would hold the step up for two minutes: the provision has
        # waited.
        asked = time.monotonic()
        run(lab, "touch go")
        assert (allocation.communicate(timeout=60)[0].split()[-1][:4], allocation.returncode) == ("node", 6)
        assert time.monotonic() - asked < 30
        accepted, reasons = each_ran_once(lab, submitting)

    assert done["exit_code"] == 0
    # sbatch itself tries again for as long as it waits for an answer (MessageTimeout).
    assert accepted > 20
    refused = ("Unable to contact slurm controller", "Connection reset by peer")
    assert not {reason for reason in reasons if not any(word in reason for word in refused)}, reasons
    assert last in lab.root("head", f"{printed} --lines=5000").splitlines(), "what it printed outlives it"
    told, _ = step.communicate(timeout=60)
    assert (told.split(), step.returncode) == ([str(number) for number in range(1, 11)], 5)
