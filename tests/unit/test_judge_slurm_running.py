"""What there is to do about the configuration that Slurm's daemons run with, and about nodes that are kept out."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from provision.judge import road, slurm_conf, slurm_image, slurm_running
from provision.model.checks import Verdict
from provision.model.facts import MachineFacts, facts_from

TEXTS = {"slurm.conf": "ClusterName=a\n", "gres.conf": ""}
SUMS = {name: sha256(text.encode()).hexdigest() for name, text in TEXTS.items()}
OTHER = {**SUMS, "slurm.conf": "0" * 64}
ANSWERS: dict[str, Any] = {"answered": True, "late": False, "problem": "", "current": True, "resume": []}
RUNNING = {"State": {"Running": True, "Paused": False, "Status": "running"}}


def head(files: dict[str, str] | None = None, found: dict[str, Any] | None = None, **answer: Any) -> MachineFacts:
    """What a controller answers."""
    told = {"slurmctld": RUNNING} if found is None else found
    state = {"paths": {}, "packages": {}, "services": {}, "manager": {}, "containers": {"found": told}}
    slurm = {"files": SUMS if files is None else files, "start": "", "slurmctld": {**ANSWERS, **answer}}
    return facts_from({"slurm": slurm, "state": state})


def node(fetched: dict[str, str], **more: Any) -> MachineFacts:
    return facts_from({"slurm": {"fetched": fetched, **more}})


def judged(facts: MachineFacts, *daemons: str, **other: Any) -> dict[str, Any]:
    wants = {"daemons": daemons, "node": "node1", "texts": TEXTS, "files": SUMS, "resume": [], **other}
    found = slurm_running.checks(facts, wants)
    assert [check.id for check in found] == list(slurm_running.SUBJECT.ids)
    return {check.id.rpartition(".")[2]: check for check in found}


def configuration(facts: MachineFacts, *daemons: str, **other: Any) -> tuple[Verdict, str]:
    check = judged(facts, *daemons, **other)["configuration"]
    return check.verdict, check.observed


@pytest.mark.parametrize(
    ("names", "verdict", "said"),
    [
        (True, Verdict.PASS, "known with their addresses"),
        (None, Verdict.PASS, "known with their addresses"),
        (False, Verdict.FAIL, "slurmctld has an outdated /etc/hosts"),
        ("False", Verdict.PASS, "known with their addresses"),
    ],
)
def test_machines_that_came_after_a_container_was_started_are_made_known_to_it(
    names: object, verdict: Verdict, said: str
) -> None:
    check = judged(head(found={"slurmctld": {**RUNNING, "names": names}}), "slurmctld")["names"]

    assert (check.verdict, check.observed) == (verdict, said)
    assert [str(one.kind) for one in check.consequences] == (["reconfigure"] if verdict is Verdict.FAIL else [])


def test_daemons_that_run_with_what_the_inventory_renders_pass() -> None:
    assert configuration(head(), "slurmctld")[0] is Verdict.PASS
    assert configuration(node(SUMS), "slurmd")[0] is Verdict.PASS


def test_a_file_that_the_inventory_renders_anew_is_a_change_for_every_daemon() -> None:
    # On the controller before it is written: the role that reloads runs where its own check fails.
    assert configuration(head(files=OTHER), "slurmctld") == (
        Verdict.FAIL, "slurmctld runs with another slurm.conf than the inventory renders",
    )  # fmt: skip
    assert configuration(node(OTHER), "slurmd", files=OTHER)[0] is Verdict.FAIL


def test_a_run_that_was_killed_between_writing_and_reloading_is_made_up_for() -> None:
    assert configuration(head(current=False), "slurmctld")[0] is Verdict.FAIL
    assert configuration(node(OTHER), "slurmd")[0] is Verdict.FAIL


def test_where_the_controller_is_not_in_scope_a_node_gets_what_the_controller_has() -> None:
    assert configuration(node(OTHER), "slurmd", texts={}, files=OTHER)[0] is Verdict.PASS
    assert configuration(node(SUMS), "slurmd", texts={}, files=OTHER)[0] is Verdict.FAIL


def test_a_file_that_the_controller_has_beside_ours_is_a_nodes_too_where_nothing_is_rendered() -> None:
    more = {**SUMS, "topology.conf": "1" * 64}

    assert "topology.conf" in configuration(node(SUMS), "slurmd", texts={}, files=more)[1]
    assert configuration(node(more), "slurmd", texts={}, files=more)[0] is Verdict.PASS


def test_a_file_that_is_about_to_be_removed_from_the_controller_is_not_waited_for_on_nodes() -> None:
    more = {**SUMS, "plugstack.conf": "1" * 64}

    assert configuration(node(SUMS), "slurmd", files=more)[0] is Verdict.PASS


def test_a_bare_node_is_acted_on_and_a_silent_controller_accuses_nobody() -> None:
    assert configuration(node({}), "slurmd") == (Verdict.FAIL, "slurmd has fetched no configuration")
    assert configuration(node(SUMS), "slurmd", files=None, texts={})[0] is Verdict.UNKNOWN


def test_a_slurmd_that_did_not_come_up_with_what_it_has_fetched_is_told_again() -> None:
    """It resumes with the configuration of before, and the files on its disk are the new ones."""
    check = judged(node(SUMS, taken_up=False), "slurmd")["configuration"]

    assert check.verdict is Verdict.FAIL
    assert check.observed.startswith("slurmd keeps the previous configuration")
    assert [(str(one.kind), one.of) for one in check.consequences] == [("reconfigure", "slurmd")]
    assert configuration(node(SUMS, taken_up=True), "slurmd")[0] is Verdict.PASS
    assert "did not come up" not in configuration(node(OTHER, taken_up=False), "slurmd")[1]


def test_sackd_is_told_of_what_changes_and_started_again_where_it_was_not_reached() -> None:
    new, old = {"slurm.conf": SUMS["slurm.conf"]}, {"slurm.conf": OTHER["slurm.conf"]}
    texts = {"slurm.conf": TEXTS["slurm.conf"]}

    def told(fetched: dict[str, str], files: dict[str, str] | None) -> tuple[Verdict, list[str]]:
        check = judged(node(fetched), "sackd", texts=texts, files=files)["configuration"]
        return check.verdict, [str(one.kind) for one in check.consequences]

    assert told(new, new) == (Verdict.PASS, [])
    assert told(old, old) == (Verdict.FAIL, ["reconfigure"])
    assert told(old, new) == (Verdict.FAIL, ["restart"])
    assert told({}, new) == (Verdict.FAIL, [])
    assert told(new, None) == (Verdict.UNKNOWN, [])


def test_slurmctld_that_refuses_is_acted_on_and_one_that_is_slow_is_not() -> None:
    refuses = head(answered=False, problem="Unable to contact slurm controller")

    assert configuration(refuses, "slurmctld")[0] is Verdict.FAIL
    assert "Unable to contact" in configuration(refuses, "slurmctld")[1]
    assert configuration(head(answered=False, late=True), "slurmctld")[0] is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"slurmctld": {"State": {"Running": True, "Paused": True}}}, "slurmctld is paused"),
        ({"slurmctld": {"State": {"Running": False, "Status": "exited"}}}, "slurmctld is exited"),
        ({}, "slurmctld does not exist"),
    ],
)
def test_a_container_that_does_not_run_is_that_checks_failure_and_no_second_one(
    found: dict[str, Any], said: str
) -> None:
    facts = head(found=found, answered=False, late=True)

    check = judged(facts, "slurmctld")["configuration"]

    assert (check.verdict, check.observed, check.unproven) == (Verdict.SKIP, said, True)


def test_a_node_that_slurmctld_keeps_out_for_nothing_comes_back() -> None:
    out = judged(node(SUMS), "slurmd", resume=["node1"])["registration"]

    assert out.verdict is Verdict.FAIL
    assert judged(node(SUMS), "slurmd", resume=["node2"])["registration"].verdict is Verdict.PASS
    assert judged(node(SUMS), "slurmd", resume=None)["registration"].verdict is Verdict.SKIP
    assert judged(head(), "slurmctld")["registration"].verdict is Verdict.SKIP


def test_a_machine_without_daemons_owes_nothing() -> None:
    assert {check.verdict for check in judged(facts_from({"slurm": {}})).values()} == {Verdict.SKIP}


def test_what_the_controller_says_goes_on_to_the_nodes() -> None:
    shared = road.handed_on(head(resume=["node1"]))["cluster_shared"]
    silent = facts_from(
        {"slurm": {"files": SUMS, "start": "", "slurmctld": {"answered": False, "late": True, "problem": ""}}}
    )

    assert shared["slurm"] == {"files": SUMS, "start": {}, "resume": ["node1"]}
    assert road.handed_on(silent)["cluster_shared"]["slurm"]["resume"] is None
    assert "slurm" not in road.handed_on(node(SUMS))["cluster_shared"]


def test_packages_that_a_machine_has_go_on_so_that_no_index_is_fetched_for_them() -> None:
    munge = {"version": "0.5.15", "held": False}
    state = {"paths": {}, "packages": {"munge": munge}, "services": {}, "manager": {}}
    before = {"cluster_machine": {"packages": ["docker.io"]}}

    assert road.handed_on(facts_from({"state": state}), before)["cluster_machine"]["packages"] == ["docker.io", "munge"]


@pytest.mark.parametrize(("kind", "has"), [("directory", True), ("absent", False), ("file", False)])
def test_whether_a_machine_has_a_directory_goes_on_to_what_its_containers_are_given(kind: str, has: bool) -> None:
    state = {"paths": {"/var/lib/sss/pipes": {"kind": kind}}, "packages": {}, "services": {}, "manager": {}}
    before = {"cluster_machine": {"hostname": "node1"}}

    told = road.handed_on(facts_from({"state": state}), before)

    assert told["cluster_machine"] == {"hostname": "node1", "sssd": has}


def test_a_cluster_whose_files_confine_nobody_says_so() -> None:
    for unconfined, verdict, unproven in (
        (None, "skip", False),
        ("node1 has cgroup v1", "skip", True),
        ("", "pass", False),
    ):
        (check,) = slurm_conf.checks({}, {"unconfined": unconfined})
        assert (check.verdict, check.unproven) == (verdict, unproven)


def test_slurms_image_is_judged_by_what_the_controller_says_of_its_recipe() -> None:
    known = "head:5000/clusterctl/slurm@sha256:" + "a" * 64
    for reference, problem, verdict in ((known, "", "pass"), ("", "not built", "fail")):
        facts = facts_from({"images": {"slurm": {"reference": reference, "problem": problem}}})
        _, check = slurm_image.checks(facts, {"base": ""})
        assert check.verdict == verdict
    assert slurm_image.checks({}, {"base": ""})[1].verdict is Verdict.UNKNOWN


def test_a_base_that_comes_from_outside_is_said_before_anything_is_changed_unless_the_site_names_it() -> None:
    told = {"reference": "", "problem": "not built", "base": "debian:trixie-slim"}
    facts = facts_from({"images": {"slurm": told}})

    assert slurm_image.checks(facts, {"base": ""})[0].verdict is Verdict.WARN
    assert slurm_image.checks(facts, {"base": "harbor.site/debian:{suite}-slim"})[0].verdict is Verdict.PASS
