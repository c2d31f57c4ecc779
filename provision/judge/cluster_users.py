"""Are the site's users and groups on a machine as declared, and could they be? Pure judgement of what it answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from provision.model.checks import Check, Subject
from provision.model.facts import MachineFacts
from provision.model.state_facts import CommandAnswer
from provision.model.text import brief
from provision.model.user_facts import Known, Range, UserFacts
from provision.model.users import SUBORDINATE, User, Users
from provision.model.users_declared import users_from

#: What no provision would mend without harm: it is refused before anything is changed.
BEFORE = Subject(
    "cluster_users", ("ids", "known_groups", "shells", "accounts"), fix="clusterctl preflight", before=True
)

SUBJECT = Subject(
    "cluster_users",
    ("groups", "users", "members", "passwords", "subordinate_ids", "homes", "logins"),
    fix="clusterctl provision base",
)

_BY_HAND = "changed by hand, or never made"


def checks(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Judge one machine.

    ``wants``: ``users`` and ``groups``, the inventory's ``cluster_users`` and ``cluster_groups``; ``proof``, who
    submits the cluster's own jobs; ``homes``, the users whose homes are made on this machine; ``login``, whether users
    log in to it, with the keys in the directory ``keys``; ``members``, who is in an account and not declared: whom this
    machine has to know from the site's directory, or of itself.
    """
    people = users_from(wants["users"], wants["groups"])
    proof, members = wants["proof"], [str(name) for name in wants["members"]]
    if not people.users and not people.groups:
        why = "cluster_users and cluster_groups name nobody"
        skipped = {check.id: check for check in (*BEFORE.all_skipped(why), *SUBJECT.all_skipped(why))}
        asked = [] if proof["declared"] else [_ids(people, facts["people"], proof)]
        asked += [_accounts(members, facts["people"]["known_users"])] if members else []
        return [*{**skipped, **{check.id: check for check in asked}}.values()]
    found = facts["people"]
    return [
        _ids(people, found, proof),
        _known_groups(people, found["known_groups"]),
        _shells(people, facts["state"]["paths"]),
        _accounts(members, found["known_users"]),
        _groups(people, found["known_groups"]),
        _users(people, found),
        _members(people, found),
        _passwords(people, found),
        _subordinate(people, found),
        _homes(people, found, {str(name) for name in wants["homes"]}),
        _logins(facts.get("commands", {}).get("sshd"), str(wants["keys"]) if wants["login"] else ""),
    ]


def _ids(people: Users, found: UserFacts, proof: Mapping[str, Any]) -> Check:
    """One name with two numbers, or a number with two names: files would change their owner."""
    if found["known_users"] is None or found["known_groups"] is None:
        return BEFORE.unknown("ids", "the machine's name services do not answer")
    leaving = {user.name for user in people.users if user.absent}
    going = {group.name for group in people.groups if group.absent} | leaving
    wrong = [
        *_conflicts("uid", {user.name: user.uid for user in people.present}, found["known_users"], leaving),
        *_conflicts("gid", people.gids, found["known_groups"], going),
        *([] if proof["declared"] else _taken(str(proof["name"]), int(proof["uid"]), found)),
        *(f"subuid: {line}" for line in _overlaps(people, found["subuid"])),
        *(f"subgid: {line}" for line in _overlaps(people, found["subgid"])),
    ]
    return BEFORE.check(
        "ids",
        not wrong,
        brief(wrong) or f"{len(people.present)} users and {len(people.gids)} groups, their numbers nobody else's",
        "each name and each number as declared, or free",
        source="cluster_users, cluster_groups",
        cause="somebody else has the number here, or the name has another one",
        fix="declare the numbers that they have, or give the others new ones by hand, with all of their files: "
        "usermod --uid or groupmod --gid, then chown what find / -xdev -uid N names",
    )


def _conflicts(word: str, declared: Mapping[str, int], known: Iterable[Known], leaving: set[str]) -> Iterator[str]:
    owners = {number: name for name, number in declared.items()}
    for entry in known:
        name, number = entry["name"], entry["number"]
        if name in declared and declared[name] != number:
            yield f"{name} has {word} {number}, declared {declared[name]}"
        elif name in declared and not entry["own"]:
            yield f"{name} is the site's directory's: take it out of cluster_{'users' if word == 'uid' else 'groups'}"
        elif number in owners and owners[number] != name and not (name in leaving and entry["own"]):
            yield f"{word} {number} is {name}'s, declared {owners[number]}'s"


def _taken(name: str, number: int, found: UserFacts) -> Iterator[str]:
    """Yield whose the name and the number of the user are who is to be made for the proofs."""
    for word, known in (("uid", found["known_users"]), ("gid", found["known_groups"])):
        for entry in known or ():
            if entry["name"] == name and not entry["own"]:
                yield f"cluster_test_user {name} is the site's directory's: name one of cluster_users, or leave it out"
            elif entry["name"] != name and entry["number"] == number:
                yield f"{word} {number} is {entry['name']}'s: set cluster_test_uid to another one"


def _overlaps(people: Users, ranges: Sequence[Range]) -> Iterator[str]:
    """Yield the ranges of others that have numbers of declared users."""
    ours = {user.name for user in people.users} | {str(user.uid) for user in people.present}
    for entry in ranges:
        for user in people.present if entry["owner"] not in ours else ():
            if entry["first"] < user.subordinate + SUBORDINATE and user.subordinate < entry["first"] + entry["count"]:
                yield f"{entry['owner']}:{entry['first']}:{entry['count']} has numbers of {user.name}'s"


def _known_groups(people: Users, known: Sequence[Known] | None) -> Check:
    """A group that is not declared has to be on every machine already."""
    if known is None:
        return BEFORE.unknown("known_groups", "the machine's name services do not answer")
    own = {entry["name"] for entry in known if entry["own"]}
    lacking = {
        name: user.name
        for user in people.present
        for name in user.groups
        if name not in people.gids and name not in own
    }
    wrong = [f"no group {name}, in which {user} is to be" for name, user in sorted(lacking.items())]
    return BEFORE.check(
        "known_groups",
        not wrong,
        brief(wrong) or "all there",
        "every group of a user's declared, or on every machine",
        source="cluster_users",
        cause="only some machines have it, or none",
        fix="declare it in cluster_groups, with a gid; or take it out of the user's groups",
    )


def _shells(people: Users, paths: Mapping[str, Any]) -> Check:
    wrong = [
        f"no {shell}, the shell of {user}"
        for shell, user in sorted({user.shell: user.name for user in people.present}.items())
        if paths.get(shell, {}).get("kind") not in ("file", "link")
    ]
    return BEFORE.check(
        "shells",
        not wrong,
        brief(wrong) or "all there",
        "every user's shell on every machine",
        source="cluster_users",
        cause="a login ends at once without it",
        fix="install it on this machine, or declare another one",
    )


def _accounts(members: Sequence[str], known: Sequence[Known] | None) -> Check:
    """Refuse a user of an account whom nobody knows: a name that is misspelt would wait for a user who never comes."""
    if not members:
        return BEFORE.skip("accounts", "slurm_accounts names nobody whom this machine would have to know")
    if known is None:
        return BEFORE.unknown("accounts", "the machine's name services do not answer")
    # A directory may write its names in another case, or with its domain.
    there = {name for entry in known for name in (entry["name"].lower(), entry["name"].lower().partition("@")[0])}
    wrong = [name for name in members if name.lower() not in there]
    return BEFORE.check(
        "accounts",
        not wrong,
        f"nobody is called {brief(wrong)}" if wrong else f"{len(members)} known",
        "every user of slurm_accounts in cluster_users, or known to the controller",
        source="slurm_accounts; getent passwd",
        cause="the name is misspelt, or the site's directory does not have it",
        fix=f"on the machine: getent passwd {wrong[0]}; then correct the name in slurm_accounts, take it out, or "
        "declare the user in cluster_users"
        if wrong
        else None,
    )


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
    return _told("passwords", wrong, "locked, where they are to be", "password_lock in cluster_users")


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
        return SUBJECT.skip("homes", "homes are made on another machine")
    if found["homes"] is None:
        return SUBJECT.unknown("homes", "the file system of the homes does not answer")
    wrong = [f"{user.home} {problem}" for user in users if (problem := _home(user, found["homes"].get(user.home)))]
    there = found["homes"]
    closed = [user.home for user in users if user.home in there and there[user.home]["kind"] == "closed"]
    if closed and not wrong:
        why = f"root may not look at {brief(closed)}: the file system's server makes root nobody"
        return SUBJECT.skip("homes", why, unproven=True)
    return _told(
        "homes", wrong, "each user's own directory", "home in cluster_users",
        "never made, or made by hand; a home that is another's is given to nobody: chown it by hand",
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
        return SUBJECT.skip("logins", "nobody is declared who would log in here")
    if answer is None or answer["rc"] is None:
        return SUBJECT.unknown("logins", answer["text"] if answer else "the machine was not asked")
    lines = (line.partition(" ") for line in answer["text"].splitlines() if answer["rc"] == 0)
    read = next((value for name, _, value in lines if name == "authorizedkeysfile"), "")
    return SUBJECT.check(
        "logins",
        f"{keys}/%u" in read.split(),
        f"sshd reads {read}" if read else f"sshd ended with {answer['rc']}: {answer['text'][-200:]}",
        f"{keys}/%u among what sshd reads",
        source="sshd -T",
        cause="sshd_config says otherwise before it includes /etc/ssh/sshd_config.d, or does not include it",
        fix="clusterctl provision base; where that is not enough, take AuthorizedKeysFile out of /etc/ssh/sshd_config",
    )


def _told(name: str, wrong: Sequence[str], good: str, source: str, cause: str = _BY_HAND) -> Check:
    return SUBJECT.check(name, not wrong, brief(wrong) or good, "as declared", source=source, cause=cause)
