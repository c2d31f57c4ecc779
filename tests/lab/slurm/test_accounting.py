"""What jobs use is kept and limited by account, and a database that is away loses no job and no record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import labs
import pytest
import yaml

from provision import content
from provision.inventory import loader

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


def test_the_database_runs_with_what_slurms_accounting_needs_and_for_this_machine_alone(lab: labs.Lab) -> None:
    """The file's text is a row of the mutation table; that the server reads it, and nothing after it, is seen here."""
    names = ("innodb_lock_wait_timeout", "max_allowed_packet", "skip_name_resolve", "bind_address")
    listed = ", ".join(f"'{name}'" for name in names)
    told = lab.root("head", f'mariadb --skip-column-names --execute "SHOW VARIABLES WHERE Variable_name IN ({listed})"')

    wanted = ["127.0.0.1", "900", str(16 << 20), "ON"]
    assert [line.split()[1] for line in sorted(told.splitlines())] == wanted
    sizes = "SELECT @@innodb_buffer_pool_size DIV 1048576, @@innodb_log_file_size DIV 1048576"
    made = lab.root("head", "sed -n 's/^innodb_.*_size = //p' /etc/mysql/mariadb.conf.d/60-clusterctl.cnf").split()
    assert [f"{size}M" for size in lab.root("head", f'mariadb -N -e "{sizes}"').split()] == made


def test_without_the_database_jobs_run_and_nothing_is_lost(lab: labs.Lab) -> None:
    """That verify names it is seen in tests/core."""
    lab.root("head", "docker stop --time 30 slurmdbd")
    try:
        job = person(lab, "ada", "cd && sbatch --parsable --wait --wrap true")
    finally:
        lab.root("head", "docker start slurmdbd")

    # slurmctld tries again every ten seconds.
    labs.until(lambda: kept(lab, job, "State") == "COMPLETED", lambda: kept(lab, job, "ALL"))


@pytest.mark.night
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
        labs.until(lab.nodes_are_well)
        assert "accounting_storage/slurmdbd" not in lab.root("head", "scontrol show config")
        held, running = (
            person(lab, "ada", f"cd / && sbatch --parsable --output=/dev/null {word} --wrap 'sleep 600'")
            for word in ("--hold", "")
        )
        labs.until(lambda: lab.state(running) == "RUNNING")

        plan = labs.document(lab.inventory, "plan")

        assert "and 1 in slurmctld's saved state" in str(plan["pending_checks"])
        assert labs.document(lab.inventory, "provision", "slurm")["exit_code"] == 0
    finally:
        without.unlink()
    assert [lab.state(job) for job in (held, running)] == ["PENDING", "RUNNING"]
    assert [kept(lab, job, "Account") for job in (held, running)] == ["test1267"] * 2
    assert int(person(lab, "ada", "cd / && sbatch --parsable --hold --output=/dev/null --wrap true")) > int(running)


#: Who of the lab plays whom of the example's groups; who is not named is nobody's there.
PLAYS = {"ada": "ada", "ben": "ben", "eve": "ben", "kim": "ben"}
#: Names as users' scripts have them: one partition of all nodes, and another.
PARTITIONS = [
    {"PartitionName": "TEST1", "Nodes": "node[1-2]", "Default": "YES"},
    {"PartitionName": "other", "Nodes": "node2"},
]


def example() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return accounts and QOS of inventory/groups, with the lab's people; physics may have one GPU at a time."""
    text = (content.ROOT / "inventory/groups/group_vars/all.yml").read_text(encoding="utf-8")
    declared = yaml.safe_load(text)
    for account in declared["slurm_accounts"]:
        users = [user if isinstance(user, dict) else {"name": user} for user in account.pop("users", [])]
        played = {PLAYS[user["name"]]: user for user in users if user["name"] in PLAYS}
        account["users"] = [{**user, "name": name} for name, user in played.items()]
        if account["name"] == "physics":
            account["GrpTRES"] = "gres/gpu=1"
    return declared["slurm_accounts"], declared["slurm_qos"]


def test_groups_have_their_shares_and_limits_of_accounts_above_and_an_account_goes_never_from_under_a_job(
    lab: labs.Lab,
) -> None:
    """Its users go with it, and those of its accounts below; what nobody names stays."""
    own = loader.load(lab.inventory).hostvars["head"]
    groups, qos = example()
    more = [account["name"] for account in groups if account["name"] != "test1267"]

    def provision(state: str, **others: Any) -> dict[str, Any]:
        below = [
            {"name": "t-above", "users": ["ben"], "state": state},
            {"name": "t-below", "parent": "t-above", "users": ["ada"], "state": state},
        ]
        declared = {"slurm_accounts": [*others.pop("accounts"), *below], **others}
        return labs.document(lab.inventory, "provision", "slurm", "-e", json.dumps(declared))

    def state(job: str) -> str:
        return lab.root("head", f"squeue --noheader --job={job} --format='%T %r'")

    # Those of the lab's own first: in one of them a user is by default.
    kept_too = [account for account in own["slurm_accounts"] if account["name"] != "test1267"]
    try:
        made = provision("present", accounts=[*kept_too, *groups], slurm_qos=qos, slurm_partitions=PARTITIONS)
        assert made["exit_code"] == 0, made["failures"]

        words = "sbatch --parsable --account=test1267 --output=/dev/null --gres=gpu:1 --wrap 'sleep 300'"
        first, second = (person(lab, "ada", f"cd / && {words}") for _ in range(2))
        labs.until(lambda: state(second) == "PENDING AssocGrpGRES", lambda: state(second))
        labs.until(lambda: state(first) == "RUNNING None", lambda: state(first))  # after its Prolog
        lab.root("head", f"scancel {first}")
        labs.until(lambda: state(second) == "RUNNING None", lambda: state(second))
        lab.root("head", f"scancel {second}")

        asked = "--partition=TEST1 --account=test1267 --exclude=node1 --output=/dev/null"
        job = person(lab, "ada", f"cd / && sbatch --parsable --wait {asked} --wrap true")
        labs.until(
            lambda: kept(lab, job, "State,Partition,Account,NodeList") == "COMPLETED|TEST1|test1267|node2",
            lambda: kept(lab, job, "ALL"),
        )  # fmt: skip
        # Each account below the one above it, by one blank more.
        shares = person(lab, "ada", "sshare --all --noheader --parsable2 --format=Account,User,RawShares").splitlines()
        assert {" physics||50", "  test1267||30", "   test1267|ada|1", "  lattice||20", " teaching||5"} <= set(shares)

        job = person(lab, "ben", "cd / && sbatch --parsable --account=t-above --output=/dev/null --wrap 'sleep 600'")
        refused = provision("absent", accounts=[*kept_too, *groups], slurm_qos=qos, slurm_partitions=PARTITIONS)
        assert refused["exit_code"] == 4
        assert f"Job(s) active, cancel job(s) before remove JobID = {job}" in " ".join(json.dumps(refused).split())
        assert lab.state(job) == "RUNNING"
    finally:
        lab.root("head", "scancel --user=ada; scancel --user=ben; scancel --user=grace")
        lab.root(
            "head",
            "sacctmgr --immediate modify account test1267 set parent=root qos=normal,short GrpTRES=cpu=64,gres/gpu=-1",
        )
        labs.until(lambda: not lab.root("head", "squeue --noheader"))
        gone = [{"name": name, "state": "absent"} for name in more]
        ended = provision(
            "absent",
            accounts=[*own["slurm_accounts"], *gone],
            slurm_qos=[{**own["slurm_qos"][0], "MaxTRESPU": None}, {"name": "long", "state": "absent"}],
        )
        assert ended["exit_code"] == 0, ended["failures"]

    there = lab.root("head", "sacctmgr --noheader --parsable2 show assoc format=Account,User").splitlines()
    assert not [line for line in there if line.startswith(("t-", *more))]
    assert {"test1267|ada", "biology|ben", "operations|grace"} <= set(there)


def test_a_user_reads_what_own_jobs_used_and_nothing_of_anothers(lab: labs.Lab) -> None:
    eats = "python3 -c 'import time; x = bytearray(200 << 20); time.sleep(12)'"
    submits = "cd / && sbatch --parsable --wait --output=/dev/null --mem=1000M"
    long, short = (person(lab, "ada", f'{submits} --wrap "{what}"') for what in (eats, "sleep 1"))

    # The end of a job is in the database some moments after sbatch hears of it.
    labs.until(lambda: "State: COMPLETED (exit code 0)" in person(lab, "ada", f"seff {long}"))
    lines = person(lab, "ada", f"seff {long}").splitlines()
    assert lines[0] == f"Job ID: {long}"
    assert lines[2].startswith("User/Group: ada/")
    (used,) = (line for line in lines if line.startswith("Memory Utilized: "))
    assert 200 <= float(used.split()[2]) < 400
    assert used.endswith(" MB")
    # The lab has cgroup v1: what no sample has met was not measured.
    labs.until(lambda: "State: COMPLETED" in person(lab, "ada", f"seff {short}"))
    assert "Memory Utilized: 0" not in person(lab, "ada", f"seff {short}")
    refused = person(lab, "grace", f"seff {long}", check=False)
    assert refused.startswith(f"seff: job {long} is another user's, and you may look at your own. Fix: ")
    assert lab.root("head", f"seff {long}").startswith(f"Job ID: {long}\n")
