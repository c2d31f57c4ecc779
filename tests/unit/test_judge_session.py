"""A user's session: what prove-session printed, and what follows from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import slurm_worlds as worlds

from provision.judge.job_plan import foreign, submitter
from provision.judge.session import Wants, checks, targets
from provision.model.checks import Check
from provision.slurm.admission import Submitter

ASKED = [("batch", "node1", "gpu:1", "pair")]
BUSY = "srun: error: Unable to allocate resources: Requested nodes are busy"

#: What the script prints of a healthy cluster, by kind of line.
HEALTHY = {
    "step": "job=7 node=node1 uid=2000 umask=0027 mark=session-5",
    "exit": "5",
    "batch": "exit=6 output=here job=8 state=FAILED reason=NonZeroExitCode",
    "allocation": "node=node1 exit=4",
    "signal": "gone after 1",
    "first": "1763800000000000000 1763800002000000000",
    "second": "1763800000500000000 1763800002500000000",
    "accounted": "7|FAILED|5:0|grace|operations|short|batch|0|billing=1,cpu=1,gres/gpu=1,mem=64M,node=1",
}

ROW = HEALTHY["accounted"]


def judged(
    changes: Mapping[str, str | None] | None = None, *, accounting: bool = True, shared_home: bool = True, **more: Any
) -> dict[str, Check]:
    said = {key: text for key, text in {**HEALTHY, **(changes or {})}.items() if text is not None}
    printed = "session| mark session-5\n" + "".join(f"batch:node1| {key} {text}\n" for key, text in said.items())
    wants = Wants(
        2000,
        "grace",
        "operations",
        "short",
        accounting=accounting,
        shared_home=shared_home,
        login=more.get("login", False),
    )
    found = checks(more.get("printed", printed), more.get("problem", ""), more.get("asked", ASKED), wants)
    return {check.id.partition(".")[2]: check for check in found}


def test_a_healthy_session_passes_in_all() -> None:
    assert {name: str(check.verdict) for name, check in judged().items()} == dict.fromkeys(
        ("step", "batch", "allocation", "signal", "side_by_side", "accounting"), "pass"
    )


@pytest.mark.parametrize(
    ("name", "changes", "verdict", "words"),
    [
        ("step", {"step": HEALTHY["step"].replace("session-5", "")}, "fail", "mark none, not session-5"),
        ("step", {"step": HEALTHY["step"].replace("uid=2000", "uid=0")}, "fail", "uid 0, not 2000"),
        ("step", {"step": HEALTHY["step"].replace("0027", "0022")}, "fail", "umask 0022, not 0027"),
        ("step", {"step": HEALTHY["step"].replace("node1", "node2")}, "fail", "node node2, not node1"),
        ("step", {"exit": "0"}, "fail", "srun ended with 0, the program with 5"),
        ("step", {"step": None, "error": "srun: error: it broke"}, "fail", "node1 in batch: srun: error: it broke"),
        ("step", {"step": None, "error": BUSY}, "skip", "other jobs have what it needs"),
        ("batch", {"batch": "exit=0 output=here job=8 state=COMPLETED"}, "fail", "ended with 0"),
        ("batch", {"batch": "exit=6 output=away job=8 state=FAILED"}, "fail", "its output is not there"),
        ("batch", {"batch": "exit=124 output=away job=8 state=PENDING reason=Priority"}, "skip", "Priority"),
        ("batch", {"batch": "exit=1 reason=sbatch:_error:_no"}, "fail", "ended with 1"),
        ("batch", {"batch": None}, "unknown", "ended before that"),
        ("allocation", {"allocation": "node=node1 exit=0"}, "fail", "salloc ended with 0"),
        ("allocation", {"allocation": "srun: fatal: No command given to execute. exit=1"}, "fail", "on no node"),
        ("allocation", {"allocation": f"{BUSY} exit=1"}, "skip", "other jobs"),
        ("signal", {"signal": "the job is RUNNING after 20 s"}, "fail", "RUNNING after 20 s"),
        ("signal", {"signal": None}, "fail", "nothing was seen"),
        ("side_by_side", {"second": "1763800002100000000 1763800004100000000"}, "fail", "one after the other"),
        ("side_by_side", {"second": BUSY}, "fail", "one of two did not run"),
        ("side_by_side", {"second": BUSY, "held": "Resources"}, "fail", "busy (it waited: Resources)"),
        ("side_by_side", {"second": BUSY, "held": "QOSMaxMemoryPerUser"}, "fail", "(it waited: QOSMaxMemoryPerUser)"),
        ("side_by_side", {"second": BUSY, "held": "QOSMaxJobsPerUserLimit"}, "skip", "(QOSMaxJobsPerUserLimit)"),
        (
            "side_by_side",
            {"second": "1763800002100000000 1763800004100000000", "held": "AssocGrpCpuLimit"},
            "skip",
            "waited for a limit of the site (AssocGrpCpuLimit)",
        ),
        ("side_by_side", {"first": BUSY, "second": BUSY}, "skip", "other jobs"),
        # Somebody has begun a job there meanwhile.
        (
            "side_by_side",
            {"second": BUSY, "held": "Resources", "others": "1"},
            "skip",
            "one waited beside other jobs (Resources)",
        ),
        ("side_by_side", {"second": "srun: error: it broke", "others": "1"}, "fail", "one of two did not run"),
        ("accounting", {"accounted": ROW.replace("FAILED|5:0", "COMPLETED|0:0")}, "fail", "ExitCode 0:0, not 5:0"),
        ("accounting", {"accounted": ROW.replace("grace", "root")}, "fail", "User root, not grace"),
        ("accounting", {"accounted": ROW.replace("operations", "")}, "fail", "Account none, not operations"),
        ("accounting", {"accounted": ROW.replace("short", "normal")}, "fail", "QOS normal, not short"),
        ("accounting", {"accounted": ROW.replace("batch", "debug")}, "fail", "Partition debug, not batch"),
        ("accounting", {"accounted": ROW.replace("|0|", "||")}, "fail", "elapsed nothing"),
        ("accounting", {"accounted": ROW.replace("mem=64M", "mem=8G")}, "fail", "mem 8G, not 64M"),
        ("accounting", {"accounted": ROW.replace("gpu=1", "gpu=4")}, "fail", "gres/gpu 4, not 1"),
        ("accounting", {"accounted": ROW.replace("node=1", "node=2")}, "fail", "node 2, not 1"),
        ("accounting", {"accounted": ROW.replace("gres/gpu=1,", "")}, "pass", "job 7, as submitted"),
        ("accounting", {"accounted": ROW.replace("7|", "8|", 1)}, "fail", "job 7 is not there"),
        (
            "accounting",
            {"accounted": "sacct: error: slurm_persist_conn_open_without_init"},
            "fail",
            "job 7 is not there",
        ),
        ("accounting", {"accounted": None}, "fail", "job 7 is not there"),
    ],
)
def test_each_fault_is_told_by_its_own_check(
    name: str, changes: Mapping[str, str | None], verdict: str, words: str
) -> None:
    check = judged(changes)[name]

    assert str(check.verdict) == verdict, check.sentence
    assert words in check.observed


def test_without_a_shared_home_the_output_on_the_node_is_a_warning() -> None:
    check = judged({"batch": "exit=6 output=away job=8 state=FAILED"}, shared_home=False)["batch"]

    assert (str(check.verdict), "cluster_mounts" in check.fix) == ("warn", True)


def test_on_a_login_host_it_is_shown_what_depends_on_where_one_is() -> None:
    found = judged({"first": None, "second": None, "accounted": None}, login=True)

    assert {name: (str(check.verdict), check.unproven) for name, check in found.items()} == {
        **dict.fromkeys(("step", "batch", "allocation", "signal"), ("pass", False)),
        **dict.fromkeys(("side_by_side", "accounting"), ("skip", False)),
    }
    assert str(judged({"exit": "1"}, login=True)["step"].verdict) == "fail"


def test_without_accounting_nothing_is_asked_of_it() -> None:
    check = judged({"accounted": None}, accounting=False)["accounting"]

    assert (str(check.verdict), check.unproven) == ("skip", False)


def test_a_controller_without_commands_owes_no_session() -> None:
    found = checks("", "", ASKED, Wants(2000, installed=False))

    assert {(str(check.verdict), check.unproven) for check in found} == {("skip", False)}


def test_a_silent_controller_leaves_all_unknown_and_a_full_cluster_all_unproven() -> None:
    silent, full = judged(printed="", problem="timed out"), judged(asked=[])

    assert {str(check.verdict) for check in silent.values()} == {"unknown"}
    assert {(str(check.verdict), check.unproven) for check in full.values()} == {("skip", True)}


def test_a_step_that_is_wrong_on_one_kind_of_node_names_it() -> None:
    asked = [*ASKED, ("debug", "node9", "-", "alone")]

    check = judged(asked=asked)["step"]

    assert check.observed == "node9 in debug: nothing ran"


@pytest.mark.parametrize(
    ("second", "verdict", "words"),
    [
        ("1763800000500000000 1763800002500000000", "pass", "at the same time on node1 in batch, node9 in debug"),
        ("1763800002100000000 1763800004100000000", "fail", "node9 in debug: one after the other"),
        ("srun: error: it broke", "fail", "node9 in debug: one of two did not run: srun: error: it broke"),
    ],
)
def test_two_jobs_are_seen_side_by_side_on_each_kind_of_node_in_each_partition(
    second: str, verdict: str, words: str
) -> None:
    said = "session| mark session-5\n" + "".join(f"batch:node1| {kind} {HEALTHY[kind]}\n" for kind in HEALTHY)
    said += f"debug:node9| first {HEALTHY['first']}\ndebug:node9| second {second}\n"

    check = judged(printed=said, asked=[*ASKED, ("debug", "node9", "-", "pair")])["side_by_side"]

    assert (str(check.verdict), check.observed) == (verdict, words)


SILENT = "srun: error: Unable to allocate resources: Unable to contact slurm controller (connect failure)"


@pytest.mark.parametrize(
    "changes",
    [
        {"step": None, "error": SILENT, "batch": f"exit=1 reason={SILENT.replace(' ', '_')}", "signal": SILENT},
        {"signal": SILENT, "first": SILENT, "second": SILENT, "accounted": None},
    ],
)
def test_a_session_whose_controller_falls_silent_accuses_nobody(changes: dict[str, str | None]) -> None:
    found = judged(changes)

    verdicts = {str(check.verdict) for check in found.values()}
    assert verdicts <= {"pass", "skip", "unknown"}
    assert found["signal"].observed == "slurmctld did not answer: Unable to contact slurm controller"
    assert "scontrol ping" in found["signal"].fix


def test_a_kind_of_node_that_has_no_room_for_two_is_not_proven_and_named() -> None:
    check = judged(asked=[*ASKED, ("debug", "node9", "-", "alone")])["side_by_side"]

    assert (str(check.verdict), check.unproven) == ("skip", True)
    assert check.observed == "node9 in debug has less than two idle cores"


def test_where_a_job_has_the_whole_node_two_at_a_time_are_not_expected() -> None:
    check = judged(asked=[*ASKED, ("debug", "node9", "-", "exclusive")])["side_by_side"]

    assert (str(check.verdict), check.unproven) == ("skip", True)
    assert check.observed == "node9 in debug: a job there has the whole node (OverSubscribe, SelectType)"


def controller(nodes: list[dict[str, Any]], partitions: list[dict[str, Any]]) -> str:
    return worlds.joined(
        {
            "nodes": worlds.coded(json.dumps({"nodes": nodes})),
            "partitions": worlds.coded(json.dumps({"partitions": partitions})),
        }
    )


def test_each_kind_of_node_is_tried_once_in_each_partition_that_the_user_may_use() -> None:
    both = {"partitions": ["batch", "long"]}
    nodes = [
        worlds.node("node1", **both),
        worlds.node("node2", **both),
        worlds.node("node3", gres="", gres_used="", cpus=2, threads=2, **both),
        worlds.node("node4", partitions=["closed"]),
    ]
    partitions = [worlds.partition(), worlds.partition("long"), worlds.partition("closed", groups="others")]

    found = targets(controller(nodes, partitions), ["node1", "node2", "node3", "node4"], Submitter(["testers"]))

    assert found == [
        ("batch", "node1", "gpu:1", "pair"),
        ("long", "node1", "gpu:1", "pair"),
        ("batch", "node3", "-", "alone"),
        ("long", "node3", "-", "alone"),
    ]


def test_no_pair_is_tried_where_a_site_gives_whole_nodes_to_jobs() -> None:
    node, who = worlds.node("node1", partitions=["batch", "whole"]), Submitter(["x"])
    said = controller([node], [worlds.partition(), worlds.partition("whole", oversubscribe=0)])

    def fits(said: str) -> list[tuple[str, str]]:
        return [(partition, word) for partition, _, _, word in targets(said, ["node1"], who)]

    def configured(plugin: str) -> str:
        return said + worlds.joined({"config": worlds.coded(f"SelectType              = select/{plugin}\n")})

    assert fits(said) == fits(configured("cons_tres")) == [("batch", "pair"), ("whole", "exclusive")]
    assert fits(configured("linear")) == [("batch", "exclusive"), ("whole", "exclusive")]


#: What a partition says of who may use it, and whether the proof does: in account test, below physics, with QOS short.
RULES: list[tuple[dict[str, str], bool]] = [
    ({"accounts": "gold,test"}, True),
    ({"accounts": "physics"}, True),
    ({"accounts": "gold"}, False),
    ({"accounts": "test", "no_accounts": "test"}, True),
    ({"no_accounts": "test"}, False),
    ({"no_accounts": "physics,gold"}, False),
    ({"no_accounts": "gold"}, True),
    ({"qos": "short"}, True),
    ({"qos": "normal,long"}, False),
    ({"no_qos": "SHORT"}, False),
    ({"no_qos": "long"}, True),
    ({"qos": "ALL", "accounts": "ALL", "groups": "ALL", "hosts": "ALL"}, True),
    ({"groups": "testers,staff"}, True),
    ({"groups": "staff"}, False),
    ({"hosts": "login[1-2],head"}, True),
    ({"hosts": "login[1-2]"}, False),
]


@pytest.mark.parametrize(("rules", "admitted"), RULES)
def test_a_partition_is_tried_where_it_is_for_the_user_and_the_account_and_the_qos(
    rules: dict[str, str], admitted: bool
) -> None:
    said = controller([worlds.node("node1")], [worlds.partition(**rules)])
    who = Submitter(["testers"], ("test", "physics", "root"), "short", host="head")

    assert targets(said, ["node1"], who) == ([("batch", "node1", "gpu:1", "pair")] if admitted else [])
    assert (foreign(said, who) == {}) is admitted


def test_accounts_keep_nobody_out_where_slurmctld_does_not_look_at_them() -> None:
    rules = worlds.coded(json.dumps({"partitions": [worlds.partition(accounts="gold")]}))
    who = Submitter(["x"], ("test",))

    for value, out in (("none", {}), ("nosteps", {}), ("associations,limits", {"batch": "AllowAccounts"})):
        config = worlds.coded(f"AccountingStorageEnforce = {value}")
        said = worlds.joined({"partitions": rules, "config": config})
        assert foreign(said, submitter(said, who)) == out
    unsaid = worlds.joined({"partitions": rules})
    assert foreign(unsaid, submitter(unsaid, who)) == {"batch": "AllowAccounts"}


def test_a_node_whose_gpus_are_all_in_use_is_tried_without() -> None:
    node = worlds.node("node1", gres_used="gpu:A40:4(IDX:0-3)", cpus=8, alloc_cpus=7)

    assert targets(controller([node], [worlds.partition()]), ["node1"], Submitter(["x"])) == [
        ("batch", "node1", "-", "alone")
    ]
