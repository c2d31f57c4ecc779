"""Are the site's users and groups on a machine as declared, and could they be? Pure judgement of what it answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from provision.judge import users_before
from provision.model.checks import Check, Subject
from provision.model.facts import MachineFacts
from provision.model.state_facts import CommandAnswer
from provision.model.text import brief
from provision.model.user_facts import Known, UserFacts
from provision.model.users import SUBORDINATE, User, Users
from provision.model.users_declared import users_from

SUBJECT = Subject(
    "cluster_users",
    ("groups", "users", "members", "passwords", "subordinate_ids", "homes", "logins"),
    fix="clusterctl provision base",
)

_BY_HAND = "changed by hand, or never created"


def checks(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Judge one machine.

    ``wants``: ``users`` and ``groups``, the inventory's ``cluster_users`` and ``cluster_groups``; ``proof``, who
    submits the cluster's own jobs; ``homes``, the users whose homes are made on this machine; ``login``, whether users
    log in to it, with the keys in the directory ``keys``; ``members``, who is in an account and not declared: whom this
    machine has to know from the site's directory, or of itself; ``controller``, the people of its own files, None where
    it has not said; ``local``, names that a site has on some machines only, and leaves so.
    """
    people = users_from(wants["users"], wants["groups"])
    before = users_before.checks(people, facts, wants)
    if not people.users and not people.groups:
        return [*before, *SUBJECT.all_skipped("cluster_users and cluster_groups name nobody")]
    found = facts["people"]
    return [
        *before,
        _groups(people, found["known_groups"]),
        _users(people, found),
        _members(people, found),
        _passwords(people, found),
        _subordinate(people, found),
        _homes(people, found, {str(name) for name in wants["homes"]}),
        _logins(facts.get("commands", {}).get("sshd"), str(wants["keys"]) if wants["login"] else ""),
    ]


def _groups(people: Users, known: Sequence[Known] | None) -> Check:
    if known is None:
        return SUBJECT.unknown("groups", "the machine's name services do not answer")
    there = {entry["name"]: entry["number"] for entry in known}
    wrong = [f"{name} is missing" for name in sorted(people.gids) if name not in there]
    wrong += [
        f"{name} has gid {there[name]}, not {gid}"
        for name, gid in sorted(people.gids.items())
        if there.get(name, gid) != gid
    ]
    wrong += [f"{group.name} is still there" for group in people.groups if group.absent and group.name in there]
    return _told("groups", wrong, f"{len(people.gids)} as declared", "cluster_groups")


def _users(people: Users, found: UserFacts) -> Check:
    gids, wrong = people.gids, []
    for user in people.users:
        there = found["users"].get(user.name)
        if user.absent or there is None:
            if user.absent is (there is not None):
                wrong.append(f"{user.name} is {'still there' if there else 'missing'}")
            continue
        told = [
            f"{key} {seen or 'none'}, not {value or 'none'}"
            for key, seen, value in (
                ("uid", there["uid"], user.uid),
                ("gid", there["gid"], gids[user.group]),
                ("comment", there["comment"], user.comment),
                ("home", there["home"], user.home),
                ("shell", there["shell"], user.shell),
            )
            if seen != value
        ]
        if told:
            wrong.append(f"{user.name} has {' and '.join(told)}")
    return _told("users", wrong, f"{len(people.present)} as declared", "cluster_users")


def _members(people: Users, found: UserFacts) -> Check:
    wrong = []
    for user in people.present:
        there = set(found["users"].get(user.name, {"groups": user.groups})["groups"]) - {user.group}
        more, less = sorted(there - set(user.groups)), sorted(set(user.groups) - there)
        told = [f"not in {', '.join(less)}"] * bool(less) + [f"also in {', '.join(more)}"] * bool(more)
        if told:
            wrong.append(f"{user.name} is {' and '.join(told)}")
    return _told("members", wrong, "each user in the declared groups, and in no other", "groups in cluster_users")


def _passwords(people: Users, found: UserFacts) -> Check:
    locked = {name: user["locked"] for name, user in found["users"].items()}
    wrong = [
        f"{user.name} has a password"
        for user in people.present
        if user.password_lock and not locked.get(user.name, True)
    ]
    return _told("passwords", wrong, "locked where declared", "password_lock in cluster_users")


def _subordinate(people: Users, found: UserFacts) -> Check:
    wrong = []
    for file, ranges in (("subuid", found["subuid"]), ("subgid", found["subgid"])):
        for user in people.present:
            there = [(one["first"], one["count"]) for one in ranges if one["owner"] in (user.name, str(user.uid))]
            if there != [(user.subordinate, SUBORDINATE)]:
                told = " and ".join(f"{first}:{count}" for first, count in there) or "none"
                wrong.append(f"{user.name} has {told} in {file}, not {user.subordinate}:{SUBORDINATE}")
    return _told(
        "subordinate_ids", wrong, f"{SUBORDINATE} of each user's own", "subordinate_ids in cluster_users",
        "without them rootless Podman cannot unpack most images",
    )  # fmt: skip


def _homes(people: Users, found: UserFacts, here: set[str]) -> Check:
    users = [user for user in people.present if user.name in here]
    if not users:
        return SUBJECT.skip("homes", "homes are created on another machine")
    if found["homes"] is None:
        return SUBJECT.unknown("homes", "the file system of the homes does not answer")
    wrong = [f"{user.home} {problem}" for user in users if (problem := _home(user, found["homes"].get(user.home)))]
    there = found["homes"]
    closed = [user.home for user in users if user.home in there and there[user.home]["kind"] == "closed"]
    if closed and not wrong:
        why = f"root cannot read {brief(closed)}: the file system's server maps root to nobody"
        return SUBJECT.skip("homes", why, unproven=True)
    return _told(
        "homes", wrong, "each user's own directory", "home in cluster_users",
        "never created, or created by hand; clusterctl takes no home from another owner: chown it by hand",
    )  # fmt: skip


def _home(user: User, there: Mapping[str, Any] | None) -> str:
    if there is None:
        return "is missing"
    if there["kind"] not in ("directory", "closed"):
        return f"is a {there['kind']}"
    return "" if there["uid"] in (user.uid, -1) else f"is uid {there['uid']}'s, not {user.uid}'s"


def _logins(answer: CommandAnswer | None, keys: str) -> Check:
    """Compare what sshd itself says that it reads: another file of its may say otherwise, or leave ours out."""
    if not keys:
        return SUBJECT.skip("logins", "no declared user logs in here")
    if answer is None or answer["rc"] is None:
        return SUBJECT.unknown("logins", answer["text"] if answer else "the machine was not asked")
    lines = (line.partition(" ") for line in answer["text"].splitlines() if answer["rc"] == 0)
    read = next((value for name, _, value in lines if name == "authorizedkeysfile"), "")
    return SUBJECT.check(
        "logins",
        f"{keys}/%u" in read.split(),
        f"sshd reads {read}" if read else f"sshd ended with {answer['rc']}: {answer['text'][-200:]}",
        f"{keys}/%u is among the files that sshd reads",
        source="sshd -T",
        cause="sshd_config says otherwise before it includes /etc/ssh/sshd_config.d, or does not include it",
        fix="clusterctl provision base; if that does not help, take AuthorizedKeysFile out of /etc/ssh/sshd_config",
    )


def _told(name: str, wrong: Sequence[str], good: str, source: str, cause: str = _BY_HAND) -> Check:
    return SUBJECT.check(name, not wrong, brief(wrong) or good, "as declared", source=source, cause=cause)
