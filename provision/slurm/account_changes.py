"""What is to be changed in the accounting database so that it has what is declared, in sacctmgr's words. Pure.

What the inventory does not name stays as it is: an account, a user, a limit that somebody has set by hand. What it
names as absent, or as null, is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from provision.slurm.accounts import ROOT, Account, Accounts, Member, Settings
from provision.slurm.limits import ASSOCIATION, NONE, QOS, TOLD, TRES, Kind, same, tres

#: What sacctmgr is asked for, by the heading of its answer: its words, and the columns.
QUESTIONS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "tres": (("tres",), ("Type", "Name")),
    "account": (("account",), ("Account", "Organization", "Description")),
    "qos": (("qos",), ("Name", *QOS)),
    "user": (("user",), ("User", "DefaultAccount")),
    # Without what is inherited from above.
    "assoc": (("assoc", "WOPInfo"), ("Account", "Lineage", "User", "Partition", *ASSOCIATION)),
}

Row = Mapping[str, str]

#: Users that one command adds: a thousand commands would take minutes, and the kernel bounds a word of one (128 KiB).
_AT_ONCE = 1000


@dataclass(frozen=True)
class Change:
    """One thing that differs: ``what`` is accounts, users or qos, ``commands`` are what mends it, for sacctmgr.

    One without commands waits: the database has not heard of a TRES that slurmctld will tell it of when it starts.
    """

    what: str
    says: str
    commands: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Database:
    """What the database has. ``associations`` are by account and user, an account's own without a user."""

    tres: frozenset[str] = frozenset()
    accounts: Mapping[str, Row] = field(default_factory=dict)
    qos: Mapping[str, Row] = field(default_factory=dict)
    users: Mapping[str, Row] = field(default_factory=dict)
    associations: Mapping[tuple[str, str], Row] = field(default_factory=dict)


def questions(cluster: str) -> list[str]:
    """Return what sacctmgr is asked, each a heading and the words behind ``show``."""
    return [
        " ".join([name, *words, *([f"cluster={cluster}"] if name == "assoc" else []), f"format={','.join(columns)}"])
        for name, (words, columns) in QUESTIONS.items()
    ]


def database_from(answers: Mapping[str, str]) -> Database:
    """Read what sacctmgr printed (``--parsable2 --noheader``) by heading; a line that is not of its form is no row."""
    rows: dict[str, list[Row]] = {}
    for name, (_, columns) in QUESTIONS.items():
        cells = (line.split("|", len(columns) - 1) for line in answers.get(name, "").splitlines())
        rows[name] = [dict(zip(columns, row, strict=True)) for row in cells if len(row) == len(columns)]
    return Database(
        tres=frozenset("/".join(filter(None, (row["Type"], row["Name"]))) for row in rows["tres"]),
        accounts={row["Account"]: row for row in rows["account"]},
        qos={row["Name"]: row for row in rows["qos"]},
        users={row["User"]: row for row in rows["user"]},
        associations={(row["Account"], row["User"]): row for row in rows["assoc"] if not row["Partition"]},
    )


def changes(wanted: Accounts, found: Database, cluster: str) -> list[Change]:
    """Return what differs, in the order in which it is to be mended."""
    return [
        *_levels(wanted, found),
        *(change for account in wanted.parents_first for change in _account(account, found, cluster)),
        *_users(wanted, found, cluster),
        *_defaults(wanted, found, cluster),
        *_gone(wanted, found, cluster),
    ]


def _levels(wanted: Accounts, found: Database) -> Iterator[Change]:
    there = [level for level in wanted.qos if not level.absent]
    # All before their settings, which can name another one.
    for level in there:
        if level.name not in found.qos:
            yield Change("qos", f"{level.name} is missing", (("add", "qos", level.name),))
    for level in there:
        row = found.qos.get(level.name, {})
        where = ("modify", "qos", "where", f"name={level.name}", "set")
        yield from _settings("qos", level.name, where, level.settings, QOS, row, found)


def _settings(
    what: str,
    whose: str,
    where: tuple[str, ...],
    settings: Settings,
    known: Mapping[str, Kind],
    row: Row,
    found: Database,
) -> Iterator[Change]:
    different = [(name, value) for name, value in settings if not same(known[name], value, row.get(name, ""))]
    # A default one has to be among those that may be used, before and afterwards: both have one command.
    both = [f"{name}={_told(known[name], value)}" for name, value in different if name in ("QOS", "DefaultQOS")]
    for name, value in different:
        kind, there = known[name], row.get(name, "")
        shown = "none" if value == NONE else value
        says = f"{name} of {whose} is {there or 'none'}, not {shown}"
        if kind is not TRES:
            words = both if name in ("QOS", "DefaultQOS") else [f"{TOLD.get(name, name)}={_told(kind, value)}"]
            yield Change(what, says, ((*where, *words),))
            continue
        amounts = dict.fromkeys(tres(there, shown=True) or {}, NONE) if value == NONE else {}
        words = [f"{one}={amount}" for one, amount in amounts.items()] or [value]
        if late := sorted(set(tres(value) or {}) - found.tres if value != NONE else ()):
            yield Change(what, f"{says}: the database has not heard of {', '.join(late)} yet")
        else:
            yield Change(what, says, ((*where, f"{name}={','.join(words)}"),))


def _told(kind: Kind, value: str) -> str:
    if value == NONE:
        return kind.cleared
    return kind.told(value) if kind.told else value


def _account(account: Account, found: Database, cluster: str) -> Iterator[Change]:
    if account.absent:
        return
    row = found.associations.get((account.name, ""))
    there = found.accounts.get(account.name, {})
    where = ("modify", "account", "where", f"name={account.name}", f"cluster={cluster}", "set")
    if row is None:
        words = [f"parent={account.parent}", f"cluster={cluster}"]
        words += [f"description={account.description}"] if account.description else []
        words += [f"organization={account.organization}"] if account.organization else []
        yield Change("accounts", f"{account.name} is missing", (("add", "account", account.name, *words),))
    elif (parent := _parent(row)) != account.parent:
        says = f"{account.name} is below {parent}, not {account.parent}"
        yield Change("accounts", says, ((*where, f"parent={account.parent}"),))
    for name, text in (("Description", account.description), ("Organization", account.organization)):
        if text is not None and row is not None and there.get(name) != text:
            says = f"{name} of {account.name} is {there.get(name) or 'none'}, not {text}"
            command = ("modify", "account", "where", f"name={account.name}", "set", f"{name}={text}")
            yield Change("accounts", says, (command,))
    yield from _settings("accounts", account.name, where, account.settings, ASSOCIATION, row or {}, found)


def _parent(row: Row) -> str:
    """Return the account above, from ``/physics/test1267/``: without what is inherited, no parent is shown."""
    above = [word for word in row["Lineage"].split("/") if word][:-1]
    return above[-1] if above else ROOT


def _members(wanted: Accounts, absent: bool) -> Iterator[tuple[Account, Member]]:
    for account in wanted.parents_first:
        for member in account.members:
            if (member.absent or account.absent) == absent:
                yield account, member


def _users(wanted: Accounts, found: Database, cluster: str) -> Iterator[Change]:
    default = wanted.default_accounts
    new = [
        (account.name, member.name)
        for account, member in _members(wanted, absent=False)
        if (account.name, member.name) not in found.associations
    ]
    # The first account that a user is in becomes the default one.
    first = [(account, name) for account, name in new if default[name] == account]
    early = set(first)
    for one in (first, [pair for pair in new if pair not in early]):
        for into in dict.fromkeys(account for account, _ in one):
            names = [name for other, name in one if other == into]
            for start in range(0, len(names), _AT_ONCE):
                some = names[start : start + _AT_ONCE]
                words = ("add", "user", ",".join(some), f"account={into}", f"cluster={cluster}")
                says = [f"{name} is missing in {into}" for name in some]
                yield Change("users", says[0], (words,))
                yield from (Change("users", one_more, ((),)) for one_more in says[1:])
    for account, member in _members(wanted, absent=False):
        row = found.associations.get((account.name, member.name), {})
        place = (f"name={member.name}", f"account={account.name}", f"cluster={cluster}")
        whose = f"{member.name} in {account.name}"
        where = ("modify", "user", "where", *place, "set")
        yield from _settings("users", whose, where, member.settings, ASSOCIATION, row, found)


def _defaults(wanted: Accounts, found: Database, cluster: str) -> Iterator[Change]:
    for name, account in wanted.default_accounts.items():
        there = found.users.get(name, {}).get("DefaultAccount", "")
        # One who is new has been put into that account first.
        if there == account or name not in found.users:
            continue
        command = ("modify", "user", "where", f"name={name}", f"cluster={cluster}", "set", f"DefaultAccount={account}")
        yield Change("users", f"the default account of {name} is {there or 'none'}, not {account}", (command,))


def _gone(wanted: Accounts, found: Database, cluster: str) -> Iterator[Change]:
    for account, member in _members(wanted, absent=True):
        if (account.name, member.name) in found.associations:
            place = (f"name={member.name}", f"account={account.name}", f"cluster={cluster}")
            yield Change("users", f"{member.name} is in {account.name}", (("delete", "user", "where", *place),))
    for account in reversed(wanted.parents_first):
        if account.absent and (account.name, "") in found.associations:
            command = ("delete", "account", "where", f"name={account.name}", f"cluster={cluster}")
            yield Change("accounts", f"{account.name} is there", (command,))
    for level in wanted.qos:
        if level.absent and level.name in found.qos:
            yield Change("qos", f"{level.name} is there", (("delete", "qos", "where", f"name={level.name}"),))


def commands(found: Iterable[Change]) -> list[tuple[str, ...]]:
    """Return what sacctmgr is told, in order; once where several changes have one command."""
    return list(dict.fromkeys(command for change in found for command in change.commands if command))
