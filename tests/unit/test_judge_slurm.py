"""Slurm's nodes, judged by their states, their devices by what slurmctld and slurmd each say, and the partitions."""

from __future__ import annotations

from typing import Any

import pytest
from machines import slurm_running
from slurm_worlds import (
    DEVICES,
    by_name,
    coded,
    container,
    controller,
    facts,
    machine,
    node,
    partition,
    verdicts,
    wants,
)

from provision.judge import slurm
from provision.judge.slurm_answers import settled, status
from provision.model.checks import Check


def state(*, own: str | None = None, reach: str = "", verifying: bool = True, **changes: Any) -> Check:
    """Return the check of node1's state."""
    said = controller([node(**changes)], reach=reach)
    return by_name(slurm.checks(facts(own, said), wants(verifying=verifying)))["node_state"]


def gres(own: str | None = None, slurmctld: str | None = None, **changes: Any) -> Check:
    """Return the check of node1's devices."""
    return by_name(slurm.checks(facts(own, slurmctld), wants(**changes)))["gres"]


@pytest.mark.parametrize("words", [["IDLE"], ["MIXED"], ["ALLOCATED", "COMPLETING"], ["IDLE", "PLANNED"], "IDLE"])
def test_a_node_that_takes_jobs_passes(words: Any) -> None:
    assert state(state=words).verdict == "pass"


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (["IDLE", "DRAIN"], "State=RESUME"),
        (["IDLE", "NOT_RESPONDING"], "docker logs"),
        (["DOWN"], "docker logs"),
        (["UNKNOWN"], "docker logs"),
        (["IDLE", "INVALID_REG"], "docker logs --tail 50 slurmctld"),
        (["MIXED", "MAINTENANCE"], "scontrol show node node1"),
        (["IDLE", "POWERING_UP"], "scontrol show node node1"),
        ("IDLE+DRAIN", "State=RESUME"),
        ("IDLE*", "docker logs"),
    ],
)
def test_a_flag_that_keeps_jobs_away_fails_although_the_base_state_is_good(words: Any, fix: str) -> None:
    check = state(state=words, reason="look at the fan")

    assert check.verdict == "fail"
    assert fix in check.fix
    assert "look at the fan" in check.observed


#: As slurmctld writes them, in Slurm 24.11.5; the first from a cluster's report (SlinkyProject/slurm-operator 205).
REASONS = {
    "gres/gpu GRES autodetected core affinity 0-15 on node n1 doesn't match socket boundaries. (Socket 0 is cores 0-31)"
    ". Consider setting SlurmdParameters=l3cache_as_socket (recommended)": ("sockets", "node_gpu_affinity=numa"),
    "gres/gpu GRES core specification 0-3 for node n1 doesn't match socket boundaries. (Socket 0 is cores 0-7)": (
        "sockets", "node_gpu_affinity=numa"),
    "gres/gpu count reported lower than configured (0 < 8)": ("devices", "node_gres"),
    "gres/gpu:a100 count too low (4 < 8)": ("devices", "slurmd -G"),
    "gres/gpu type (tesla_t4) reported but not configured": ("devices", "node_gres"),
    "Invalid GRES index (8 >= 8)": ("devices", "node_gres"),
    "gres/gpu count changed and jobs are using them (8 != 7)": ("in_use", "squeue -w node1"),
    "gres/gpu type changed and jobs are using them": ("in_use", "squeue -w node1"),
    "Low RealMemory (reported:128 < 100.00% of configured:256)": ("memory", "node_real_memory"),
    "Low socket*core*thread count, Low CPUs": ("cores", "node_threads_per_core"),
    "Low CPUs": ("cores", "node_cpus"),
    "Low TmpDisk": ("disk", "node_tmp_disk"),
    "CoreSpec differ": ("cores", "docker restart slurmd"),
    "Node unexpectedly rebooted": ("rebooted", "clusterctl provision slurm"),
    "reboot timed out": ("rebooted", "NodeName=node1 State=RESUME"),
    "ResumeTimeout reached": ("rebooted", "NodeName=node1 State=RESUME"),
    "Prolog error": ("program", "docker logs"),
    "Epilog error": ("program", "docker logs"),
    "Kill task failed": ("process", "dmesg"),
    "Not responding": ("silent", "docker logs"),
}  # fmt: skip


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("words", [["IDLE", "DRAIN", "INVALID_REG"], ["DOWN"], ["IDLE", "DRAIN"]])
def test_what_slurmctld_has_written_down_is_a_cause_with_a_fix_of_its_own(words: list[str], reason: str) -> None:
    code, fix = REASONS[reason]

    check = state(state=words, reason=reason, reason_set_by_user="slurm")

    assert [detail.code for detail in check.details] == [code]
    assert fix in check.fix
    assert "{" not in check.fix
    assert reason.split(".")[0] in check.cause


def test_a_node_that_is_better_now_is_taken_back_whatever_slurmctld_had_against_it() -> None:
    for reason, (code, _) in REASONS.items():
        if code in ("memory", "cores", "disk", "devices", "sockets") and not reason.startswith(("CoreSpec", "Invalid")):
            node = {"state": ["IDLE", "DRAIN"], "reason": reason, "reason_set_by_user": "slurm"}
            assert slurm_running.to_resume(node) is True, reason


def test_a_flag_that_nobody_knows_is_not_taken_for_harmless() -> None:
    assert state(state=["IDLE", "FROBNICATED"]).verdict == "fail"
    assert state(state=["FROBNICATED"]).verdict == "unknown"
    assert state(state=["IDLE", "DOWN"]).verdict == "unknown"


def test_a_reservation_is_a_warning_that_names_it() -> None:
    check = state(state=["IDLE", "RESERVED"], reservation="course")

    assert (check.verdict, check.cause) == ("warn", "a reservation keeps the node for others")


@pytest.mark.parametrize(
    ("words", "reservation", "verdict"),
    [
        (["IDLE", "RESERVED"], "clusterctl-new", "pass"),
        (["IDLE", "MAINTENANCE", "RESERVED"], "clusterctl-new", "pass"),
        (["IDLE", "RESERVED"], "course", "warn"),
        (["IDLE", "RESERVED", "DRAIN"], "clusterctl-new", "fail"),
    ],
)
def test_a_node_is_well_in_the_reservation_that_the_proof_uses(
    words: list[str], reservation: str, verdict: str
) -> None:
    said = controller([node(state=words, reservation=reservation)])
    found = slurm.checks(facts(machine(), said), wants(reservation="clusterctl-new"))

    assert by_name(found)["node_state"].verdict == verdict


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        (["IDLE", "DRAIN"], "warn"),
        (["MIXED", "MAINTENANCE"], "warn"),
        (["IDLE", "DRAIN", "INVALID_REG"], "fail"),
        (["IDLE", "DRAIN", "NOT_RESPONDING"], "fail"),
        (["DOWN", "DRAIN"], "fail"),
    ],
)
def test_a_node_that_an_administrator_has_drained_is_no_failure_of_provisioning(words: list[str], verdict: str) -> None:
    check = state(state=words, reason="bad fan", verifying=False)

    assert check.verdict == verdict
    assert "bad fan" in check.observed


def test_a_node_that_slurmctld_does_not_know_fails() -> None:
    assert state(name="node2").verdict == "fail"


def test_a_controller_that_is_away_costs_what_depends_on_it_and_nothing_else() -> None:
    found = by_name(slurm.checks(facts(slurmctld="", problem="ssh: connect to host head: timed out"), wants()))

    assert found["node_state"].verdict == found["gres"].verdict == "unknown"
    assert found["node_state"].observed == "the controller did not answer: ssh: connect to host head: timed out"
    assert found["gres"].observed.endswith("slurmd finds gpu:a40:4")


def test_a_missing_device_fails_also_while_the_controller_is_away() -> None:
    own = machine(devices=coded("Gres Name=gpu Type=A40 Count=3"))

    assert gres(own, "").verdict == "fail"


def test_a_paused_slurmd_is_the_cause_of_its_nodes_state() -> None:
    paused = machine(container(State={"Status": "paused", "Paused": True}), slurmd=coded("is paused", 1))

    check = state(own=paused, state=["IDLE", "NOT_RESPONDING"])

    assert (check.verdict, check.cause) == ("fail", "slurmd is paused")


@pytest.mark.parametrize(
    ("reach", "cause"),
    [
        ("node1 10.0.0.11 silent", "slurmd answers on its own machine, and the controller cannot connect to 10.0.0.11"),
        ("node1 10.0.0.11 refused", "(refused): a firewall or a route"),
        ("node1 10.9.9.9,10.0.0.11 open", "node1 leads to 10.9.9.9, the inventory says 10.0.0.11"),
        ("node1 - unreachable", "the controller finds no address for node1"),
        ("node2 10.9.9.9 silent", "slurmd does not answer slurmctld"),
        ("node1 $(reboot) open", "slurmd does not answer slurmctld"),
    ],
)
def test_a_firewall_and_a_wrong_address_have_causes_of_their_own(reach: str, cause: str) -> None:
    check = state(state=["IDLE", "NOT_RESPONDING"], reach=reach)

    assert check.verdict == "fail"
    assert cause in check.cause


def test_a_node_that_cannot_reach_slurmctld_is_told_apart_from_one_that_cannot_be_reached() -> None:
    away = machine(ping=coded("Slurmctld(primary) at head is DOWN", 1))

    check = state(own=away, state=["DOWN"], reason="Not responding", reach="node1 10.0.0.11 open")

    assert check.verdict == "unknown"
    assert check.cause.startswith("slurmctld does not answer the node: another munge key, or a firewall")


def test_a_drained_node_is_out_whatever_else_keeps_slurmctld_from_it() -> None:
    away = machine(ping=coded("Slurmctld(primary) at head is DOWN", 1))

    check = state(own=away, state=["DOWN", "DRAIN"], reason="bad fan", reach="node1 10.0.0.11 open")

    assert check.verdict == "fail"


@pytest.mark.parametrize(("verifying", "verdict"), [(False, "warn"), (True, "fail")])
def test_a_node_that_an_administrator_has_set_down_fails_no_provision_and_is_named(
    verifying: bool, verdict: str
) -> None:
    check = state(verifying=verifying, state=["DOWN"], reason="bad disk", reason_set_by_user="root")

    assert check.verdict == verdict
    assert check.cause == "root has set the node down: bad disk"
    assert check.fix.endswith("scontrol update NodeName=node1 State=RESUME")


def test_only_nodes_that_are_not_heard_are_looked_for() -> None:
    said = controller(
        [node(), node("node2", state=["IDLE", "NOT_RESPONDING"]), node("node3", state=["DOWN"], port="x")]
    )

    assert slurm.unheard(said, ["node1", "node2", "node3", "node4"]) == ["node2", "6818", "node3", "6818"]


def test_declared_configured_and_found_devices_agree() -> None:
    assert gres().verdict == "pass"


def test_a_missing_device_fails_and_all_three_counts_are_given() -> None:
    check = gres(machine(devices=coded("Gres Name=gpu Type=A40 Count=3")))

    assert (check.verdict, check.observed, check.expected) == (
        "fail", "slurmctld has gpu:a40:4, slurmd finds gpu:a40:3", "gpu:a40:4",
    )  # fmt: skip


@pytest.mark.parametrize(
    "own",
    [
        machine(container(State={"Status": "paused", "Paused": True}), slurmd=coded("is paused", 1), devices=""),
        machine(slurmd=coded("", 124), devices=""),
        machine(devices=coded("", 124)),
        machine(engine="code 124", containers=""),
        "",
    ],
)
@pytest.mark.parametrize("declared", ["gpu:A40:4", ""])
def test_a_slurmd_that_does_not_answer_accuses_no_hardware(own: str, declared: str) -> None:
    check = gres(own, controller([node(gres=declared)]), gres=declared)

    assert check.verdict == "unknown"
    assert check.cause == "slurmd does not answer"


def test_a_node_without_declared_devices_passes_only_without_any() -> None:
    assert gres(machine(devices=coded("")), controller([node(gres="")]), gres="").verdict == "pass"
    assert gres(gres="").verdict == "fail"


@pytest.mark.parametrize("printed", ["gpu:A40:many", "{{ 7 * 7 }}", "gpu:A40:99999999"])
def test_resources_that_are_none_are_unknown_with_what_was_printed(printed: str) -> None:
    check = gres(slurmctld=controller([node(gres=printed)]))

    assert check.verdict == "unknown"
    assert printed in check.observed


def test_simulated_devices_are_marked_so() -> None:
    assert gres(simulated=("gpu",)).simulated is True
    assert gres().simulated is False


@pytest.mark.parametrize("word", ["DOWN", "DRAIN", "INACTIVE"])
def test_a_partition_that_starts_no_jobs_is_the_controllers_failure_with_its_name(word: str) -> None:
    said = controller(partitions=[partition("batch", word), partition("gpu")])

    check = by_name(slurm.checks(facts(slurmctld=said), wants(host="head", daemons=("slurmctld",))))["partitions"]

    assert (check.verdict, check.observed) == ("fail", f"batch is {word}, declared UP")
    assert check.fix == "scontrol update PartitionName=batch State=UP"


def test_a_partition_in_its_declared_state_passes_and_a_missing_one_fails() -> None:
    said = facts(slurmctld=controller(partitions=[partition("batch", "INACTIVE")]))

    def judged(**declared: str) -> Check:
        return by_name(slurm.checks(said, wants(daemons=("slurmctld",), partitions=declared)))["partitions"]

    assert judged(batch="INACTIVE").verdict == "pass"
    assert judged(batch="INACTIVE", gpu="UP").observed == "gpu does not exist"


def test_a_partition_that_somebody_closed_is_no_failure_of_provisioning() -> None:
    said = facts(slurmctld=controller(partitions=[partition("batch", "DOWN")]))

    found = slurm.checks(said, wants(daemons=("slurmctld",), verifying=False))

    assert verdicts(found)["partitions"] == "warn"


@pytest.mark.parametrize(
    ("words", "worth_waiting"),
    [
        (["IDLE"], False),
        (["IDLE", "DRAIN"], False),
        (["UNKNOWN"], True),
        (["IDLE", "NOT_RESPONDING"], True),
        (["DOWN"], True),
        (["DOWN", "NOT_RESPONDING", "by root"], True),
        (["DOWN", "by slurm"], True),
        (["DOWN", "by root"], False),
    ],
)
def test_waiting_ends_when_the_nodes_are_up_or_out_for_a_reason(words: list[str], worth_waiting: bool) -> None:
    author = next((word.removeprefix("by ") for word in words if word.startswith("by ")), "")
    state = [word for word in words if not word.startswith("by ")]
    said = controller([node(state=state, reason="bad disk", reason_set_by_user=author)])

    assert settled(said, ["node1"]) is not worth_waiting
    assert settled(said, ["node2"]) is False


def test_status_is_the_same_shape_with_and_without_jobs() -> None:
    jobs = '{"jobs": [{"job_id": 3, "user_name": "ada", "job_state": ["RUNNING"], "nodes": "node1"}]}'

    found = status("warning: something\n" + controller(), jobs, "node1 10.0.0.1 refused\nnode9\n")

    assert found["nodes"][0] == {
        "name": "node1", "state": ["IDLE"], "cpus": 8, "gres": "gpu:A40:4(S:0-1)", "gres_used": "gpu:A40:0(IDX:N/A)",
        "reason": "", "reason_by": "", "reason_at": 0, "reservation": "", "connection": "refused",
    }  # fmt: skip
    assert (found["jobs"][0]["id"], found["jobs"][0]["user"], found["jobs"][0]["state"]) == (3, "ada", ["RUNNING"])
    assert status(controller(), "")["jobs"] == []


def test_a_node_that_slurmctld_does_not_hear_for_want_of_munge_waits_for_munge() -> None:
    own = machine(munge=coded("", 124), slurmd="", ping="")
    silent = controller([node(state=["IDLE", "NOT_RESPONDING"])])
    drained = controller([node(state=["IDLE", "NOT_RESPONDING", "DRAIN"])])

    found = by_name(slurm.checks(facts(own, silent), wants()))["node_state"]
    assert (found.verdict, found.cause) == ("unknown", "slurmd could not be asked: munged did not answer in time")
    assert by_name(slurm.checks(facts(own, drained), wants()))["node_state"].verdict == "fail"


def test_counted_resources_agree_however_slurm_prints_their_number() -> None:
    declared = "gpu:A40:4,nvme:3600G,link:lustre:no_consume:1"
    listed = f"Gres Name=nvme Count={3600 * 2**30} ID=1 Flags=CountOnly\nGres Name=link Type=lustre Count=1 ID=2"
    own = machine(devices=coded(f"{DEVICES}\n{listed}"))
    printed = "gpu:A40:4(S:0-1),nvme:3600G,link:lustre:no_consume:1"

    assert gres(own, controller([node(gres=printed)]), gres=declared).verdict == "pass"
    assert gres(own, controller([node(gres=printed.replace("3600G", "3600M"))]), gres=declared).verdict == "fail"
