"""A user's first day: the same person everywhere, jobs from home, accounting, containers with GPUs, a training."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import container_starts as containers
import labs
import pytest
from trainings import CONTAINER, TRAIN, met

from provision.model.users_declared import users_from

#: A user whom the lab's inventory declares, with the lab's own key, and what the inventory says of her.
USER = "ada"
ADA = "uid=2001(ada) gid=3001(physics) groups=3001(physics),44(video),3002(biology)"

SCRIPT = """#!/bin/bash
#SBATCH --job-name=first
#SBATCH --nodes=2
#SBATCH --gres=gpu:1
echo "on $SLURM_JOB_NUM_NODES nodes, in $PWD"
srun hostname
"""


def jobs(lab: labs.Lab) -> list[str]:
    """Return the states of her jobs."""
    return lab.said("squeue --me --noheader --format=%T").split()


@pytest.fixture(autouse=True)
def nothing_of_hers(provisioned_lab: labs.Lab) -> Iterator[None]:
    """Leave neither jobs nor files of hers."""
    yield
    provisioned_lab.said("scancel --me; rm -rf slurm-*.out first.sh t-* train.py")
    labs.until(lambda: not jobs(provisioned_lab), lambda: provisioned_lab.said("squeue --me"))


def test_a_user_logs_in_with_the_declared_key_and_is_the_same_on_every_machine(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab

    assert lab.said("id; pwd; stat --format=%a .").splitlines() == [ADA, "/home/ada", "700"]
    assert {lab.root(machine, "id ada") for machine in lab.machines} == {ADA}
    ranges = {lab.root(machine, "grep -h ^ada: /etc/subuid /etc/subgid") for machine in lab.machines}
    first = users_from([{"name": "ada", "uid": 2001}]).users[0].subordinate
    assert ranges == {f"ada:{first}:65536\nada:{first}:65536"}


def test_nobody_logs_in_to_a_compute_node_past_slurm(provisioned_lab: labs.Lab) -> None:
    done = provisioned_lab.ssh("node1", "true", user="ada")

    assert done.returncode == 255
    assert "Permission denied" in done.stderr


def test_a_script_that_is_submitted_at_home_leaves_its_output_there(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    lab.said(f"cat >first.sh <<'END'\n{SCRIPT}END")

    job = lab.said("sbatch first.sh").removeprefix("Submitted batch job ")
    labs.until(lambda: not jobs(lab))

    lines = lab.said(f"cat slurm-{job}.out").splitlines()
    assert lines[0] == "on 2 nodes, in /home/ada"
    assert sorted(lines[1:]) == ["node1", "node2"]
    asked = f"sacct --noheader --parsable2 --allocations --jobs={job} --format=State,User,AllocTRES"
    labs.until(lambda: lab.said(asked).startswith(f"COMPLETED|{USER}|"), lambda: lab.said(asked))
    assert "gres/gpu=2" in lab.said(asked)


def test_a_shell_on_a_node_is_hers(provisioned_lab: labs.Lab) -> None:
    words = provisioned_lab.entering("head", "srun --nodelist=node2 --pty bash --norc", user=USER)
    pipe = subprocess.PIPE
    shell = subprocess.Popen(
        [words[0], "-tt", *words[1:]], stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True
    )

    told, _ = shell.communicate("hostname; id --user --name; pwd; tty\nexit 3\n", timeout=labs.PATIENCE)

    assert {"node2", USER, "/home/ada"} <= set(told.split()), told
    assert "/dev/pts/" in told
    assert shell.returncode == 3


def test_scancel_ends_a_job_of_hers_and_of_nobody_else(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    theirs = lab.said("sbatch --parsable --chdir=/ --output=/dev/null --wrap 'sleep 600'", user="ben")
    mine = lab.said("sbatch --parsable --wrap 'sleep 600'")
    try:
        done = lab.ssh("head", f"scancel {theirs}", user=USER)
        lab.said(f"scancel {mine}")

        assert "Access/permission denied" in done.stdout + done.stderr
        labs.until(lambda: not jobs(lab))
        assert theirs in lab.said("squeue --noheader --format=%i").split()
    finally:
        lab.said(f"scancel {theirs}", user="ben")


def test_a_user_who_logs_in_submits_from_home_and_is_herself(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    step = "hostname; umask 027; FOO='a b' srun --chdir=/ sh -c 'echo $FOO $(id -un) $(umask)'"

    assert lab.said(step, machine="login1").splitlines() == ["login1", "a b ada 0027"]
    script = "sbatch --wait --output=t-login --wrap 'pwd; exit 0' >&2 && cat t-login"
    assert lab.said(script, machine="login1") == "/home/ada"
    allocation = "salloc -n1 sh -c 'hostname; srun --chdir=/ hostname' 2>/dev/null"
    assert lab.said(allocation, machine="login1").splitlines()[0] == "login1"
    assert lab.ssh("login1", "srun --chdir=/ sh -c 'exit 7'", user=USER).returncode == 7
    assert lab.said("sacct --noheader --allocations --format=Account", machine="login1").split()[0] == "test1267"


def test_the_default_account_is_the_declared_one_and_another_is_refused(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    job = lab.said("sbatch --parsable --chdir=/ --hold --output=/dev/null --wrap true", user="ben")
    try:
        assert lab.root("head", f"squeue --noheader --job={job} --format=%a") == "biology"
        account = lab.ssh("head", "srun --chdir=/ --account=test1267 true", user="ben")
        qos = lab.ssh("head", "srun --chdir=/ --qos=short true", user="ben")
    finally:
        lab.root("head", f"scancel {job}")
    assert "Invalid account" in account.stderr
    assert "Invalid qos" in qos.stderr


def test_the_databases_password_is_in_its_own_file_and_nowhere_else(provisioned_lab: labs.Lab) -> None:
    """Run by the script of a file, whose text no process has among its words."""
    lab = provisioned_lab
    secret = lab.root("head", "sed -n 's/^StoragePass=//p' /etc/slurmdbd/password.conf").strip()
    assert len(secret) >= 20
    looks = f"""
grep -rlsF -- '{secret}' /etc /run/slurm /var/log | grep -v '^/etc/slurmdbd/'
journalctl --quiet --grep '{secret}' | head -n 3
docker inspect $(docker ps --all --quiet) | grep -F -- '{secret}'
grep -lsF -- '{secret}' /proc/[0-9]*/cmdline
true
"""
    script = lab.directory / "home/ada/looks.sh"
    script.write_text(looks)
    try:
        found = lab.root("head", "sh /home/ada/looks.sh")
    finally:
        script.unlink()

    assert found == ""
    for file in (lab.directory / ".clusterctl").rglob("*"):
        assert not file.is_file() or secret not in file.read_text(encoding="utf-8", errors="replace"), file


def test_a_data_set_is_on_the_nodes_own_disk_before_the_job_that_asks_for_it_and_goes_with_the_job(
    provisioned_lab: labs.Lab,
) -> None:
    """Of two jobs that ask at the same time each has a copy of its own, and nobody else may enter it."""
    lab = provisioned_lab
    lab.said("mkdir -p t-sets/images && echo pixels >t-sets/images/1 && chmod -R go= t-sets")
    step = 'cat $JOB_SCRATCH/images/1; stat --format="%U %a" $JOB_SCRATCH; echo $JOB_SCRATCH; sleep 2'
    ask = "STAGE_IN=$HOME/t-sets/images srun --nodes=2 --ntasks-per-node=2 --overcommit"

    told = lab.said(f"{ask} sh -c '{step}' >t-first & {ask} sh -c '{step}' >t-second; wait; cat t-first t-second")

    lines = told.splitlines()
    own = {line for line in lines if line.startswith("/scratch/.jobs/job-")}
    assert (lines.count("pixels"), lines.count(f"{USER} 700"), len(own)) == (8, 8, 2), told
    for machine in ("node1", "node2"):
        left = f"ls -d {' '.join(own)} 2>/dev/null || true"
        labs.until(lambda machine=machine, left=left: lab.root(machine, left) == "")  # type: ignore[misc]


def test_root_in_slurmds_container_cannot_write_the_image_or_the_sites_software(provisioned_lab: labs.Lab) -> None:
    for path in ("/usr/bin/t-storage", "/opt/t-storage", "/etc/t-storage"):
        told = provisioned_lab.root("node1", f"docker exec slurmd sh -c 'echo x >{path}' 2>&1 || true")
        assert "Read-only" in told, path


def test_tasks_of_a_step_share_one_container_on_each_node_and_know_their_ranks(provisioned_lab: labs.Lab) -> None:
    # What the tasks of a step have in common, and those of another node have not.
    spaces_of = '$(cd /proc/self/ns; readlink mnt ipc pid uts | tr -d "\\n")'
    look = f"echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR:$MASTER_PORT {spaces_of} $(id -un) $HOSTNAME"

    lines = containers.said(provisioned_lab, f"srun --nodes=2 --ntasks-per-node=2 --container-image=$I sh -c '{look}'")

    found = sorted(line.split() for line in lines)
    assert [one[:3] for one in found] == [[str(rank), str(rank % 2), "4"] for rank in range(4)]
    (meeting,) = {one[3] for one in found}
    assert meeting.startswith(f"{provisioned_lab.address('node1')}:2")
    spaces = [one[4] for one in found]
    assert all(name in spaces[0] for name in ("mnt:[", "ipc:[", "pid:[", "uts:["))
    assert spaces[0] == spaces[1] != spaces[2] == spaces[3]
    assert {one[5] for one in found} == {"ada"}
    assert [one[6] for one in found] == ["node1", "node1", "node2", "node2"]
    # Also where nothing of the user's environment comes along.
    bare = "srun --export=NONE --container-image=$I sh -c 'echo $HOME; echo $RANK'"
    assert containers.said(provisioned_lab, bare) == ["/home/ada", "0"]
    # What the user has set stays.
    assert containers.said(provisioned_lab, "RANK=77 srun --container-image=$I printenv RANK") == ["77"]


def test_a_task_has_the_gpus_that_it_was_granted_and_no_other(provisioned_lab: labs.Lab) -> None:
    look = "srun --container-image=$I sh -c 'ls /dev | grep ^nvidia; echo visible $CUDA_VISIBLE_DEVICES'"

    one = containers.said(provisioned_lab, f"salloc --quiet --nodelist=node1 --gres=gpu:1 {look}")
    other = containers.said(provisioned_lab, f"salloc --quiet --nodelist=node1 --gres=gpu:2 {look}")
    none = containers.said(provisioned_lab, look)

    assert one[0] in ("nvidia0", "nvidia1")
    # The container has one GPU, which is the first there.
    assert one[1:] == ["visible 0"]
    assert other == ["nvidia0", "nvidia1", "visible 0,1"]
    assert none == ["visible"]


def test_streams_and_exit_codes_are_the_tasks_own(provisioned_lab: labs.Lab) -> None:
    assert containers.said(provisioned_lab, "echo through | srun --container-image=$I cat") == ["through"]
    for program, code in (("exit 7", 7), ("kill -9 $$", 137), ("kill -USR1 $$", 138)):
        done = containers.run(provisioned_lab, f"srun --container-image=$I sh -c '{program}'")
        assert done.returncode == code, done.stderr


def test_workers_of_two_nodes_meet(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    lab.said(f"cat >train.py <<'END'{TRAIN}END")

    step = f"{CONTAINER} torchrun-slurm --nproc-per-node 2 train.py"
    done = lab.ssh("head", f"srun --nodes=2 --ntasks-per-node=1 sh -c '{step}'", user=USER)

    met(lab, done)
