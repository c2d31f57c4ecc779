"""Users and groups on a machine, judged: who stands in the way of whom, and what was changed by hand."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import machines
import pytest

from provision.judge import cluster_users, road, users_before
from provision.model.checks import Check, Verdict
from provision.model.facts import facts_from
from provision.model.users_declared import users_from

WANTS = {
    "users": [
        {"name": "ada", "uid": 2001, "group": "physics", "groups": ["biology", "video"], "comment": "Ada"},
        {"name": "ben", "uid": 2002, "group": "biology", "password_lock": False},
        {"name": "old", "state": "absent"},
    ],
    "groups": [{"name": "physics", "gid": 3001}, {"name": "biology", "gid": 3002}, {"name": "gone", "state": "absent"}],
    "homes": ["ada", "ben"],
    "proof": {"name": "ada", "uid": 2001, "declared": True},
    "members": ["lucy"],
    "controller": {"users": {"ada": 9, "eve": 1501}, "groups": {"lab": 1501}},
    "local": ["admin"],
    "login": True,
    "keys": "/etc/ssh/keys",
}
PEOPLE = users_from(WANTS["users"], WANTS["groups"]).present
RANGES = [{"owner": user.name, "first": user.subordinate, "count": 65536} for user in PEOPLE]


def own(gid: int, groups: list[str], **more: Any) -> dict[str, Any]:
    return {"gid": gid, "shell": "/bin/bash", "groups": groups, "locked": True, "comment": "", **more}


def known(name: str, number: int, own: bool = True) -> dict[str, Any]:
    return {"name": name, "number": number, "own": own}


GOOD: dict[str, Any] = {
    "users": {
        "ada": own(3001, ["biology", "video"], uid=2001, home="/home/ada", comment="Ada"),
        "ben": own(3002, ["biology"], uid=2002, home="/home/ben", locked=False),
    },
    "known_users": [known("ada", 2001), known("ben", 2002), known("lucy", 71001, own=False)],
    "known_groups": [known("physics", 3001), known("biology", 3002), known("video", 44)],
    "homes": {path: {"uid": uid, "kind": "directory"} for path, uid in (("/home/ada", 2001), ("/home/ben", 2002))},
    "subuid": RANGES,
    "subgid": RANGES,
    "ordinary_users": {"ada": 2001, "admin": 1501, "eve": 1501, "only": 1700},
    "ordinary_groups": {"lab": 1501, "physics": 3001},
}
SHELLS = {"/bin/bash": {"kind": "file"}}


def judged(wants: dict[str, Any] | None = None, **changed: Any) -> dict[str, Check]:
    """Return the checks of a machine that answers as the good one does, but for what is changed."""
    shells = changed.pop("shells", SHELLS)
    sshd = changed.pop("sshd", {"rc": 0, "text": "port 22\nauthorizedkeysfile .ssh/authorized_keys /etc/ssh/keys/%u\n"})
    state = {"paths": shells, "packages": {}, "services": {}, "manager": {}}
    commands = {"sshd": sshd} if sshd else {}
    facts = facts_from({"people": {**deepcopy(GOOD), **changed}, "state": state, "commands": commands})
    checks = {check.id: check for check in cluster_users.checks(facts, {**WANTS, **(wants or {})})}
    assert set(checks) == {*users_before.SUBJECT.ids, *cluster_users.SUBJECT.ids}
    return checks


def bad(checks: dict[str, Check]) -> dict[str, str]:
    """Return what does not pass, and what is observed."""
    return {name: check.observed for name, check in checks.items() if check.verdict is not Verdict.PASS}


def user(name: str, **changed: Any) -> dict[str, Any]:
    return {**GOOD["users"], name: {**GOOD["users"][name], **changed}}


def test_a_machine_as_declared_is_good() -> None:
    assert bad(judged()) == {}


def test_a_bare_machine_is_to_be_worked_on_and_refused_for_nothing() -> None:
    bare = {
        "users": {},
        "known_users": [known("lucy", 71001, own=False)],
        "known_groups": [known("video", 44)],
        "homes": {},
        "subuid": [],
        "subgid": [],
    }

    assert set(bad(judged(**bare))) == {
        f"cluster_users.{name}" for name in ("groups", "users", "subordinate_ids", "homes")
    }


@pytest.mark.parametrize(
    ("users", "said"),
    [
        ([known("ada", 1005)], "ada has uid 1005, declared 2001"),
        ([known("eve", 2001)], "uid 2001 is eve's, declared ada's"),
        ([known("ada", 2001, own=False)], "ada is the site's directory's: take it out of cluster_users"),
        ([known("eve", 2001, own=False)], "uid 2001 is eve's, declared ada's"),
        ([known("old", 2001, own=False)], "uid 2001 is old's, declared ada's"),
    ],
)
def test_one_name_with_two_numbers_and_one_number_with_two_names_are_refused(users: Any, said: str) -> None:
    check = judged(known_users=users)["cluster_users.ids"]

    assert (check.verdict, check.before) == (Verdict.FAIL, True)
    assert said in check.observed


MADE = {"name": "slurmtest", "uid": 64031, "declared": False}


@pytest.mark.parametrize(
    ("database", "entry", "said"),
    [
        ("known_users", known("slurmtest", 71001, own=False), "name one of cluster_users, or leave it out"),
        ("known_groups", known("slurmtest", 64031, own=False), "cluster_test_user slurmtest is the site's directory's"),
        ("known_users", known("lucy", 64031, own=False), "uid 64031 is lucy's: set cluster_test_uid to another one"),
        ("known_groups", known("lasers", 64031), "gid 64031 is lasers's: set cluster_test_uid"),
    ],
)
@pytest.mark.parametrize("people", [{}, {"users": [], "groups": []}], ids=["with people", "without"])
def test_whoever_submits_the_proofs_is_neither_made_of_nor_beside_somebody_of_the_directory(
    people: dict[str, Any], database: str, entry: dict[str, Any], said: str
) -> None:
    good = GOOD[database]
    refused = judged({**people, "proof": MADE}, **{database: [*good, entry]})["cluster_users.ids"]

    assert (refused.verdict, refused.before) == (Verdict.FAIL, True)
    assert said in refused.observed
    made_before = judged({**people, "proof": MADE}, **{database: [*good, known("slurmtest", 64031)]})
    assert made_before["cluster_users.ids"].verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ([known("physics", 3009)], "physics has gid 3009, declared 3001"),
        ([known("eve", 3001)], "gid 3001 is eve's, declared physics's"),
        ([known("physics", 3001, own=False)], "take it out of cluster_groups"),
    ],
)
def test_groups_are_refused_alike(groups: Any, said: str) -> None:
    assert said in judged(known_groups=[*groups, known("video", 44)])["cluster_users.ids"].observed


def test_the_number_of_one_who_is_to_be_absent_is_free() -> None:
    checks = judged(known_users=[known("old", 2001)], known_groups=[known("gone", 3001), known("video", 44)])

    assert checks["cluster_users.ids"].verdict is Verdict.PASS


def test_a_range_with_somebodys_subordinate_numbers_is_refused() -> None:
    other = {"owner": "eve", "first": RANGES[0]["first"] + 65535, "count": 2}

    assert "subuid: eve:" in judged(subuid=[*RANGES, other])["cluster_users.ids"].observed
    assert "subgid: eve:" in judged(subgid=[*RANGES, other])["cluster_users.ids"].observed


@pytest.mark.parametrize("groups", [[], [known("video", 44, own=False)]])
def test_a_group_that_is_not_declared_has_to_be_on_every_machine(groups: Any) -> None:
    check = judged(known_groups=[known("physics", 3001), known("biology", 3002), *groups])["cluster_users.known_groups"]

    assert (check.verdict, check.before) == (Verdict.FAIL, True)
    assert check.observed == "no group video, which ada needs"


def test_who_is_in_an_account_and_known_to_nobody_is_refused_before_anything_is_changed() -> None:
    """A directory's user counts, also where the directory writes the name in another way."""
    there = [*GOOD["known_users"][:2], known("Lucy", 71001, own=False), known("max@site", 71002, own=False)]

    check = judged({"members": ["lucy", "lucie", "max"]}, known_users=there)["cluster_users.accounts"]

    assert (check.verdict, check.before, check.observed) == (Verdict.FAIL, True, "nobody is called lucie")
    assert "getent passwd lucie" in check.fix
    assert bad(judged({"members": ["lucy", "max"]}, known_users=there)) == {}
    assert judged({"members": []}, known_users=[])["cluster_users.accounts"].verdict is Verdict.SKIP


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"ordinary_users": {"eve": 1502}}, "eve has uid 1502, on the controller 1501"),
        ({"ordinary_users": {"joe": 1501}}, "uid 1501 is joe's, on the controller eve's"),
        ({"ordinary_groups": {"lab": 1502}}, "lab has gid 1502, on the controller 1501"),
        ({"ordinary_groups": {"eve": 1501}}, "gid 1501 is eve's, on the controller lab's"),
    ],
)
def test_whom_nobody_declares_and_who_is_another_on_the_controller_is_refused(
    changed: dict[str, Any], said: str
) -> None:
    check = judged(**changed)["cluster_users.same_ids"]

    assert (check.verdict, check.before, check.observed) == (Verdict.FAIL, True, said)
    assert "cluster_users_local" in check.fix
    nobody = {**WANTS, "users": [], "groups": []}
    people = {**deepcopy(GOOD), **changed}
    checks = cluster_users.checks(facts_from({"people": people}), nobody)
    assert said in next(one.observed for one in checks if one.id == "cluster_users.same_ids")


def test_where_the_controller_has_not_told_whom_it_knows_nobody_is_accused() -> None:
    check = judged({"controller": None}, ordinary_users={"eve": 1502})["cluster_users.same_ids"]

    assert (check.verdict, check.unproven) == (Verdict.SKIP, True)


def test_the_controllers_people_are_told_others() -> None:
    told = road.handed_on(facts_from({"people": deepcopy(GOOD)}))["cluster_shared"]["people"]

    assert told == {"users": GOOD["ordinary_users"], "groups": GOOD["ordinary_groups"]}


def test_who_is_in_an_account_is_asked_for_where_nobody_is_declared() -> None:
    wants = {**WANTS, "users": [], "groups": []}
    people = {**deepcopy(GOOD), "known_users": []}

    checks = {check.id: check for check in cluster_users.checks(facts_from({"people": people}), wants)}

    assert set(checks) == {*users_before.SUBJECT.ids, *cluster_users.SUBJECT.ids}
    assert checks["cluster_users.accounts"].verdict is Verdict.FAIL


def test_of_accounts_those_are_asked_for_who_are_declared_nowhere_else() -> None:
    door = machines.plugin("roles/cluster_users/filter_plugins/cluster_users.py")
    accounts = [
        {"name": "physics", "users": ["ada", "lucy", {"name": "gone", "state": "absent"}, "root"]},
        {"name": "closed", "state": "absent", "users": ["old"]},
    ]
    proof = {"name": "slurmtest", "uid": 64031, "account": "", "declared": False}

    members = door.cluster_users_members(accounts, [], [{"name": "ada", "uid": 2001}], proof)

    assert members == ["lucy", "root"]
    asked = door.cluster_users_asks([], [], [], {**proof, "declared": True}, members)
    assert asked["people"]["users"] == members
    assert door.cluster_users_asks([], [], [], {**proof, "declared": True}, []) == {}


def test_a_shell_that_is_not_there_is_refused() -> None:
    check = judged(shells={"/bin/bash": {"kind": "absent"}})["cluster_users.shells"]

    assert (check.verdict, check.before) == (Verdict.FAIL, True)
    assert "no /bin/bash" in check.observed


@pytest.mark.parametrize(
    ("changed", "name", "said"),
    [
        ({"users": {"ben": GOOD["users"]["ben"]}}, "users", "ada is missing"),
        ({"users": user("ada", uid=2009)}, "users", "ada has uid 2009, not 2001"),
        ({"users": user("ada", gid=100)}, "users", "ada has gid 100, not 3001"),
        ({"users": user("ada", **{"shell": "/bin/sh"})}, "users", "ada has shell /bin/sh, not /bin/bash"),
        ({"users": user("ada", home="/root")}, "users", "ada has home /root, not /home/ada"),
        ({"users": user("ada", comment="")}, "users", "ada has comment none, not Ada"),
        ({"users": {**GOOD["users"], "old": own(1, [], uid=9, home="/")}}, "users", "old is still there"),
        ({"users": user("ada", groups=["video"])}, "members", "ada is not in biology"),
        ({"users": user("ada", groups=["biology", "sudo", "video"])}, "members", "ada is also in sudo"),
        ({"users": user("ada", locked=False)}, "passwords", "ada has a password"),
        ({"known_groups": [known("biology", 3002), known("video", 44)]}, "groups", "physics is missing"),
        ({"known_groups": [*GOOD["known_groups"], known("gone", 9)]}, "groups", "gone is still there"),
        ({"subuid": RANGES[:1]}, "subordinate_ids", "ben has none in subuid"),
        ({"subgid": RANGES[1:]}, "subordinate_ids", "ada has none in subgid"),
        ({"subuid": [*RANGES, {"owner": "ada", "first": 100000, "count": 7}]}, "subordinate_ids", "and 100000:7"),
        ({"subuid": [*RANGES, {"owner": "2001", "first": 100000, "count": 9}]}, "subordinate_ids", "and 100000:9"),
        ({"homes": {"/home/ben": GOOD["homes"]["/home/ben"]}}, "homes", "/home/ada is missing"),
        ({"homes": {**GOOD["homes"], "/home/ada": {"uid": 0, "kind": "directory"}}}, "homes", "is uid 0's, not 2001's"),
        ({"homes": {**GOOD["homes"], "/home/ada": {"uid": 2001, "kind": "fifo"}}}, "homes", "/home/ada is a fifo"),
    ],
)  # fmt: skip
def test_what_is_not_as_declared_is_named(changed: dict[str, Any], name: str, said: str) -> None:
    found = bad(judged(**changed))

    assert said in found[f"cluster_users.{name}"]
    assert set(found) == {f"cluster_users.{name}"}


@pytest.mark.parametrize(
    ("silent", "names"),
    [("known_users", {"ids", "accounts"}), ("known_groups", {"ids", "known_groups", "groups"}), ("homes", {"homes"})],
)
def test_silence_is_unknown(silent: str, names: set[str]) -> None:
    checks = judged(**{silent: None})

    assert {name for name, check in checks.items() if check.verdict is Verdict.UNKNOWN} == {
        f"cluster_users.{name}" for name in names
    }


@pytest.mark.parametrize(
    ("sshd", "verdict"),
    [
        ({"rc": 0, "text": "authorizedkeysfile .ssh/authorized_keys\n"}, Verdict.FAIL),
        ({"rc": 0, "text": "authorizedkeysfile none\n\nauthorizedkeysfile /etc/ssh/keys/%u\n"}, Verdict.FAIL),
        ({"rc": 255, "text": "/etc/ssh/sshd_config: line 1: Bad configuration option"}, Verdict.FAIL),
        ({"rc": 0, "text": ""}, Verdict.FAIL),
        ({"rc": None, "text": "did not answer in 10 s"}, Verdict.UNKNOWN),
        (None, Verdict.UNKNOWN),
    ],
)
def test_keys_count_only_where_sshd_reads_them(sshd: Any, verdict: Verdict) -> None:
    assert judged(sshd=sshd)["cluster_users.logins"].verdict is verdict


def test_where_nobody_logs_in_sshd_is_not_judged() -> None:
    assert judged({"login": False}, sshd=None)["cluster_users.logins"].verdict is Verdict.SKIP


def test_homes_are_judged_where_they_are_made() -> None:
    assert judged({"homes": []}, homes={})["cluster_users.homes"].verdict is Verdict.SKIP
    assert judged({"homes": ["ben"]}, homes={})["cluster_users.homes"].observed == "/home/ben is missing"


def test_a_home_that_root_may_not_look_at_is_nobodys_fault_and_not_proven() -> None:
    closed = {**GOOD["homes"], "/home/ada": {"uid": -1, "kind": "closed"}}

    check = judged(homes=closed)["cluster_users.homes"]

    assert (check.verdict, check.unproven) == (Verdict.SKIP, True)
    assert "root cannot read /home/ada" in check.cause + check.observed
    found = judged(homes={"/home/ada": closed["/home/ada"]})["cluster_users.homes"]
    assert (found.verdict, found.observed) == (Verdict.FAIL, "/home/ben is missing")


def test_nobody_declared_is_nothing_to_judge() -> None:
    nobody = {"users": [], "groups": [], "proof": WANTS["proof"], "members": []}

    checks = cluster_users.checks(facts_from({}), nobody)

    assert {check.verdict for check in checks} == {Verdict.SKIP}


def test_a_number_that_somebody_else_has_is_refused_before_anything_is_changed() -> None:
    checks = [*judged(known_users=[known("eve", 2001), known("lucy", 71001)]).values()]

    first, _ = road.before({"preflight": [], "cluster_users": checks}, ["slurm_compute"])
    assert [check.id for check in first if not check.ok] == ["cluster_users.ids"]
