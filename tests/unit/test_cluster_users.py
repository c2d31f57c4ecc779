"""Users and groups in the inventory: what may be declared, what is refused, and in which line it stands."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from provision.inventory.where import entry_written
from provision.model.mounts import homes_on
from provision.model.users import SUBORDINATE, Group, UsersError
from provision.model.users_declared import users_from


def public(kind: str = "ssh-ed25519", says: str = "") -> str:
    """Return a public key of a kind that says that it is of another one, where that is given."""
    parts = ((says or kind).encode(), b"k" * 32)
    data = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return f"{kind} {base64.b64encode(data).decode()} ada@desk"


GROUPS = [{"name": "physics", "gid": 3001}, {"name": "biology", "gid": 3002}]
ADA = {"name": "ada", "uid": 2001}


def refused(users: Any, groups: Any = GROUPS) -> UsersError:
    with pytest.raises(UsersError) as caught:
        users_from(users, groups)
    return caught.value


def test_a_name_and_a_number_are_enough() -> None:
    found = users_from([ADA], [])

    assert found.users[0].group == "ada"
    assert (found.users[0].home, found.users[0].shell) == ("/home/ada", "/bin/bash")
    assert found.users[0].password_lock
    assert found.groups == (Group("ada", 2001),)


def test_all_that_can_be_said_is_read() -> None:
    keys = [public(), 'from="10.0.0.0/8,::1",no-pty ' + public("ssh-rsa"), public("sk-ssh-ed25519@openssh.com")]
    user = {
        **ADA, "uid": "2001", "group": "physics", "groups": ["biology", "video", "physics"], "comment": "Ada Lovelace",
        "shell": "/usr/bin/zsh", "home": "/data/home/ada", "authorized_keys": keys, "password_lock": False,
        "subordinate_ids": 1000000, "state": "present",
    }  # fmt: skip
    ada = users_from([user], GROUPS).users[0]

    assert (ada.uid, ada.group, ada.groups) == (2001, "physics", ("biology", "video"))
    assert (ada.home, ada.shell, ada.comment) == ("/data/home/ada", "/usr/bin/zsh", "Ada Lovelace")
    assert ada.authorized_keys == tuple(keys)
    assert (ada.subordinate, ada.password_lock) == (1000000, False)


def test_a_declared_group_of_a_users_own_name_is_the_users() -> None:
    found = users_from([ADA], [{"name": "ada", "gid": 5000}])

    assert found.gids == {"ada": 5000}


def test_who_is_to_be_absent_needs_no_number_and_gives_it_free() -> None:
    found = users_from([{"name": "ben", "state": "absent", "uid": 2001}, ADA], [{"name": "old", "state": "absent"}])

    assert [user.name for user in found.present] == ["ada"]
    assert found.gids == {"ada": 2001}


def test_subordinate_numbers_follow_from_the_uid_and_nobody_shares_them() -> None:
    users = [{"name": f"u{number}", "uid": number} for number in range(1000, 60000, 101)]
    first = [user.subordinate for user in users_from(users).users]

    assert len(set(first)) == len(first)
    assert all(number % SUBORDINATE == 0 for number in first)
    # useradd's own begin at 100000, one range for each of 30 users.
    assert min(first) >= 100000 + 30 * SUBORDINATE
    assert max(first) + SUBORDINATE < 2**32


@pytest.mark.parametrize(
    ("user", "key", "said"),
    [
        ({"name": "Ada", "uid": 2001}, "name", "lower-case"),
        ({"name": "../etc", "uid": 2001}, "name", "lower-case"),
        ({"name": "a" * 33, "uid": 2001}, "name", "32 at most"),
        ({"name": False, "uid": 2001}, "name", "False"),
        ({"name": "root", "uid": 2001}, "name", "the system's own"),
        ({"name": "ada"}, "uid", "it has no uid"),
        ({"name": "ada", "uid": 999}, "uid", "the system's"),
        ({"name": "ada", "uid": 0}, "uid", "the system's"),
        ({"name": "ada", "uid": 65534}, "uid", "nobody's"),
        ({"name": "ada", "uid": 64030}, "uid", "slurm's"),
        ({"name": "ada", "uid": 2**32}, "uid", "beyond 32 bits"),
        ({"name": "ada", "uid": True}, "uid", "whole number"),
        ({**ADA, "shell": "bash"}, "shell", "absolute path"),
        ({**ADA, "home": "/home/../etc"}, "home", "absolute path"),
        ({**ADA, "home": "/home/ada:x"}, "home", "absolute path"),
        ({**ADA, "home": "/home"}, "home", "no place for one"),
        ({**ADA, "comment": "Ada\nroot:x:0:0::/:/bin/sh"}, "comment", "/etc/passwd"),
        ({**ADA, "group": "chemistry"}, "group", "in no entry of cluster_groups"),
        ({**ADA, "groups": ["a b"]}, "groups", "cannot be a group's name"),
        ({**ADA, "state": "gone"}, "state", "'gone'"),
        ({**ADA, "password_lock": "maybe"}, "password_lock", "'maybe'"),
        ({**ADA, "authorized_keys": [public(), "ssh-ed25519 AAAA"]}, "authorized_keys", "key 2 is no public key"),
        ({**ADA, "authorized_keys": [public(says="ssh-rsa")]}, "authorized_keys", "key 1 is no public key"),
        ({**ADA, "authorized_keys": [public() + "\n" + public()]}, "authorized_keys", "key 1 is no public key"),
        ({**ADA, "subordinate_ids": 2000}, "subordinate_ids", "leaves no room"),
        ({**ADA, "shel": "/bin/sh"}, "shel", "there is no 'shel'"),
        ({**ADA, "uid": 3001}, "uid", "which is physics's"),
    ],
)  # fmt: skip
def test_what_no_machine_could_have_is_refused(user: dict[str, Any], key: str, said: str) -> None:
    error = refused([{"name": "ben", "uid": 2002}, user])

    assert (error.variable, error.number, error.key) == ("cluster_users", 1, key)
    assert said in error.problem
    assert error.fix


@pytest.mark.parametrize(
    ("groups", "key", "said"),
    [
        ([{"name": "physics", "gid": 44}], "gid", "the system's"),
        ([*GROUPS, {"name": "physics", "gid": 3003}], "name", "physics is named twice"),
        ([*GROUPS, {"name": "chemistry", "gid": 3001}], "gid", "physics and chemistry both have gid 3001"),
        ([{"name": "physics", "gid": 3001, "members": ["ada"]}], "members", "there is no 'members'"),
    ],
)
def test_groups_that_no_machine_could_have_are_refused(groups: Any, key: str, said: str) -> None:
    error = refused([], groups)

    assert (error.variable, error.key) == ("cluster_groups", key)
    assert said in error.problem


@pytest.mark.parametrize(
    ("others", "key", "said"),
    [
        ([{"name": "ada", "uid": 2002}], "name", "ada is named twice"),
        ([{"name": "ben", "uid": 2001}], "uid", "ada and ben both have uid 2001"),
        ([{"name": "ben", "uid": 2002, "home": "/home/ada"}], "home", "ada and ben both have home /home/ada"),
        ([{"name": "ben", "uid": 2001 + 59000}], "uid", "its subordinate numbers are ada's, too"),
        ([{"name": "ben", "uid": 2002, "subordinate_ids": 67698688}], "subordinate_ids", "are ada's, too"),
        ([{"name": "ben", "uid": 67698999}], "uid", "among its subordinate numbers"),
    ],
)
def test_what_two_users_cannot_share_is_refused(others: Any, key: str, said: str) -> None:
    error = refused([ADA, *others])

    assert (error.variable, error.key) == ("cluster_users", key)
    assert said in error.problem


def test_a_group_that_is_to_be_removed_has_no_users() -> None:
    error = refused([{**ADA, "groups": ["old"]}], [{"name": "old", "state": "absent"}])

    assert "its group old is to be removed" in error.problem


@pytest.mark.parametrize("value", ["ada", {"ada": 2001}, ["ada"], 7])
def test_something_else_than_a_list_of_mappings_is_refused(value: Any) -> None:
    assert "not a list of mappings" in refused(value).problem


def test_a_private_key_is_refused_and_never_shown() -> None:
    error = refused([{**ADA, "authorized_keys": ["-----BEGIN OPENSSH PRIVATE KEY-----\nSECRET"]}])

    assert "is a private key" in error.problem
    assert "SECRET" not in error.problem + error.fix


SITE = """\
cluster_name: lab
cluster_groups:
  - {name: physics, gid: 3001}
cluster_users:
  - name: ada
    uid: 2001
  - name: ben
    group: physics
    uid: 500
  - {name: cleo, uid: 2003,
     shell: zsh}
"""


@pytest.mark.parametrize(
    ("variable", "number", "key", "line"),
    [
        ("cluster_users", 1, "uid", 9),
        ("cluster_users", 1, "home", 7),
        ("cluster_users", 2, "shell", 11),
        ("cluster_groups", 0, "gid", 3),
        ("cluster_users", None, "", 4),
        ("cluster_users", 9, "uid", 4),
    ],
)
def test_the_line_of_an_entry_is_found(tmp_path: Path, variable: str, number: int | None, key: str, line: int) -> None:
    file = tmp_path / "group_vars" / "all.yml"
    file.parent.mkdir()
    file.write_text(SITE)

    assert entry_written(tmp_path, variable, number, key) == f"{file}, line {line}"


HOSTS = ["head", "node1", "store"]


@pytest.mark.parametrize(
    ("mounts", "makers"),
    [
        ([], HOSTS),
        ([{"path": "/data", "fstype": "nfs4", "served_by": "store", "hosts": HOSTS}], HOSTS),
        ([{"path": "/home", "fstype": "local", "served_by": "", "hosts": HOSTS}], HOSTS),
        ([{"path": "/home", "fstype": "nfs4", "served_by": "store", "hosts": HOSTS}], ["store"]),
        ([{"path": "/home", "fstype": "nfs4", "served_by": "", "hosts": HOSTS}], ["head"]),
        ([{"path": "/home", "fstype": "present", "served_by": "", "hosts": ["node1", "store"]}], ["node1"]),
        (
            [
                {"path": "/home", "fstype": "nfs4", "served_by": "store", "hosts": HOSTS},
                {"path": "/home/ada", "fstype": "lustre", "served_by": "", "hosts": HOSTS},
            ],
            ["head"],
        ),
    ],
)
def test_a_home_is_made_once_where_its_file_system_is(mounts: list[dict[str, Any]], makers: list[str]) -> None:
    people = users_from([ADA])

    assert [host for host in HOSTS if homes_on(people, mounts, host, "head")] == makers
