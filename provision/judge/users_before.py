"""Could the site's users and groups be made on a machine without harm? Refused before anything is changed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from provision.model.checks import Check, Subject
from provision.model.facts import MachineFacts
from provision.model.text import brief
from provision.model.user_facts import Known, Range, UserFacts
from provision.model.users import SUBORDINATE, Users

SUBJECT = Subject(
    "cluster_users", ("ids", "same_ids", "known_groups", "shells", "accounts"), fix="clusterctl preflight", before=True
)

#: What has names and numbers, and the words for such a number.
KINDS = {"users": "uid", "groups": "gid"}


def checks(people: Users, facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Judge one machine; ``wants`` is that of :func:`provision.judge.cluster_users.checks`."""
    proof, members = wants["proof"], [str(name) for name in wants["members"]]
    if people.users or people.groups:
        found = facts["people"]
        return [
            _ids(people, found, proof),
            _same_ids(people, found, wants),
            _known_groups(people, found["known_groups"]),
            _shells(people, facts["state"]["paths"]),
            _accounts(members, found["known_users"]),
        ]
    asked = [] if proof["declared"] else [_ids(people, facts["people"], proof)]
    asked += [_same_ids(people, facts["people"], wants)] if "people" in facts else []
    asked += [_accounts(members, facts["people"]["known_users"])] if members else []
    skipped = SUBJECT.all_skipped("cluster_users and cluster_groups name nobody")
    return [*{check.id: check for check in (*skipped, *asked)}.values()]


def _ids(people: Users, found: UserFacts, proof: Mapping[str, Any]) -> Check:
    """One name with two numbers, or a number with two names: files would change their owner."""
    if found["known_users"] is None or found["known_groups"] is None:
        return SUBJECT.unknown("ids", "the machine's name services do not answer")
    leaving = {user.name for user in people.users if user.absent}
    going = {group.name for group in people.groups if group.absent} | leaving
    wrong = [
        *_conflicts("uid", {user.name: user.uid for user in people.present}, found["known_users"], leaving),
        *_conflicts("gid", people.gids, found["known_groups"], going),
        *([] if proof["declared"] else _taken(str(proof["name"]), int(proof["uid"]), found)),
        *(f"subuid: {line}" for line in _overlaps(people, found["subuid"])),
        *(f"subgid: {line}" for line in _overlaps(people, found["subgid"])),
    ]
    return SUBJECT.check(
        "ids",
        not wrong,
        brief(wrong) or f"{len(people.present)} users and {len(people.gids)} groups, with numbers of their own",
        "each name and each number as declared, or free",
        source="cluster_users, cluster_groups",
        cause="another user has the number here, or the name has another number",
        fix="declare the numbers that they have. Or give the others new numbers by hand: usermod --uid or groupmod "
        "--gid. Then chown their files, which find / -xdev -uid N lists",
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


def _same_ids(people: Users, found: UserFacts, wants: Mapping[str, Any]) -> Check:
    """Compare people whom nobody declares with the controller's: whom it knows submits, and jobs run by the number."""
    theirs = wants["controller"]
    if theirs is None:
        return SUBJECT.skip("same_ids", "the controller did not report its users and groups", unproven=True)
    declared = {
        "users": {user.name: user.uid for user in people.users},
        "groups": {**{group.name: group.gid for group in people.groups}, **people.gids},
    }
    wrong, count = [], 0
    for kind, word in KINDS.items():
        ours = found["ordinary_users"] if kind == "users" else found["ordinary_groups"]
        left = {*declared[kind], *(str(name) for name in wants["local"])}
        known = {str(name): int(number) for name, number in theirs[kind].items() if name not in left}
        owners = {number: name for name, number in known.items()}
        for name, number in sorted(ours.items()):
            if name in left:
                continue
            count += 1
            if known.get(name, number) != number:
                wrong.append(f"{name} has {word} {number}, on the controller {known[name]}")
            elif name not in known and number in owners:
                wrong.append(f"{word} {number} is {name}'s, on the controller {owners[number]}'s")
    return SUBJECT.check(
        "same_ids",
        not wrong,
        brief(wrong) or f"{count} users and groups that nobody declares, none with another number or name",
        "one name, one number, on every machine",
        source="/etc/passwd, /etc/group",
        cause="they were created by hand on each machine: jobs run by number, so one user's files would be another's",
        fix="declare them in cluster_users and cluster_groups with one number each. If they have another number, first "
        "run usermod --uid or groupmod --gid, and chown. Name those of a single machine in cluster_users_local",
    )


def _known_groups(people: Users, known: Sequence[Known] | None) -> Check:
    """A group that is not declared has to be on every machine already."""
    if known is None:
        return SUBJECT.unknown("known_groups", "the machine's name services do not answer")
    own = {entry["name"] for entry in known if entry["own"]}
    lacking = {
        name: user.name
        for user in people.present
        for name in user.groups
        if name not in people.gids and name not in own
    }
    wrong = [f"no group {name}, which {user} needs" for name, user in sorted(lacking.items())]
    return SUBJECT.check(
        "known_groups",
        not wrong,
        brief(wrong) or "all there",
        "every group of a user declared, or on every machine",
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
    return SUBJECT.check(
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
        return SUBJECT.skip("accounts", "slurm_accounts names no user that this machine must know")
    if known is None:
        return SUBJECT.unknown("accounts", "the machine's name services do not answer")
    # A directory may write its names in another case, or with its domain.
    there = {name for entry in known for name in (entry["name"].lower(), entry["name"].lower().partition("@")[0])}
    wrong = [name for name in members if name.lower() not in there]
    return SUBJECT.check(
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
