"""What the accounting database is told, so that it has what is declared and loses nothing that nobody named."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from machines import act, plugin

from provision import content
from provision.judge import slurm_accounts
from provision.model.checks import Verdict
from provision.model.facts import facts_from
from provision.slurm.account_changes import QUESTIONS, changes, commands, database_from, questions
from provision.slurm.accounts_read import accounts_from

action = plugin("roles/slurm_accounts/action_plugins/slurm_accounts_applied.py")


def row(name: str, **values: str) -> str:
    return "|".join(values.get(column, "") for column in QUESTIONS[name][1])


def database(**more: list[str]) -> dict[str, str]:
    """Return what sacctmgr shows of a database with a group of two users, and the proof."""
    rows = {
        "tres": ["cpu|", "mem|", "gres|gpu"],
        "account": [
            "root|root|default root account",
            "test1267|physics|group of physics",
            "slurmtest|clusterctl|proves the cluster",
        ],
        "qos": [row("qos", Name="normal", Priority="0"), row("qos", Name="short", Priority="100", MaxWall="01:00:00")],
        "user": ["root|root", "ada|test1267", "ben|test1267", "slurmtest|slurmtest"],
        "assoc": [
            row("assoc", Account="root", Lineage="/", Fairshare="1", QOS="normal"),
            row("assoc", Account="slurmtest", Lineage="/slurmtest/", Fairshare="1"),
            row("assoc", Account="slurmtest", Lineage="/slurmtest/0-slurmtest/", User="slurmtest", Fairshare="1"),
            row("assoc", Account="test1267", Lineage="/test1267/", Fairshare="40", GrpTRES="cpu=64,gres/gpu=8,mem=1T"),
            row("assoc", Account="test1267", Lineage="/test1267/0-ada/", User="ada", Fairshare="1"),
            row("assoc", Account="test1267", Lineage="/test1267/0-ben/", User="ben", Fairshare="1", MaxJobs="5"),
        ],
    }
    return {name: "\n".join([*lines, *more.get(name, [])]) for name, lines in rows.items()}


GROUP = {
    "name": "test1267", "Fairshare": 40, "GrpTRES": "gres/gpu=8", "description": "group of Physics",
    "users": ["ada", "ben"],
}  # fmt: skip
SHORT = {"name": "short", "Priority": 100, "MaxWall": 60}


def told(accounts: Any, levels: Any = (), /, **more: list[str]) -> tuple[list[str], list[str]]:
    wanted = accounts_from(list(accounts), list(levels), user="slurmtest", account="slurmtest")
    found = changes(wanted, database_from(database(**more)), "lab")
    return [change.says for change in found], [" ".join(command) for command in commands(found)]


def test_what_is_there_as_declared_is_left() -> None:
    assert told([GROUP], [SHORT]) == ([], [])


def test_what_nobody_names_stays() -> None:
    """Limits that somebody has set by hand, other users, accounts, and QOS."""
    assert told([{"name": "test1267", "GrpTRES": "mem=1024G", "users": []}]) == ([], [])


def test_a_new_group_comes_with_its_users_its_limits_and_their_default() -> None:
    new = {"name": "new", "parent": "test1267", "Fairshare": 10, "MaxWall": "2-0", "users": ["eve", "ada"]}
    says, words = told([GROUP, new])

    assert says == ["new is missing", "Fairshare of new is none, not 10", "MaxWall of new is none, not 2-0",
                    "eve is missing in new", "ada is missing in new"]  # fmt: skip
    assert words == [
        "add account new parent=test1267 cluster=lab",
        "modify account where name=new cluster=lab set Fairshare=10",
        "modify account where name=new cluster=lab set MaxWall=2-0",
        "add user eve account=new cluster=lab",
        "add user ada account=new cluster=lab",
    ]


def test_a_value_that_differs_is_set_and_both_are_said() -> None:
    says, words = told([{**GROUP, "Fairshare": 50, "GrpTRES": "gres/gpu=4"}], [{**SHORT, "Priority": 7}])

    assert says == ["Priority of short is 100, not 7", "Fairshare of test1267 is 40, not 50",
                    "GrpTRES of test1267 is cpu=64,gres/gpu=8,mem=1T, not gres/gpu=4"]  # fmt: skip
    assert words[2] == "modify account where name=test1267 cluster=lab set GrpTRES=gres/gpu=4"


def test_null_removes_a_limit() -> None:
    users = [{"name": "ben", "MaxJobs": None}]
    says, words = told([{"name": "test1267", "GrpTRES": None, "users": users}])

    assert words == [
        "modify account where name=test1267 cluster=lab set GrpTRES=cpu=-1,gres/gpu=-1,mem=-1",
        "modify user where name=ben account=test1267 cluster=lab set MaxJobs=-1",
    ]
    assert "not none" in says[0]


def test_null_is_told_in_the_word_that_sacctmgr_takes_for_it() -> None:
    none = dict.fromkeys(("Preempt", "PreemptMode", "Flags", "MaxWall", "Priority"))
    there = row("qos", Name="x", Priority="5", Flags="NoDecay", MaxWall="00:05:00", Preempt="short", PreemptMode="gang")
    _, words = told([], [{"name": "x", **none}], qos=[there])

    assert [word.rpartition(" set ")[2] for word in words] == [
        "Preempt=", "PreemptMode=cluster", "Flags=-1", "MaxWall=-1", "Priority=-1",
    ]  # fmt: skip


def test_what_sacctmgr_would_misread_is_told_as_it_reads_it() -> None:
    level = {"name": "x", "GraceTime": "1:00", "MinPrioThreshold": 4, "PreemptMode": "suspend"}
    _, words = told([], [{**level, "Flags": "NoDecay, NoReserve"}], qos=[row("qos", Name="x")])

    assert [word.rpartition(" set ")[2] for word in words] == [
        "GraceTime=60", "MinPrioThresh=4", "PreemptMode=suspend", "Flags=NoDecay,NoReserve",
    ]  # fmt: skip


def test_a_default_qos_is_told_together_with_those_it_is_one_of() -> None:
    says, words = told([{**GROUP, "QOS": "short", "MaxJobs": 5, "DefaultQOS": "short"}], [SHORT])
    _, gone = told([{"name": "slurmtest", "DefaultQOS": None, "QOS": None}], assoc=[
        row("assoc", Account="slurmtest", Lineage="/slurmtest/", QOS="short", DefaultQOS="short")
    ])  # fmt: skip

    assert [says[0], says[2]] == ["QOS of test1267 is none, not short", "DefaultQOS of test1267 is none, not short"]
    assert [word.rpartition(" set ")[2] for word in words] == ["QOS=short DefaultQOS=short", "MaxJobs=5"]
    assert [word.rpartition(" set ")[2] for word in gone] == ["DefaultQOS=-1 QOS="]


def test_another_parent_or_default_is_told() -> None:
    above = {"name": "above"}
    says, words = told(
        [above, {**GROUP, "parent": "above"}, {"name": "slurmtest", "users": [{"name": "ada", "default": True}]}]
    )

    assert "test1267 is below root, not above" in says
    assert "modify account where name=test1267 cluster=lab set parent=above" in words
    assert words[-2:] == [
        "add user ada account=slurmtest cluster=lab",
        "modify user where name=ada cluster=lab set DefaultAccount=slurmtest",
    ]


def test_only_what_is_named_absent_is_removed_users_first() -> None:
    gone = {"name": "test1267", "state": "absent", "users": [{"name": "ben", "state": "absent"}]}
    _, words = told([gone], [{"name": "short", "state": "absent"}])

    assert words == [
        "delete user where name=ben account=test1267 cluster=lab",
        "delete account where name=test1267 cluster=lab",
        "delete qos where name=short",
    ]


def test_a_limit_on_what_the_database_has_not_heard_of_waits() -> None:
    says, words = told([{**GROUP, "GrpTRES": "gres/gpu:A40=8"}])

    assert "the database has not heard of gres/gpu:A40 yet" in says[0]
    assert words == []


def test_a_qos_is_there_before_one_names_it() -> None:
    _, words = told([], [{"name": "first", "Preempt": "second"}, {"name": "second"}])

    assert words[:3] == ["add qos first", "add qos second", "modify qos where name=first set Preempt=second"]


def facts(text: str, rc: int | None = 0) -> Any:
    return {"commands": {"slurm_accounts": {"rc": rc, "text": text}}}


def shown(answers: dict[str, str], code: int = 0) -> str:
    return "".join(f"== {name}\n{answers.get(name, '')}\ncode {code}\n" for name in QUESTIONS)


WANTS = {
    "cluster": "lab",
    "accounts": [GROUP],
    "qos": [SHORT],
    "user": "slurmtest",
    "account": "slurmtest",
    "verified": False,
    "gone": [],
}


def test_the_judge_tells_what_differs_by_kind() -> None:
    good = slurm_accounts.checks(facts(shown(database())), WANTS)
    bad = slurm_accounts.checks(facts(shown(database())), {**WANTS, "qos": [{**SHORT, "Priority": 1}]})

    assert [check.verdict for check in good] == [Verdict.PASS] * 4
    assert [(check.id, check.observed) for check in bad if not check.ok] == [
        ("slurm_accounts.qos", "Priority of short is 100, not 1")
    ]


def test_who_is_gone_from_the_machines_and_still_has_an_account_is_named_with_the_line_that_removes_them() -> None:
    found = slurm_accounts.checks(facts(shown(database())), {**WANTS, "gone": ["ben", "nobody"]})[-1]

    assert (found.verdict, found.observed) == (Verdict.WARN, "ben is still in account test1267")
    assert found.fix == "among the users of test1267 in slurm_accounts: {name: ben, state: absent}"


def test_a_qos_that_left_the_list_is_named_with_the_line_that_removes_it() -> None:
    there = facts(shown(database()))

    found = slurm_accounts.checks(there, {**WANTS, "qos": [{**SHORT, "name": "long"}]})[-1]
    undeclared = slurm_accounts.checks(there, {**WANTS, "qos": []})[-1]

    assert (found.verdict, found.observed) == (Verdict.WARN, "QOS short is not in slurm_qos")
    assert found.fix == "declare it, or delete it, in slurm_qos: {name: short, state: absent}"
    assert undeclared.verdict is Verdict.PASS, "a site that declares none keeps them in Slurm alone"


@pytest.mark.parametrize(
    ("text", "rc", "verified", "verdict"),
    [
        ("Error: No such container: slurmdbd", 1, False, Verdict.FAIL),
        (shown({"tres": "sacctmgr: error: Unable to connect to database"}, 1), 0, False, Verdict.FAIL),
        (shown({"tres": "sacctmgr: error: Unable to connect to database"}, 1), 0, True, Verdict.UNKNOWN),
        ("did not answer in 30 s", None, False, Verdict.UNKNOWN),
        (shown({}, 124), 124, False, Verdict.UNKNOWN),
        ("\x00garbage\n== tres", 0, False, Verdict.FAIL),
    ],
)
def test_a_database_that_refuses_is_to_be_mended_and_one_that_hangs_is_unknown(
    text: str, rc: int | None, verified: bool, verdict: Verdict
) -> None:
    found = slurm_accounts.checks(facts(text, rc), {**WANTS, "verified": verified})

    assert [check.id for check in found] == list(slurm_accounts.SUBJECT.ids)
    assert {check.verdict for check in found[:3]} == {verdict}
    assert found[3].verdict is (Verdict.SKIP if verdict is Verdict.FAIL else verdict)


def test_without_accounts_nothing_is_asked() -> None:
    found = slurm_accounts.checks(facts("", None), {**WANTS, "accounts": [], "qos": []})

    assert {check.verdict for check in found} == {Verdict.SKIP}
    assert all("cluster=lab" in one for one in questions("lab") if one.startswith("assoc"))


def asked(tmp_path: Path, answers: dict[str, str], code: int = 0) -> Any:
    """Return what the role's script prints where sacctmgr shows these, as it comes through the door of answers."""
    for name, text in answers.items():
        (tmp_path / name).write_text(f"{text}\n")
    (tmp_path / "sacctmgr").write_text(f'#!/bin/sh\ncat {tmp_path}/"$4"; exit {code}\n')
    (tmp_path / "sacctmgr").chmod(0o755)
    script = (content.ROOT / "roles/slurm_accounts/files/questions").read_text(encoding="utf-8")
    words, paths = questions("lab"), {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-s", *words], input=script, capture_output=True, text=True, env=paths, check=True)
    return facts_from({"commands": {"slurm_accounts": {"rc": done.returncode, "text": done.stdout}}})


def test_a_database_that_refuses_says_why_through_the_script_too(tmp_path: Path) -> None:
    found = slurm_accounts.checks(asked(tmp_path, {"tres": "sacctmgr: error: it is away"}, 1), WANTS)

    assert {(check.verdict, check.observed) for check in found[:3]} == {(Verdict.FAIL, "sacctmgr: error: it is away")}


def test_thousands_of_new_users_are_added_in_words_that_the_kernel_takes() -> None:
    names = [f"user{number:05}" for number in range(20_000)]

    _, said = told([GROUP, {"name": "all", "users": names}])

    added = [command for command in said if command.startswith("add user ")]
    assert sum(len(command.split()[2].split(",")) for command in added) == 20_000
    assert max(map(len, added)) < 128 * 1024


def applied(wants: Any, told: dict[str, Any], done: dict[str, Any] | None = None) -> tuple[dict[str, Any], list[Any]]:
    """Return what the role's action answers, and what it has run where sacctmgr is."""
    ran = []

    def machine(module_name: str, module_args: dict[str, Any], task_vars: Any = None) -> dict[str, Any]:
        if module_name == "machine_facts":
            return told
        ran.append((module_args["argv"], module_args["stdin"]))
        return done or {"rc": 0}

    args = {"ask": {"argv": ["sh"]}, "inside": ["docker", "exec", "slurmdbd"], "wants": wants}
    return act(action, args, machine), ran


ANSWERED = {"machine": {"commands": {"slurm_accounts": {"rc": 0, "text": shown(database())}}}}


def test_the_role_has_sacctmgr_change_what_differs_in_one_script_that_ends_with_the_first_refusal() -> None:
    found, ran = applied({**WANTS, "qos": [{**SHORT, "Priority": 1}, {"name": "long"}]}, ANSWERED)

    assert (found["changed"], found.get("failed")) == (True, None)
    assert found["said"] == ["long is missing", "Priority of short is 100, not 1"]
    ((argv, script),) = ran
    assert argv == ["docker", "exec", "slurmdbd"]
    assert [line.split(" 2>&1")[0] for line in script.splitlines()] == [
        "said=$(sacctmgr --immediate --quiet add qos long",
        "said=$(sacctmgr --immediate --quiet modify qos where name=short set Priority=1",
    ]
    assert script.count("exit 1") == 2


def test_the_role_leaves_a_database_that_has_what_is_declared() -> None:
    assert applied(WANTS, ANSWERED) == ({"changed": False}, [])
    assert act(action, {"ask": {}}) == {"changed": False}


@pytest.mark.parametrize(
    ("told", "done", "why"),
    [
        ({"failed": True, "msg": "the machine is gone"}, None, "the machine is gone"),
        ({"machine": {"commands": {"slurm_accounts": {"rc": None, "text": "in 30 s"}}}}, None, "in 30 s"),
        (ANSWERED, {"rc": 1, "stdout": "add qos long: no permission"}, "database refuses: add qos long: no permission"),
        (ANSWERED, {"rc": 137}, "it did not answer in time"),
    ],
)
def test_the_role_fails_with_what_the_machine_or_sacctmgr_has_said(told: Any, done: Any, why: str) -> None:
    found, _ = applied({**WANTS, "qos": [{"name": "long"}]}, told, done)

    assert found["failed"] is True
    assert why in found["msg"]
