"""The first day of a user: login, a script from home, a shell on a node, an allocation, Ctrl-C, a lost connection."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import labs
import pytest

#: A user whom the lab's inventory declares, with the lab's own key.
USER = "ada"

SCRIPT = """#!/bin/bash
#SBATCH --job-name=first
#SBATCH --nodes=2
#SBATCH --gres=gpu:1
echo "on $SLURM_JOB_NUM_NODES nodes, in $PWD"
srun hostname
"""


def terminal(lab: labs.Lab, command: str) -> subprocess.Popen[str]:
    """Begin a login with a terminal, in which a command runs."""
    words = lab.entering("head", command, user=USER)
    pipe = subprocess.PIPE
    return subprocess.Popen([words[0], "-tt", *words[1:]], stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def jobs(lab: labs.Lab) -> list[str]:
    return lab.said("squeue --me --noheader --format=%T").split()


@pytest.fixture(autouse=True)
def nothing_of_hers(provisioned_lab: labs.Lab) -> Iterator[None]:
    yield
    provisioned_lab.said("scancel --me; rm -f slurm-*.out first.sh")
    labs.until(lambda: not jobs(provisioned_lab))


def test_a_script_that_is_submitted_at_home_leaves_its_output_there(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    lab.said(f"cat >first.sh <<'END'\n{SCRIPT}END")

    job = lab.said("sbatch first.sh").removeprefix("Submitted batch job ")
    labs.until(lambda: not jobs(lab))

    lines = lab.said(f"cat slurm-{job}.out").splitlines()
    assert lines[0] == "on 2 nodes, in /home/ada"
    assert sorted(lines[1:]) == ["node1", "node2"]
    asked = f"sacct --noheader --parsable2 --allocations --jobs={job} --format=State,User,AllocTRES"
    labs.until(lambda: lab.said(asked).startswith(f"COMPLETED|{USER}|"), 30, lambda: lab.said(asked))
    assert "gres/gpu=2" in lab.said(asked)


def test_a_shell_on_a_node_is_hers(provisioned_lab: labs.Lab) -> None:
    shell = terminal(provisioned_lab, "srun --nodelist=node2 --pty bash --norc")

    told, _ = shell.communicate("hostname; id --user --name; pwd; tty\nexit 3\n", timeout=60)

    assert {"node2", USER, "/home/ada"} <= set(told.split()), told
    assert "/dev/pts/" in told
    assert shell.returncode == 3


def test_an_allocation_has_a_shell_on_its_node_in_which_steps_run(provisioned_lab: labs.Lab) -> None:
    allocation = terminal(provisioned_lab, "salloc --nodes=2 --time=5")
    assert allocation.stdout is not None
    # What is typed before the shell is there, salloc's own terminal throws away.
    prompt = ""
    while (read := allocation.stdout.read(1)) and not (prompt := prompt + read).endswith("$ "):
        pass

    told, _ = allocation.communicate(
        "hostname; srun hostname </dev/null | sort | xargs echo steps\nexit 4\n", timeout=60
    )

    assert "Granted job allocation" in prompt, prompt + told
    assert "steps node1 node2" in told
    assert allocation.returncode == 4


def test_ctrl_c_twice_ends_a_step_at_once(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    step = terminal(lab, "srun sleep 600")
    labs.until(lambda: jobs(lab) == ["RUNNING"])
    assert step.stdin is not None
    begun = time.monotonic()

    step.stdin.write("\x03")
    step.stdin.flush()
    time.sleep(0.3)
    told, _ = step.communicate("\x03", timeout=60)

    assert "interrupt (one more within 1 sec to abort)" in told
    assert step.returncode != 0
    labs.until(lambda: not jobs(lab), 30)
    # Long before the program would have ended; how fast it is, the machine's load says.
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize("command", ["srun sleep 600", "salloc --nodes=1"])
def test_a_lost_login_ends_what_ran_in_its_terminal(provisioned_lab: labs.Lab, command: str) -> None:
    lab = provisioned_lab
    login = terminal(lab, command)
    labs.until(lambda: jobs(lab) == ["RUNNING"])

    login.kill()

    login.communicate()
    labs.until(lambda: not jobs(lab), 60)


def test_scancel_ends_a_job_of_hers_and_of_nobody_else(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    other = labs.run(
        lab.entering("head", "sbatch --parsable --chdir=/ --output=/dev/null --wrap 'sleep 600'", user="ben")
    )
    theirs = other.stdout.strip()
    mine = lab.said("sbatch --parsable --wrap 'sleep 600'")
    try:
        done = lab.ssh("head", f"scancel {theirs}", user=USER)
        lab.said(f"scancel {mine}")

        assert "Access/permission denied" in done.stdout + done.stderr
        labs.until(lambda: not jobs(lab))
        assert theirs in lab.said("squeue --noheader --format=%i").split()
    finally:
        labs.run(lab.entering("head", f"scancel {theirs}", user="ben"))
