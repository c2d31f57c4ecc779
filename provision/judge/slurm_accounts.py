"""Has the accounting database the accounts, users and QOS that are declared? Pure judgement of what sacctmgr shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.errors import ClusterctlError
from provision.judge.slurm_answers import line
from provision.judge.slurm_facts import answered
from provision.model.checks import Check, Subject, Verdict
from provision.model.facts import MachineFacts
from provision.model.text import brief, sections, unpacked
from provision.slurm.account_changes import QUESTIONS, Change, Database, changes, database_from
from provision.slurm.accounts import Accounts
from provision.slurm.accounts_read import accounts_from

_DECLARED = ("qos", "accounts", "users")
SUBJECT = Subject("slurm_accounts", names=(*_DECLARED, "gone"), fix="clusterctl provision slurm")


class RefusedError(ValueError):
    """The database, or what it runs on, has answered something else than what was asked."""


def checks(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Judge the database.

    ``wants``: ``cluster``, its name; ``accounts`` and ``qos`` as the inventory declares them; ``gone``, people who are
    to be absent from the machines; ``user`` and ``account``, those of the proof; ``verified``, whether the cluster is
    being verified. Else a database that refuses to answer, as one that is not there yet, is something to do.
    """
    try:
        wanted = _wanted(wants)
        if not wanted.accounts and not wanted.qos:
            return SUBJECT.all_skipped("the inventory declares no accounts: everybody may submit")
        database = _database(facts)
        found = changes(wanted, database, str(wants["cluster"]))
    except RefusedError as error:
        if wants["verified"]:
            return SUBJECT.all_unknown(str(error))
        refused = [SUBJECT.check(name, False, str(error), "as declared", source="sacctmgr") for name in _DECLARED]
        return [*refused, SUBJECT.skip("gone", str(error))]
    except (ValueError, ClusterctlError) as error:
        return SUBJECT.all_unknown(str(error))
    counts = {
        "qos": len(wanted.qos),
        "accounts": len(wanted.accounts),
        "users": len(wanted.default_accounts),
    }
    judged = [_check(name, counts[name], [change.says for change in found if change.what == name]) for name in counts]
    return [*judged, _gone(database, wanted, set(wants["gone"]))]


def _gone(database: Database, wanted: Accounts, gone: set[str]) -> Check:
    """Name what left the inventory and is still in the database: users whose logins are gone, and QOS.

    Of the QOS, where the inventory declares any: those that it does not, but Slurm's own, "normal".
    """
    left = [
        (f"{user} is still in account {account}", f"among the users of {account} in slurm_accounts: {{name: {user}, ")
        for account, user in sorted(database.associations)
        if user in gone
    ]
    declared = {qos.name for qos in wanted.qos} | {"normal"}
    left += [
        (f"QOS {name} is not in slurm_qos", f"declare it, or delete it, in slurm_qos: {{name: {name}, ")
        for name in sorted(set(database.qos) - declared if wanted.qos else ())
    ]
    return SUBJECT.check(
        "gone",
        Verdict.WARN if left else Verdict.PASS,
        brief([observed for observed, _ in left]) or "nobody",
        "users with an account exist on the machines, and the inventory has each QOS",
        source="cluster_users, sacctmgr",
        cause="what is taken out of a list stays in Slurm's database" if left else "",
        fix=f"{left[0][1]}state: absent}}" if left else "",
    )


def different(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Change]:
    """Return what differs between the database and what is declared.

    Raises:
        ValueError: the database did not answer in time, or (RefusedError) said that it does not; why.
        ClusterctlError: what is declared contradicts itself.
    """
    return changes(_wanted(wants), _database(facts), str(wants["cluster"]))


def _database(facts: MachineFacts) -> Database:
    answer = facts.get("commands", {}).get("slurm_accounts") or {"rc": None, "text": "the database was not asked"}
    if answer["rc"] is None:
        raise ValueError(answer["text"])
    said = {name: answered(text) for name, text in sections(_printed(answer["text"])).items()}
    for name in QUESTIONS:
        words, code = said.get(name, (answer["text"], answer["rc"]))
        if code in (124, 137):
            raise ValueError("slurmdbd did not answer in time")
        if name not in said or code != 0:
            told = [line(one) for one in words.splitlines() if one.strip()]
            raise RefusedError(told[-1] if told else "slurmdbd did not answer")
    return database_from({name: text for name, (text, _) in said.items()})


def _printed(text: str) -> str:
    """Return what the role's script printed; the words of an engine that did not run it are none of its."""
    packed = sections(text).get("packed", "").strip()
    try:
        return unpacked(packed) if packed else text
    except ValueError:
        return text


def _wanted(wants: Mapping[str, Any]) -> Accounts:
    return accounts_from(wants["accounts"], wants["qos"], user=str(wants["user"]), account=str(wants["account"]))


def _check(name: str, count: int, wrong: list[str]) -> Check:
    return SUBJECT.check(
        name,
        not wrong,
        brief(wrong) or f"{count} as declared",
        "as declared",
        source="sacctmgr",
        cause="newly declared, or changed or removed by hand",
    )
