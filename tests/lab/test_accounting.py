"""What jobs use is kept and limited by account, and a database that is away loses no job and no record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import labs
import pytest

SACCT = "sacct --noheader --parsable2 --allocations --allusers"


def person(lab: labs.Lab, name: str, script: str, *, check: bool = True) -> str:
    """Run a script on the controller as a declared user after a login; its standard error is told as well."""
    words = ["docker", "exec", lab.container("head"), "runuser", "--login", name, "--command", f"exec 2>&1; {script}"]
    return labs.run(words, check=check).stdout.strip()


def kept(lab: labs.Lab, job: str, columns: str) -> str:
    """Return what accounting has of a job."""
    return lab.root("head", f"{SACCT} --jobs={job} --format={columns}", check=False)


@pytest.fixture(scope="module")
def lab(provisioned_lab: labs.Lab) -> Iterator[labs.Lab]:
    """A lab whose plan is empty afterwards, too: the mutation table's would show it."""
    yield provisioned_lab
    provisioned_lab.root("head", "scancel --user=ada")


def test_a_job_is_kept_with_its_account_its_qos_and_what_it_was_given(lab: labs.Lab) -> None:
    asked = "--account=test1267 --qos=short --time=5 --gres=gpu:1"
    job = person(lab, "ada", f"cd && timeout 90 sbatch --parsable --wait {asked} --wrap 'exit 3'", check=False)

    labs.until(lambda: "FAILED" in kept(lab, job, "State"), 30, lambda: kept(lab, job, "ALL"))
    told = kept(lab, job, "User,Account,QOS,ExitCode,AllocTRES")
    assert told.startswith("ada|test1267|short|3:0|")
    assert {"cpu=1", "gres/gpu=1"} <= set(told.split("|")[-1].split(","))


def test_the_default_account_is_the_declared_one_and_another_is_refused(lab: labs.Lab) -> None:
    job = person(lab, "ben", "cd / && sbatch --parsable --hold --output=/dev/null --wrap true")
    try:
        assert lab.root("head", f"squeue --noheader --job={job} --format=%a") == "biology"
        told = person(lab, "ben", "srun --chdir=/ --account=test1267 true", check=False)
        assert "Invalid account" in told
        told = person(lab, "ben", "srun --chdir=/ --qos=short true", check=False)
        assert "Invalid qos" in told
    finally:
        lab.root("head", f"scancel {job}")


def test_the_databases_password_is_in_its_own_file_and_nowhere_else(lab: labs.Lab) -> None:
    """Run by the script of a file, whose text no process has among its words."""
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


def test_without_the_database_jobs_run_and_nothing_is_lost(lab: labs.Lab) -> None:
    """That verify names it is seen in test_verify."""
    lab.root("head", "docker stop --time 30 slurmdbd")
    try:
        job = person(lab, "ada", "cd && timeout 90 sbatch --parsable --wait --wrap true")
    finally:
        lab.root("head", "docker start slurmdbd")

    # slurmctld tries again every ten seconds.
    labs.until(lambda: kept(lab, job, "State") == "COMPLETED", 60, lambda: kept(lab, job, "ALL"))


@pytest.mark.faults
def test_a_cluster_that_gets_a_database_later_keeps_its_jobs(lab: labs.Lab, tmp_path: Path) -> None:
    text = lab.inventory.read_text().replace("[slurm_database]\nhead\n", "")
    without = lab.directory / "without.ini"
    without.write_text(
        "".join(line for line in text.splitlines(True) if not line.startswith(("slurm_accounts", "slurm_qos")))
    )
    try:
        assert labs.document(without, "provision", "slurm")["exit_code"] == 0
        # slurmctld takes a number of its own where there is no database.
        lab.root("head", "sed -i 's/[0-9]*$/1/' /var/spool/slurmctld/clustername; docker restart --time 60 slurmctld")
        labs.until(lambda: "idle" in lab.root("head", "sinfo --noheader --format=%T", check=False))
        assert "accounting_storage/slurmdbd" not in lab.root("head", "scontrol show config")
        held, running = (
            person(lab, "ada", f"cd / && sbatch --parsable --output=/dev/null {word} --wrap 'sleep 600'")
            for word in ("--hold", "")
        )
        labs.until(lambda: "RUNNING" in lab.root("head", f"squeue --noheader --job={running} --format=%T"))

        plan = labs.document(lab.inventory, "plan")

        assert "and 1 in slurmctld's saved state" in str(plan["pending_checks"])
        assert labs.document(lab.inventory, "provision", "slurm")["exit_code"] == 0
    finally:
        without.unlink()
    jobs = lab.root("head", "squeue --noheader --format='%i %T'").splitlines()
    assert sorted(jobs) == sorted([f"{held} PENDING", f"{running} RUNNING"])
    assert [kept(lab, job, "Account") for job in (held, running)] == ["test1267"] * 2
    assert int(person(lab, "ada", "cd / && sbatch --parsable --hold --output=/dev/null --wrap true")) > int(running)


def test_a_limit_holds_the_second_job_and_an_account_goes_when_that_is_asked_never_from_under_a_job(
    lab: labs.Lab,
) -> None:
    """Its users go with it, and those of its accounts below; what nobody names stays."""

    def provision(**state: str) -> dict[str, Any]:
        declared = [
            {"name": "test1267", "GrpTRES": "gres/gpu=1", "users": ["ada"]},
            {"name": "operations", "users": ["grace"]},
            {"name": "biology", "users": ["ben"]},
            {"name": "t-above", "users": ["ben"], **state},
            {"name": "t-below", "parent": "t-above", "users": ["ada"], **state},
        ]
        return labs.document(lab.inventory, "provision", "slurm", "-e", json.dumps({"slurm_accounts": declared}))

    def state(job: str) -> str:
        return lab.root("head", f"squeue --noheader --job={job} --format='%T %r'")

    try:
        assert provision()["exit_code"] == 0
        words = "sbatch --parsable --output=/dev/null --gres=gpu:1 --wrap 'sleep 300'"
        first, second = (person(lab, "ada", f"cd / && {words}") for _ in range(2))
        labs.until(lambda: state(second) == "PENDING AssocGrpGRES", 30, lambda: state(second))
        labs.until(lambda: state(first) == "RUNNING None", 30, lambda: state(first))  # after its Prolog
        lab.root("head", f"scancel {first}")
        labs.until(lambda: state(second) == "RUNNING None", 60, lambda: state(second))

        job = person(lab, "ben", "cd / && sbatch --parsable --account=t-above --output=/dev/null --wrap 'sleep 600'")
        refused = provision(state="absent")
        assert refused["exit_code"] == 4
        assert f"Job(s) active, cancel job(s) before remove JobID = {job}" in " ".join(json.dumps(refused).split())
        assert lab.root("head", f"squeue --noheader --job={job} --format=%T") == "RUNNING"

        lab.root("head", "scancel --user=ada; scancel --user=ben")
        labs.until(lambda: not lab.root("head", "squeue --noheader"))
        assert provision(state="absent")["exit_code"] == 0
    finally:
        lab.root("head", "scancel --user=ada; scancel --user=ben")
        lab.root("head", "sacctmgr --immediate modify account test1267 set GrpTRES=cpu=64,gres/gpu=-1")

    there = lab.root("head", "sacctmgr --noheader --parsable2 show assoc format=Account,User").splitlines()
    assert not [line for line in there if line.startswith("t-")]
    assert {"test1267|ada", "biology|ben", "operations|grace"} <= set(there)


#: The database's files on a disk of their own that is full, and back again.
SMALL = """set -e
systemctl stop mariadb
cp -a /var/lib/mysql /root/t-files
mount -t tmpfs -o size=$(($(du -sm /root/t-files | cut -f 1) + 64))m none /var/lib/mysql
cp -a /root/t-files/. /var/lib/mysql && rm -r /root/t-files
systemctl start mariadb
dd if=/dev/zero of=/var/lib/mysql/t-filler bs=64k status=none || true
"""
LARGE = """mountpoint -q /var/lib/mysql || exit 0
systemctl stop mariadb
cp -a /var/lib/mysql /root/t-files && umount /var/lib/mysql && find /var/lib/mysql -mindepth 1 -delete
cp -a /root/t-files/. /var/lib/mysql && rm -r /root/t-files
systemctl start mariadb"""


@pytest.mark.faults
def test_a_full_disk_of_the_databases_is_told_and_loses_no_job_and_no_record(lab: labs.Lab) -> None:
    try:
        lab.root("head", SMALL)
        jobs = [person(lab, "ada", "cd && sbatch --parsable --wait --wrap true") for _ in range(3)]

        refused = labs.document(lab.inventory, "plan")
        full = [
            one["observed"]
            for one in refused["checks"]
            if one["id"] == "preflight.disk_space" and one["host"] == "head"
        ]
        assert (refused["exit_code"], full[0].split(";")[0]) == (3, "/var/lib/mysql: 0 MB free")
        told = labs.document(lab.inventory, "verify")

        failed = {check["id"]: check for check in told["checks"] if check["verdict"] == "fail"}
        assert failed["slurm_database.disk"]["observed"] == "0 MiB free for MariaDB in /var/lib/mysql"
        assert "make room there" in failed["slurm_database.disk"]["fix"]
        lab.root("head", "rm /var/lib/mysql/t-filler")
        for job in jobs:
            labs.until(
                lambda job=job: kept(lab, job, "State,End").startswith("COMPLETED|2"), 180, kept(lab, job, "ALL")
            )  # type: ignore[misc]
    finally:
        lab.root("head", LARGE)
    assert labs.document(lab.inventory, "verify")["verdict"] == "pass"
