"""What the proving jobs said, judged: on the right node, as the right user, one GPU, exit code 7, nothing left."""

from __future__ import annotations

from typing import Any

import pytest
from slurm_worlds import by_name, coded, container, controller, machine, node, partition, verdicts, wants

from provision.judge import jobs
from provision.judge.job_plan import Plan, plan
from provision.judge.jobs import JobFacts, said
from provision.model.checks import Check
from provision.slurm.admission import Submitter

GOOD = """node1| ran job=11 node=node1 uid=64031 gpus=0 opened=1 memlock=unlimited read=written seen=/home:65025,/data:7
node1|
node1| exit 7
node1| wrote node1
node1| ready job=12 container=clusterctl-verify-12
node1| srun: Force Terminated StepId=12.0
node1| gone after 2
node1| inside job=14 kept=yes uid=64031 rank=0
node1| contained 8
node10| ran job=13 node=node10 uid=64031 gpus=1 opened=1 memlock=unlimited
node10| exit 7
"""


def judged(
    text: str = GOOD,
    left: str = "looked",
    *,
    planned: dict[str, Any] | None = None,
    problem: str = "",
    own: str = "== directories\n/home 65025\n/data 7\n",
    cgroup_version: int = 2,
    **changes: Any,
) -> dict[str, Check]:
    """Return the checks of node1 by name."""
    found = JobFacts(text, problem, left, planned or {}, own)
    return by_name(jobs.checks(found, wants(**changes), cgroup_version=cgroup_version, uid=64031))


def test_jobs_that_do_as_they_should_pass() -> None:
    assert {name: str(check.verdict) for name, check in judged().items()} == dict.fromkeys(jobs.SUBJECT.names, "pass")


def test_one_node_is_not_taken_for_another_whose_name_begins_alike() -> None:
    assert said(GOOD, "node1")["job"] == "12"
    assert "job" not in said(GOOD, "node10")
    assert said(GOOD, "node") == said(GOOD, "node1|") == {}


def test_a_job_cannot_speak_for_another_node() -> None:
    forged = "node2| node1| ran job=1 node=node1 uid=64031 gpus=0 opened=1 memlock=unlimited\nnode2| exit 7\n"

    assert said(forged, "node1") == {}


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("node=node1 ", "node=node2 ", "run"),
        ("node=node1 uid=64031", "node=node1 uid=0", "run"),
        ("exit 7", "exit 0", "exit_code"),
        ("exit 7", "exit 1", "exit_code"),
        ("exit 7", "hung after 20", "exit_code"),
        ("gpus=0 ", "gpus=0,1 ", "gpu"),
        ("gpus=0 ", "gpus= ", "gpu"),
        ("gpus=0 ", "gpus=NoDevFiles ", "gpu"),
        ("opened=1", "opened=4", "gpu_isolation"),
        ("opened=1", "opened=0", "gpu_isolation"),
        ("memlock=unlimited", "memlock=64", "memlock"),
        ("gone after 2", "still COMPLETING None", "cancel"),
        ("kept=yes", "kept=no", "container"),
        ("rank=0", "rank=", "container"),
        ("kept=yes uid=64031", "kept=yes uid=0", "container"),
        ("contained 8", "contained 0", "container"),
        ("inside job=14 kept=yes uid=64031 rank=0", "srun: unrecognized option '--container-image=x'", "container"),
    ],
)
def test_each_deviation_turns_its_own_check_red(old: str, new: str, name: str) -> None:
    found = judged(GOOD.replace(old, new))

    assert {key for key, check in found.items() if check.verdict == "fail"} == {name}


def test_a_container_that_nobody_asked_for_or_that_no_image_is_for_is_not_proven() -> None:
    without = GOOD.replace("container=clusterctl-verify-12", "container=none")

    for check in (judged(without)["container"], judged(containers="pyxis")["container"]):
        assert (check.verdict, check.unproven) == ("skip", True)
    assert judged("\n".join(GOOD.splitlines()[:4]))["container"].verdict == "unknown"


def test_why_a_container_did_not_start_is_what_the_node_said() -> None:
    said = "container: node1: this node does not know --container-image yet, and nothing was started; tell somebody"
    check = judged(GOOD.replace("inside job=14 kept=yes uid=64031 rank=0", said))["container"]

    assert (check.verdict, check.observed) == ("fail", said)


def test_a_job_gets_at_least_the_locked_memory_that_the_role_sets() -> None:
    text = GOOD.replace("memlock=unlimited", "memlock=64")

    assert judged(text, memlock=65536)["memlock"].verdict == "pass"
    assert judged(text, memlock=65537)["memlock"].verdict == "fail"
    assert judged(GOOD.replace("memlock=unlimited", "memlock=lots"))["memlock"].verdict == "unknown"


def test_where_the_machine_allows_no_higher_limit_the_job_is_not_blamed_for_it() -> None:
    own = machine(container(HostConfig={"Ulimits": []}))

    assert judged(GOOD.replace("memlock=unlimited", "memlock=64"), own=own)["memlock"].verdict == "skip"


@pytest.mark.parametrize("line", ["process 4711 sleep 302", "container 12/storage/overlay-containers/ab/"])
def test_what_a_cancelled_job_leaves_is_named(line: str) -> None:
    check = judged(left=f"{line}\nlooked")["cancel"]

    assert (check.verdict, check.observed) == ("fail", line)


def test_nobody_having_looked_is_unknown() -> None:
    assert judged(left="")["cancel"].verdict == "unknown"


@pytest.mark.parametrize("kind", ["none", "failed"])
def test_without_a_container_the_promise_about_containers_is_not_proven(kind: str) -> None:
    found = judged(GOOD.replace("container=clusterctl-verify-12", f"container={kind}"))

    assert found["cancel"].verdict == "unknown"


def test_a_job_that_waits_its_turn_is_no_alarm_and_names_whom_it_waits_for() -> None:
    check = judged("node1| waits 9 PENDING Resources", planned={"holders": ["7 (ada)"]})["run"]

    assert (check.verdict, check.unproven) == ("skip", True)
    assert check.observed == "the job waits for 7 (ada): Resources"


@pytest.mark.parametrize(
    ("line", "verdict", "cause"),
    [
        ("waits 9 PENDING Resources", "unknown", "Slurm says Resources"),
        ("waits 9 PENDING PartitionDown", "unknown", "Slurm says PartitionDown"),
        ("waits 9 RUNNING None", "fail", "slurmctld started the job, and its program never began"),
        ("waits 0 ", "unknown", "Slurm says no reason"),
        ("srun: error: Unable to allocate resources: Invalid account", "fail", "Slurm refused the job"),
        (
            "srun: error: Task launch for StepId=5.0 failed on node node1: Communication connection failure",
            "fail",
            "the controller could not connect to slurmd: a firewall or a route between them, or slurmd ended",
        ),
        (
            "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
            "fail",
            "Slurm accepted the job, and the node did not start it",
        ),
        ('Try "srun --help" for more information', "fail", "srun ended before the job's program began"),
    ],
)
def test_busy_is_said_only_where_slurm_says_so_and_somebody_is_there(line: str, verdict: str, cause: str) -> None:
    found = judged(f"node1| {line}")

    assert (found["run"].verdict, found["run"].cause) == (verdict, cause)
    assert {str(check.verdict) for name, check in found.items() if name != "run"} == {"skip"}


def test_a_node_that_no_job_was_submitted_to_says_why() -> None:
    refused = judged("", planned={"refused": "the node is DOWN (bad fan)", "ordinary": False})["run"]
    busy = judged("", planned={"refused": "all its cores are in use by job 7 (ada)", "ordinary": True})["run"]
    away = judged("", problem="ssh: timed out")["run"]

    assert (refused.verdict, refused.cause) == ("unknown", "the node is DOWN (bad fan)")
    assert (busy.verdict, busy.unproven) == ("skip", True)
    assert (away.verdict, away.observed) == ("unknown", "no job was submitted: ssh: timed out")


@pytest.mark.parametrize(("version", "simulated"), [(1, ()), (2, ("gpu",))])
def test_isolation_that_cannot_be_tried_is_skipped_with_the_reason(version: int, simulated: tuple[str, ...]) -> None:
    check = judged(cgroup_version=version, simulated=simulated)["gpu_isolation"]

    assert (check.verdict, check.unproven, check.simulated) == ("skip", not simulated, bool(simulated))
    assert check.observed


def test_simulated_gpus_are_marked_so_and_a_node_without_gpus_is_asked_for_none() -> None:
    assert judged(simulated=("gpu",))["gpu"].simulated is True
    assert judged(gres="")["gpu"].observed == "the node declares no GPUs"
    assert judged(planned={"without_gpu": "all 4 GPUs are in use by job 7 (ada)"})["gpu"].unproven


def planned(nodes: list[Any], queue: str = "", partitions: list[Any] | None = None, **own: str) -> Plan:
    """Return the plan for the nodes of the list, in its order."""
    said = controller(nodes, [partition()] if partitions is None else partitions, queue=coded(queue))
    return plan(said, [entry["name"] for entry in nodes], Submitter(["slurmtest"]), own)


def test_only_nodes_that_take_jobs_are_asked_in_a_partition_that_is_open_to_the_user() -> None:
    found = planned(
        [
            node("node1", partitions=["closed", "staff", "gpu"]),
            node("node2", state=["IDLE", "DRAIN"], reason="bad fan", partitions=["gpu"]),
            node("node3", state=["MIXED"], partitions=["cpu"], gres=""),
            node("node4", partitions=[]),
            node("node5", partitions=["closed"]),
            node("node6", partitions=["staff", "paid"]),
            node("node7", state=["IDLE", "RESERVED"], reservation="course"),
        ],
        partitions=[
            partition("closed", "DRAIN"), partition("staff", groups="staff,root"), partition("paid", accounts="gold"),
            partition("gpu", groups="slurmtest"), partition("cpu"),
        ],
    )  # fmt: skip

    assert found.words == ["node1", "gpu", "gpu:1", "node3", "cpu", "-"]
    assert {name: (one.why, one.ordinary) for name, one in found.refused.items()} == {
        "node2": ("the node is IDLE+DRAIN (bad fan)", False),
        "node4": ("the node is in no partition", False),
        "node5": ("partition closed is DRAIN", False),
        "node6": ("the test user may not use partition staff (AllowGroups), paid (AllowAccounts)", True),
        "node7": ("the node is IDLE+RESERVED: course", True),
    }


def test_with_a_reservation_its_nodes_are_tried_and_those_of_others_are_not() -> None:
    nodes = [
        node(name, state=["IDLE", "RESERVED"], reservation=kept) for name, kept in (("node1", "mine"), ("node2", "x"))
    ]
    said = controller(nodes, [partition()])

    found = plan(said, ["node1", "node2"], Submitter(["slurmtest"], reservation="mine"), {})

    assert (found.words[0], list(found.refused)) == ("node1", ["node2"])


def test_a_full_node_is_not_waited_for_and_the_jobs_that_fill_it_are_named() -> None:
    found = planned(
        [node("node1", alloc_cpus=8), node("node2", alloc_memory=7990), node("node3", gres_used="gpu:A40:4(IDX:0-3)")],
        queue="7 ada RUNNING node[1,3]\n8_2 bob RUNNING node2\n9 eve RUNNING n[1-99999999]\n10 eve PENDING node1",
    )

    assert {name: (one.why, one.ordinary) for name, one in found.refused.items()} == {
        "node1": ("all its cores are in use by job 7 (ada)", True),
        "node2": ("all its memory are in use by job 8_2 (bob)", True),
    }
    assert found.words == ["node3", "batch", "-"]
    assert found.as_dict("node3")["without_gpu"] == "all 4 GPUs are in use by job 7 (ada)"


def test_a_node_that_is_full_of_nobodys_jobs_is_not_ordinary() -> None:
    assert planned([node(alloc_cpus=8)]).refused["node1"].ordinary is False


def test_nothing_is_submitted_where_slurmd_is_stopped_although_slurmctld_has_not_noticed() -> None:
    paused = machine(container(State={"Status": "paused", "Paused": True}))

    assert planned([node()], node1=paused).refused["node1"].why == "slurmd is paused"
    assert planned([node()], node1=machine()).words


def test_nothing_is_submitted_to_a_node_that_slurmctld_does_not_answer() -> None:
    """With another munge key on the controller, Slurm calls its nodes IDLE for minutes, and loses them by a job."""
    away = machine(ping=coded("Slurmctld(primary) at head is DOWN", 1))

    assert planned([node()], node1=away).refused["node1"].why.startswith("slurmctld does not answer the node")
    assert planned([node()], node1=machine()).refused == {}


def test_a_controller_that_is_away_refuses_all() -> None:
    found = plan("", ["node1"], Submitter(["slurmtest"]), {})

    assert found.words == []
    assert found.refused["node1"].why.startswith("the controller did not answer")
    assert (
        verdicts(jobs.checks(JobFacts("", planned=found.as_dict("node1")), wants(), cgroup_version=2, uid=1))["run"]
        == "unknown"
    )


@pytest.mark.parametrize(
    ("planned", "text", "why"),
    [
        ({}, "node1| ran job=11 node=node1 uid=1\n", ""),
        ({}, "", ""),
        ({"node1": {"refused": "job 4 (ann) uses it", "ordinary": True}}, "", ""),
        ({"node1": {"refused": "slurmd did not answer in time"}}, "", "slurmd did not answer in time"),
        ({"node1": {}}, "node1| srun: Job step aborted\n", "its own job did not run (job.run)"),
        # Slurm takes it for idle still, and the job that trains on it would wait for it to its end.
        ({"node2": {}}, "", "it was lost in this run"),
    ],
)
def test_a_node_whose_own_job_did_not_run_is_fit_for_no_other(planned: dict[str, Any], text: str, why: str) -> None:
    assert jobs.unfit(planned, text, "node1") == why


def test_a_home_that_is_read_from_both_sides_is_shared() -> None:
    def home(text: str, **changes: Any) -> tuple[str, str]:
        check = judged(text, **changes)["home"]
        return str(check.verdict), check.observed

    assert home(GOOD)[0] == "pass"
    assert home(GOOD.replace("read=written", "read=")) == (
        "fail", "the job does not read what was written on the submitting machine",
    )  # fmt: skip
    assert home(GOOD.replace("wrote node1", "wrote ")) == (
        "fail", "what the job wrote is not read on the submitting machine",
    )  # fmt: skip
    assert home(GOOD.replace("node1| wrote node1\n", ""))[0] == "unknown"
    assert home(GOOD, home="") == ("warn", "each machine has a home of its own")
    assert home(GOOD, home="alone")[0] == "skip"


def test_a_directory_that_is_another_one_in_jobs_is_named() -> None:
    def directories(text: str, **changes: Any) -> tuple[str, str]:
        check = judged(text, **{"directories": ("/home", "/data"), **changes})["directories"]
        return str(check.verdict), check.observed

    assert directories(GOOD) == ("pass", "2 as on the machine")
    assert directories(GOOD.replace("/data:7", "/data:8")) == ("fail", "/data is another one in jobs")
    assert directories(GOOD.replace(",/data:7", "")) == ("fail", "/data is not there in jobs")
    assert directories(GOOD.replace("/data:7", "/data:")) == ("fail", "/data is not there in jobs")
    assert directories(GOOD, own="== directories\n/home 65025\n") == (
        "unknown", "the machine did not say where /data is",
    )  # fmt: skip
    assert directories(GOOD, directories=())[0] == "skip"
