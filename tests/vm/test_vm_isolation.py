"""Two users on one node: neither reads, takes or ends what is the other's or the machine's, and memory is one's own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import labs
import pytest
import vms

#: Users whom the lab declares: one has a job on the node, the other looks around from a job beside it.
OWNER, OWNERS_UID, CURIOUS = "ada", 2001, "ben"
PROBES = Path(__file__).with_name("probes.py").read_text(encoding="utf-8")

DENIED, ABSENT, FORBIDDEN = "Permission denied", "No such file or directory", "Operation not permitted"

#: What the curious one is told in a job. slurmdbd and slurmctld are not on the node. No driver is behind a simulated
#: GPU (ENXIO), which is the job's own; what a control group forbids is refused before anybody looks for one (EPERM).
IN_A_JOB = {
    "munge_key": [DENIED],
    "slurmdbd_conf": [ABSENT],
    "state": [ABSENT, DENIED],
    "scripts": ["Invalid user id", DENIED],
    "environment": [DENIED],
    "tmp": [ABSENT, DENIED],
    "shm": [ABSENT, DENIED],
    "gpus": ["No such device or address", FORBIDDEN],
    "memory": [DENIED],
    "cores": ["Invalid argument", DENIED],
    "docker": [ABSENT, DENIED],
    "signals": [f"{whose}: {FORBIDDEN}" for whose in ("another's", "dockerd", "munged", "slurmd", "slurmstepd")],
}
#: After a login on the controller.
ON_THE_CONTROLLER = {
    "munge_key": [DENIED],
    "slurmdbd_conf": [DENIED],
    "state": [DENIED],
    "scripts": ["Invalid user id"],
    "environment": [DENIED],
    "tmp": [DENIED],
    "shm": [DENIED],
    "docker": [DENIED],
    "signals": [f"{whose}: {FORBIDDEN}" for whose in ("another's", "dockerd", "munged", "slurmctld")],
}

#: Readable by all, if they come to it.
SCRIPT = """#!/bin/sh
# secret
umask 022
echo secret | tee /tmp/secret-$SLURM_JOB_ID >/dev/shm/secret-$SLURM_JOB_ID
mkfifo done
echo ready >ready
read -r word <done
exit 0
"""


def words(lab: vms.VmLab, user: str, command: str) -> list[str | Path]:
    return lab.entering("head", command, user=user)


def said(lab: vms.VmLab, user: str, command: str, text: str = "") -> str:
    return labs.run(words(lab, user, command), input=text, timeout=600).stdout.strip()


def in_the_end(lab: vms.VmLab, user: str, which: str, wanted: str) -> None:
    """Wait until accounting says this of a job's end."""
    asked = f"sacct --noheader --parsable2 --allocations --format=State,ExitCode {which} | tail -n 1"
    labs.until(lambda: said(lab, user, asked) == wanted, lambda: said(lab, user, asked))


@pytest.fixture(scope="module")
def owners_job(node_lab: vms.VmLab) -> Iterator[str]:
    """A job with one GPU and one core that goes on until the end of these tests."""
    lab = node_lab
    options = "--parsable --nodelist=node1 --gres=gpu:1 --mem=200 --time=30 --chdir=/home/ada --output=/dev/null"
    lab.root("node1", "cd /home/ada && rm -f ready done")
    job = said(lab, OWNER, f"SECRET=word sbatch {options}", SCRIPT)
    try:
        labs.until(lambda: lab.root("node1", "ls /home/ada/ready", check=False), "the job does not start")
        yield job
    finally:
        said(lab, OWNER, f"scancel {job}")
        lab.wait_free("node1")


def test_a_job_is_refused_what_is_anothers_or_the_machines(node_lab: vms.VmLab, owners_job: str) -> None:
    job = "srun --nodelist=node1 --gres=gpu:1 --mem=200 --time=10 --chdir=/"

    told = json.loads(said(node_lab, CURIOUS, f"{job} python3 - {OWNERS_UID} {owners_job}", PROBES))

    assert told == IN_A_JOB


def test_a_login_on_the_controller_is_refused_what_is_slurms(node_lab: vms.VmLab, owners_job: str) -> None:
    # The owner has logged in, too, and keeps files there that are nobody else's.
    files = f"/tmp/secret-{owners_job} /dev/shm/secret-{owners_job}"
    own = f"umask 077; for f in {files}; do echo secret >$f; done; echo ready; read -r word; rm {files}"
    pipe = subprocess.PIPE
    with subprocess.Popen(words(node_lab, OWNER, f"SECRET=word sh -c '{own}'"), stdin=pipe, stdout=pipe) as login:
        assert login.stdout is not None
        assert login.stdout.readline() == b"ready\n"
        told = json.loads(said(node_lab, CURIOUS, f"python3 - {OWNERS_UID} {owners_job}", PROBES))

    assert {name: told[name] for name in ON_THE_CONTROLLER} == ON_THE_CONTROLLER


def test_a_steps_container_is_confined_with_its_step_and_the_next_step_has_one(node_lab: vms.VmLab) -> None:
    """What keeps the container is in the step's control group, and is ended with it; a name brings it back."""
    image = said(node_lab, CURIOUS, "srun --quiet podman --log-level error images --quiet | head -n 1")
    keeper = "$(for p in /proc/[0-9]*; do tr -d '\\0' <$p/cmdline | grep -q ^/.pause && echo $p && break; done)"
    look = f"ls /dev | grep -c ^nvidia; cmp /proc/self/cgroup {keeper}/cgroup && grep -c /step_0/ /proc/self/cgroup"
    script = f"""
cat >look.sh <<'END'
{look}
echo own >/tmp/own; echo named >/named
END
cat >steps.sh <<END
srun --quiet --container-image={image} --container-name=mine sh -s <look.sh 2>/dev/null
srun --quiet --container-image={image} cat /tmp/own
srun --quiet --container-name=mine cat /named /tmp/own
srun --quiet podman ps --quiet | wc -l
END
salloc --quiet --gres=gpu:1 --mem=600 sh steps.sh; rm look.sh steps.sh; ls /tmp/own 2>&1 || true
"""

    told = said(node_lab, CURIOUS, "sh -s", script).splitlines()

    assert told[:-1] == ["1", "1", "own", "named", "own", "0"]
    assert told[-1].endswith(ABSENT)


def test_a_job_over_its_memory_dies_alone(node_lab: vms.VmLab, owners_job: str) -> None:
    lab = node_lab
    # ConstrainSwapSpace: what a job may have is memory, not the machine's disk as well.
    swap = f"find /sys/fs/cgroup -path '*/job_{owners_job}/memory.swap.max' -exec cat {{}} +"
    assert lab.root("node1", swap) == "0"
    greedy = "srun --nodelist=node1 --mem=100 --time=10 --chdir=/ --job-name=greedy python3 -c"

    died = subprocess.run(
        words(lab, CURIOUS, f'{greedy} "held = bytearray(400 << 20); print(len(held))"'),
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    lab.root("node1", "timeout 60 sh -c 'echo word >/home/ada/done'")

    assert (died.returncode != 0, died.stdout) == (True, ""), died.stdout + died.stderr
    in_the_end(lab, CURIOUS, "--name=greedy", "OUT_OF_MEMORY|0:125")
    in_the_end(lab, OWNER, f"--jobs={owners_job}", "COMPLETED|0:0")
