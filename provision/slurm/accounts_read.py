"""Accounts, their users and QOS: from the inventory's variables, each word and value checked. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from provision.errors import ClusterctlError
from provision.slurm.accounts import NORMAL, ROOT, Account, Accounts, Member, Qos, Settings, refusal
from provision.slurm.accounts_together import (
    require_once,
    require_one_default,
    require_parents,
    require_qos,
    with_proof,
)
from provision.slurm.limits import ASSOCIATION, NONE, NUMBER, PART, QOS, Kind, canonical

#: Slurm makes all of an account's name lower case.
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,39}")
_USER = re.compile(r"[a-z_][a-z0-9_.@-]{0,63}")
_TEXT = re.compile(r"[A-Za-z0-9 _.,:;/()+&@-]{0,200}")

_OF_ACCOUNT = ("name", "parent", "description", "organization", "users", "state")
_OF_QOS = ("name", "state")
_OF_USER = ("name", "default", "state")
#: Words of sacctmgr's that say what the inventory says elsewhere.
_ELSEWHERE = {
    "cluster": "leave it out: it is cluster_name",
    "clusters": "leave it out: it is cluster_name",
    "partition": "limit a partition by a QOS of its own: QOS in slurm_partitions",
    "partitions": "limit a partition by a QOS of its own: QOS in slurm_partitions",
    "adminlevel": "leave it out, and set it with sacctmgr: nothing here changes it",
    "defaultaccount": "write default: true at the user in that account",
}
_STATES = ("present", "absent")


def accounts_from(accounts: object, qos: object, *, user: str, account: str) -> Accounts:
    """Return what ``slurm_accounts`` and ``slurm_qos`` declare, and the proof's ``user`` where no account has it.

    ``account`` is the one that the proof's jobs are to be in; empty leaves it to the declared ones, else one is made of
    the user's name. Without an account nothing is enforced, and the proof needs none.

    Raises:
        ClusterctlError: a name, word or value is none that Slurm takes, or what is declared contradicts itself.
    """
    levels = tuple(
        _qos_entry(place, entry) for place, entry in _entries("slurm_qos", qos, "{name: long, Priority: 10}")
    )
    require_once("slurm_qos", [level.name for level in levels])
    declared = [
        _account(place, entry)
        for place, entry in _entries("slurm_accounts", accounts, "{name: physics, Fairshare: 40, users: [alice]}")
    ]
    require_once("slurm_accounts", [one.name for one in declared])
    require_qos(declared, levels)
    require_one_default(declared)
    if declared:
        declared = with_proof(declared, user, account)
    require_parents(declared)
    return Accounts(tuple(declared), levels)


def _entries(variable: str, value: object, example: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return each mapping of a list with its place in the inventory."""
    if value is None:
        return []
    if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
        raise ClusterctlError(
            f"{variable} is {str(value)[:70]!r}: it must be a list of mappings",
            fix=f"write it in group_vars/all.yml, as '- {example}'",
        )
    return [(f"{variable}[{number}]", item) for number, item in enumerate(value)]


def _split(
    place: str, what: str, entry: Mapping[str, Any], own: Sequence[str], known: Mapping[str, Kind]
) -> tuple[dict[str, Any], Settings]:
    """Return our own words of an entry, and sacctmgr's with their values; refuse all others."""
    ours: dict[str, Any] = {}
    settings: dict[str, str] = {}
    for key, value in entry.items():
        word, where = str(key), f"{place}.{key}"
        if word.lower() in own:
            name = word.lower()
        elif name := canonical(word, known):
            if name not in settings:
                settings[name] = _value(where, what, name, known[name], value)
                continue
        else:
            near = difflib.get_close_matches(word.lower(), [one.lower() for one in (*own, *known)], n=1)
            names = {one.lower(): one for one in (*own, *known)}
            raise refusal(
                where,
                f"{what} has {word[:70]!r}, which is no parameter of it",
                _ELSEWHERE.get(word.lower())
                or (f"did you mean {names[near[0]]}?" if near else "the words are those of sacctmgr(1)"),
            )
        if name in ours or name in settings:
            raise refusal(where, f"{what} has {name} twice: Slurm's names do not depend on case", "leave one of them")
        ours[name] = value
    return ours, tuple(settings.items())


def _value(where: str, what: str, name: str, kind: Kind, value: object) -> str:
    if value is None:
        return NONE
    words = value if isinstance(value, list | tuple) else str(value).split(",")
    text = ",".join(str(word).strip() for word in words)
    if isinstance(value, list | tuple) and not value:
        raise refusal(where, f"{what}: {name} is an empty list", f"leave {name} out, or name one")
    below = kind in (NUMBER, PART) and text.startswith("-") and text != "-1"
    if below or isinstance(value, bool | Mapping) or (text != NONE and (not text or kind.meaning(text) is None)):
        near = kind.nearest(text)
        raise refusal(
            where,
            f"{what}: {name} is {str(value)[:70]!r}: it must be {kind.what}",
            f"did you mean {near}?" if near else "sacctmgr(1) has the forms",
        )
    return text


def _named(place: str, entry: Mapping[str, Any], what: str, form: re.Pattern[str] = _NAME) -> str:
    names = [value for key, value in entry.items() if str(key).lower() == "name"]
    if not names:
        given = ", and has " + ", ".join(map(repr, entry))[:70] if entry else ""
        raise refusal(place, f"{what} has no name{given}", f"write {{name: {_first(entry)}}}")
    name = names[0]
    if isinstance(name, int) and not isinstance(name, bool):
        name = str(name)
    words = name.split() if isinstance(name, str) and form is _USER else []
    if len(words) > 1 and all(form.fullmatch(word) for word in words):
        several = f"[{', '.join(words)}]"
        raise refusal(place, f"the name of {what} is {name[:70]!r}: a comma is missing", f"write {several[:120]}")
    if not isinstance(name, str) or not form.fullmatch(name):
        raise refusal(
            f"{place}.name",
            f"the name of {what} is {str(name)[:70]!r}: it must be lower-case letters, digits, '-', '_' and '.'",
            f"name {what}, as name: test1267",
        )
    return name


def _first(entry: Mapping[str, Any]) -> str:
    """Return what was meant for the name, of an entry that has none."""
    return next(
        (str(value)[:40] for value in entry.values() if isinstance(value, str) and _USER.fullmatch(value)), "test1267"
    )


def _state(place: str, what: str, value: object) -> bool:
    if value not in _STATES:
        raise refusal(f"{place}.state", f"{what}: state is {value!r}", "it is present, or absent to remove it")
    return value == "absent"


def _qos_entry(place: str, entry: Mapping[str, Any]) -> Qos:
    name = _named(place, entry, "a QOS")
    ours, settings = _split(place, f"QOS {name}", entry, _OF_QOS, QOS)
    absent = _state(place, f"QOS {name}", ours.get("state", "present"))
    if absent and name == NORMAL:
        raise refusal(place, f"QOS {NORMAL} cannot be removed: it is Slurm's own", "leave it out")
    return Qos(name, settings, absent)


def _account(place: str, entry: Mapping[str, Any]) -> Account:
    name = _named(place, entry, "an account")
    what = f"account {name}"
    if name == ROOT:
        raise refusal(place, "the account root is Slurm's own, above all others", "limit the accounts below it")
    ours, settings = _split(place, what, entry, _OF_ACCOUNT, ASSOCIATION)
    users = ours.get("users") or []
    if not isinstance(users, list | tuple):
        raise refusal(f"{place}.users", f"{what}: users is {users!r}: it must be a list", "write users: [alice, bob]")
    members = tuple(_member(f"{place}.users[{number}]", what, user) for number, user in enumerate(users))
    seen: set[str] = set()
    for number, member in enumerate(members):
        if member.name in seen:
            raise refusal(f"{place}.users[{number}]", f"{what} has {member.name} twice", "leave one of them")
        seen.add(member.name)
    return Account(
        name=name,
        parent=str(ours.get("parent") or ROOT),
        description=_text(place, what, "description", ours.get("description")),
        organization=_text(place, what, "organization", ours.get("organization")),
        settings=settings,
        members=members,
        absent=_state(place, what, ours.get("state", "present")),
    )


def _text(place: str, what: str, name: str, value: object) -> str | None:
    if value is None:
        return None
    text = str(value).strip()
    if not isinstance(value, str | int) or isinstance(value, bool) or not _TEXT.fullmatch(text):
        raise refusal(
            f"{place}.{name}",
            f"{what}: {name} is {str(value)[:70]!r}",
            "use letters, digits, blanks and . , : ; / ( ) + & @ - _, 200 at most",
        )
    # Slurm keeps both in lower case.
    return text.lower()


def _member(place: str, what: str, value: object) -> Member:
    entry = value if isinstance(value, Mapping) else {"name": value}
    name = _named(place, entry, f"a user of {what}", _USER)
    ours, settings = _split(place, f"{name} in {what}", entry, _OF_USER, ASSOCIATION)
    default = ours.get("default", False)
    if not isinstance(default, bool):
        raise refusal(f"{place}.default", f"{name} in {what}: default is {default!r}", "it is true or false")
    return Member(name, settings, default, _state(place, f"{name} in {what}", ours.get("state", "present")))
