"""Users and groups as the inventory declares them: the same on every machine, and in what jobs see."""

from __future__ import annotations

import json

import labs
import snapshots

from provision.model.users_declared import users_from


def test_her_containers_have_users_of_their_own_also_in_images_that_all_share(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    first = users_from([{"name": "ada", "uid": 2001}]).users[0].subordinate
    script = "touch /tmp/f; chown 33:33 /tmp/f; stat --format=%u:%g /tmp/f /etc/shadow; cat /proc/self/uid_map"
    told = lab.said(f"srun sh -c 'podman run --rm $(podman images --quiet | head -n 1) sh -c \"{script}\"'").split("\n")

    # Debian's /etc/shadow is that of the group shadow.
    assert told[:2] == ["33:33", "0:42"]
    assert [line.split() for line in told[2:]] == [["0", "2001", "1"], ["1", str(first), "65536"]]


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
