"""Users and groups as the inventory declares them: the same on every machine, and in what jobs see."""

from __future__ import annotations

import json

import labs
import pytest
import snapshots

from provision.model.users_declared import users_from

#: What the lab's inventory says of ada; the key that it declares is the lab's own.
ADA = "uid=2001(ada) gid=3001(physics) groups=3001(physics),44(video),3002(biology)"


def test_a_job_is_hers_with_all_of_her_groups_from_her_home(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab

    assert lab.said("srun --nodes=2 id").splitlines() == [ADA, ADA]
    job = lab.said("sbatch --parsable --wait --output=hers-%j --wrap 'id; pwd; echo $HOME'")
    written = [lab.root(machine, f"cat /home/ada/hers-{job} 2>/dev/null", check=False) for machine in lab.machines]
    assert f"{ADA}\n/home/ada\n/home/ada" in written
    for machine in lab.machines:
        lab.root(machine, f"rm -f /home/ada/hers-{job}")


def test_her_containers_have_users_of_their_own_also_in_images_that_all_share(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    first = users_from([{"name": "ada", "uid": 2001}]).users[0].subordinate
    script = "touch /tmp/f; chown 33:33 /tmp/f; stat --format=%u:%g /tmp/f /etc/shadow; cat /proc/self/uid_map"
    told = lab.said(f"srun sh -c 'podman run --rm $(podman images --quiet | head -n 1) sh -c \"{script}\"'").split("\n")

    # Debian's /etc/shadow is that of the group shadow.
    assert told[:2] == ["33:33", "0:42"]
    assert [line.split() for line in told[2:]] == [["0", "2001", "1"], ["1", str(first), "65536"]]


# The minute is Slurm's, and is waited for.
@pytest.mark.night
def test_a_group_that_she_joins_counts_in_jobs_a_minute_later(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    lab.said("srun true")  # slurmctld remembers her groups from now on
    for machine in lab.machines:
        lab.root(machine, "usermod --append --groups audio ada")
    try:
        labs.until(lambda: "audio" in lab.said("srun id --groups --name").split())
    finally:
        for machine in lab.machines:
            lab.root(machine, "gpasswd --delete ada audio")


def test_numbers_and_names_of_somebody_elses_are_refused_by_preflight(provisioned_lab: labs.Lab) -> None:
    users = [
        {"name": "eve", "uid": 2001},
        {"name": "ben", "uid": 2005},
        {"name": "eva", "uid": 2006, "groups": ["nobodys"], "shell": "/bin/none"},
    ]
    accounts = [{"name": "biology", "users": ["ben", "benn", "root"]}]
    declared = {
        "cluster_users": users,
        "cluster_groups": [{"name": "physics", "gid": 3005}],
        "slurm_accounts": accounts,
    }
    wanted = {
        "ids": [
            "uid 2001 is ada's, declared eve's",
            "ben has uid 2002, declared 2005",
            "physics has gid 3001, declared",
        ],
        "known_groups": ["no group nobodys"],
        "shells": ["no /bin/none"],
    }

    # Two whom nobody declares, each machine with its own idea of them; and a group that only the controller has.
    made = {"head": "useradd --no-create-home --uid 58001 t-two; groupadd --gid 58100 nobodys"}
    made["node1"] = "useradd --no-create-home --uid 58002 t-two; useradd --no-create-home --uid 58001 t-one"
    try:
        for machine, script in made.items():
            provisioned_lab.root(machine, script)
        found = labs.document(provisioned_lab.inventory, "preflight", "-e", json.dumps(declared))
    finally:
        for machine in made:
            provisioned_lab.root(machine, "userdel t-two; userdel t-one; groupdel nobodys", check=False)

    assert found["exit_code"] == 3
    told = [one for one in found["checks"] if one["id"] == "cluster_users.same_ids" and one["verdict"] == "fail"]
    assert [one["host"] for one in told] == ["node1"]
    assert "t-two has uid 58002, on the controller 58001" in told[0]["observed"]
    assert "uid 58001 is t-one's, on the controller t-two's" in told[0]["observed"]
    for name, words in wanted.items():
        told = {one["host"]: one for one in found["checks"] if one["id"] == f"cluster_users.{name}"}
        failed = {host: one for host, one in told.items() if one["verdict"] == "fail"}
        lacking = [machine for machine in provisioned_lab.machines if name != "known_groups" or machine != "head"]
        assert sorted(failed) == sorted(lacking)
        for one in failed.values():
            assert [text for text in words if text not in one["observed"]] == [], one
    # slurmctld asks on its own machine who somebody is, so that one has to know them.
    told = [one for one in found["checks"] if one["id"] == "cluster_users.accounts" and one["verdict"] == "fail"]
    assert [(one["host"], one["observed"]) for one in told] == [("head", "nobody is called benn")]


def test_who_is_to_be_absent_is_removed_and_keeps_a_home(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    before = {machine: snapshots.files(lab, machine) for machine in lab.machines}
    eve = {"name": "eve", "uid": 2005, "authorized_keys": (lab.directory / "id_ed25519.pub").read_text().strip()}
    more = {"cluster_users": [eve], "cluster_groups": []}
    gone = {"cluster_users": [{"name": "eve", "state": "absent"}], "cluster_groups": []}

    made = labs.document(lab.inventory, "provision", "-e", json.dumps(more), "base")
    assert (made["exit_code"], lab.ssh("head", "true", user="eve").returncode) == (0, 0)
    removed = labs.document(lab.inventory, "provision", "-e", json.dumps(gone), "base")

    assert removed["exit_code"] == 0
    assert lab.ssh("head", "true", user="eve").returncode == 255
    for machine in lab.machines:
        assert lab.root(machine, "stat --format=%u /home/eve") == "2005"
        assert snapshots.difference(before[machine], snapshots.files(lab, machine)) == []
    lab.root("head", "rm -r /home/eve")
