"""What a run owes, and what rests on what: no check can be missing, and no consequence hides its cause."""

from __future__ import annotations

import importlib
import io
import pkgutil
from collections.abc import Sequence

import pytest
import yaml

from provision import content, judge
from provision.events.fold import RunReport
from provision.events.verdict import NEVER_RAN, verdict
from provision.judge import (
    base_system,
    causes,
    cluster_users,
    ddp_ready,
    driver,
    engine,
    gpu_containers,
    gpu_stage,
    gpudirect,
    images,
    job_docker,
    job_images,
    manifest,
    mig,
    monitoring,
    munge,
    nfs_server,
    rdma,
    road,
    shared_storage,
    slurm_accounts,
    slurm_client,
    slurm_conf,
    slurm_database,
    slurm_image,
    slurm_running,
    toolkit,
    users_before,
)
from provision.model.checks import Check, Subject, Verdict
from provision.report.checks import show_checks
from provision.report.documents import run_document
from provision.report.summary import Printer

GROUPS = {
    "slurm_controller": ("head",), "slurm_compute": ("node1", "node2"), "slurm_login": ("login1",),
    "slurm_database": ("db1",), "nfs_server": ("files1",), "monitoring": ("watch1",),
}  # fmt: skip

OWED = {command: manifest.owed(command, GROUPS) for command in ("verify", "preflight")}


def subjects() -> list[tuple[str, Subject]]:
    """Return each module's subject in provision/judge."""
    found = []
    for module in pkgutil.iter_modules(judge.__path__):
        subject = getattr(importlib.import_module(f"provision.judge.{module.name}"), "SUBJECT", None)
        if isinstance(subject, Subject):
            found.append((module.name, subject))
    return found


@pytest.mark.parametrize(("module", "subject"), subjects(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_check_of_every_subject_is_owed_by_some_machine(module: str, subject: Subject) -> None:
    owed = {name for ids in OWED.values() for _, name in ids}

    assert set(subject.ids) <= owed, f"provision/judge/{module}.py is not in the manifest"


#: What the own judge of each role says; tests/unit/test_judges_whole.py has each give all of it.
OF_ROLES: dict[str, tuple[Subject, ...]] = {
    "base_system": (base_system.SUBJECT,),
    "nfs_server": (nfs_server.SUBJECT,),
    "shared_storage": (shared_storage.BEFORE, shared_storage.SUBJECT),
    "cluster_users": (users_before.SUBJECT, cluster_users.SUBJECT),
    "container_engine": (engine.BEFORE, engine.SUBJECT),
    "container_images": (images.SUBJECT,),
    "job_docker": (job_docker.BEFORE, job_docker.SUBJECT),
    "nvidia_driver": (driver.SUBJECT, driver.BEFORE, gpu_stage.PLANNED),
    "nvidia_mig": (mig.SUBJECT,),
    "cuda_toolkit": (toolkit.SUBJECT,),
    "nvidia_containers": (gpu_containers.SUBJECT,),
    "rdma_userspace": (rdma.SUBJECT,),
    "gpudirect_rdma": (gpudirect.SUBJECT,),
    "munge": (munge.MACHINE,),
    "slurm_image": (slurm_image.BEFORE, slurm_image.SUBJECT),
    "slurm_database": (slurm_database.SUBJECT,),
    "slurm_accounts": (slurm_accounts.SUBJECT,),
    "slurm_conf": (slurm_conf.SUBJECT,),
    "slurm_client": (slurm_client.SUBJECT,),
    "slurm_service": (slurm_running.SUBJECT,),
    "job_images": (job_images.BEFORE, job_images.SUBJECT),
    "ddp_validation": (ddp_ready.BEFORE, ddp_ready.SUBJECT),
    "machine_metrics": (monitoring.EXPORTERS,),
    "monitoring": (monitoring.SUBJECT,),
}


def test_verify_owes_every_check_on_which_provision_acts_and_that_plan_tells() -> None:
    assert OF_ROLES.keys() == {name for name, role in road.ROLES.items() if not role.refuses}
    for name, own in OF_ROLES.items():
        role = road.ROLES[name]
        # The driver's role asks the controller, too; it acts on compute nodes alone.
        of = {"nvidia_driver": ("slurm_compute",)}.get(name, role.groups or tuple(GROUPS))
        acted_on = {
            (host, check)
            for subject in (road.generic(name, role.kinds), *own)
            for check in subject.ids
            for group in of
            for host in GROUPS[group]
        }
        assert acted_on - OWED["verify"] == set(), name


def test_verify_observes_what_provision_observes() -> None:
    observed = yaml.safe_load(content.playbook("verify").read_text(encoding="utf-8"))[0]["vars"]["__stage_roles"]

    assert set(observed) == OF_ROLES.keys()


def whole(command: str) -> list[Check]:
    return [Check(name, host, Verdict.PASS) for host, name in sorted(OWED[command])]


@pytest.mark.parametrize("command", ["verify", "preflight"])
def test_a_check_that_one_judge_leaves_out_is_named_as_one_that_never_ran(command: str) -> None:
    checks = whole(command)
    assert verdict(RunReport(checks=checks, owed=OWED[command], rc=0, finished=True)).word is Verdict.PASS

    for number, left_out in enumerate(checks):
        rest = [*checks[:number], *checks[number + 1 :]]
        found = verdict(RunReport(checks=rest, owed=OWED[command], rc=0, finished=True))

        assert found.word is Verdict.UNKNOWN
        assert [(c.host, c.id, c.observed) for c in found.checks if not c.ok] == [
            (left_out.host, left_out.id, NEVER_RAN)
        ]


def test_every_machine_of_every_group_is_verified() -> None:
    for group, hosts in GROUPS.items():
        for host in hosts:
            owed = {name for owner, name in OWED["verify"] if owner == host}
            assert "access.ready" in owed
            assert any(name.startswith("base_system.") for name in owed), group


def test_nobody_owes_figures_where_nobody_reads_them() -> None:
    owed = manifest.owed("verify", {**GROUPS, "monitoring": ()})

    assert not [name for _, name in owed if name.startswith(("monitoring.", "machine_metrics."))]


def test_a_limited_run_owes_for_its_machines_only() -> None:
    owed = manifest.owed("verify", {"slurm_controller": (), "slurm_compute": ("node1",)})

    assert {host for host, _ in owed} == {"node1", ""}


def test_no_check_rests_on_itself_by_any_way() -> None:
    owed = {name for ids in OWED.values() for _, name in ids}

    def above(name: str) -> set[str]:
        return {
            other for start, _ in causes.rests_on(name) for other in owed if other.startswith(start) and other != name
        }

    for name in owed:
        seen: set[str] = set()
        ways = above(name)
        while ways:
            seen |= ways
            ways = {further for other in ways for further in above(other)} - seen
        assert name not in seen


def shown(checks: Sequence[Check]) -> list[str]:
    stream = io.StringIO()
    show_checks(Printer(stream), checks, follows=causes.follows(checks, "head"))
    return stream.getvalue().splitlines()


MUNGE = Check("munge.same_key", "node2", Verdict.FAIL, observed="another key", cause="the key differs")
DDP = [Check(f"ddp.{name}", "head", Verdict.UNKNOWN, observed="see ddp.result") for name in "abcdefghij"]
RESULT = Check("ddp.result", "head", Verdict.UNKNOWN, observed="job 7 PENDING")


def test_a_job_that_did_not_start_stands_below_the_machine_whose_munge_failed() -> None:
    told = shown([*DDP, RESULT, MUNGE])

    assert told[0].startswith("fail")
    assert "munge.same_key" in told[0]
    [line] = [line for line in told if "ddp" in line]
    assert "11 not decided, because munge.same_key (node2) did not pass: 11 ddp checks (head)" in line


@pytest.mark.parametrize("name", ["access.port", "engine.answers", "munge.same_key"])
def test_what_a_controller_keeps_nodes_from_stands_below_the_controller(name: str) -> None:
    odd = Check(name, "head", Verdict.FAIL, observed="another key")
    rest = [Check(one, "node1", Verdict.UNKNOWN, observed="no answer") for one in ("slurm.answers", "job.run")]

    assert causes.follows([odd, *rest], "head") == {(one.host, one.id): (f"{name}@head",) for one in rest}


@pytest.mark.parametrize("odd", ["head", "node1"])
def test_a_key_that_is_not_the_controllers_stands_below_the_machine_whose_key_is_odd(odd: str) -> None:
    own = Check("munge.same_key", odd, Verdict.FAIL, observed="another key than 2 of 3 machines")
    compared = Check("munge.key", "node1", Verdict.UNKNOWN, observed="another key than the controller's")

    assert causes.follows([own, compared], "head") == {("node1", "munge.key"): (f"munge.same_key@{odd}",)}


@pytest.mark.parametrize(
    ("lost", "name"),
    [("head", "job.run"), ("head", "container_images.files"), ("head", "munge.same_key"), ("node1", "slurm.answers")],
)
def test_what_a_machine_that_was_lost_on_the_way_leaves_open_stands_below_it(lost: str, name: str) -> None:
    gone = Check("slurm_service.unreachable", lost, Verdict.UNKNOWN, observed="Data could not be sent")
    left = Check(name, "node1", Verdict.UNKNOWN, observed="no answer")

    assert causes.follows([gone, left], "head") == {("node1", name): (f"slurm_service.unreachable@{lost}",)}


def test_a_controller_that_was_lost_on_the_way_is_named_by_the_question_that_it_did_not_answer() -> None:
    answer = {"changed": False, "asked": "head", "unreached": "Data could not be sent"}
    event = {"host": "node1", "task": "Ask", "role": "slurm_service", "res": answer}
    report = RunReport(rc=0, began=True, finished=True)
    left_out = RunReport(rc=0, began=True, finished=True, left_out={"head"})
    for one in (report, left_out):
        one.add({"event": "runner_on_ok", "event_data": {**event, "resolved_action": "delegated_answer"}})

    assert [(check.host, check.id) for check in verdict(report).checks] == [("head", "slurm_service.unreachable")]
    assert verdict(left_out).checks == ()  # the probe has said so


def test_ten_lines_that_point_to_the_job_are_one() -> None:
    told = shown([*DDP, RESULT])

    assert ["ddp.result" in line and "PENDING" in line for line in told if line.startswith("unknown")] == [True, False]
    assert "10 not decided, because ddp.result (head) did not pass" in told[1]


def test_a_fail_with_evidence_of_its_own_is_never_put_below_another() -> None:
    failed = Check("slurm.daemons", "node2", Verdict.FAIL, observed="slurmd exited")

    assert causes.follows([MUNGE, failed], "head") == {}


def test_a_registry_that_a_node_cannot_reach_is_the_controllers_only_where_that_is_silent() -> None:
    registry = Check("images.registry_answers", "node1", Verdict.FAIL, observed="it did not answer in 10 s")
    gone = Check("verify.unreachable", "head", Verdict.UNKNOWN, observed="Data could not be sent")

    assert causes.follows([registry], "head") == {}
    assert causes.follows([registry, gone], "head") == {
        ("node1", "images.registry_answers"): ("verify.unreachable@head",)
    }


def test_what_has_no_cause_in_the_table_stands_for_itself() -> None:
    clock = Check("munge.clock", "node1", Verdict.UNKNOWN, observed="no answer")
    packages = Check("base_system.packages", "node2", Verdict.UNKNOWN, observed="no answer")

    assert causes.follows([MUNGE, clock, packages], "head") == {}


def never_ran(*owed: tuple[str, str]) -> list[Check]:
    return list(verdict(RunReport(owed=frozenset(owed), rc=0, finished=True)).checks)


def test_what_never_ran_stands_below_what_ended_the_run_or_the_machine() -> None:
    killed = Check("run.ended", "", Verdict.UNKNOWN, observed="killed")
    broken = Check("munge.failed", "node1", Verdict.UNKNOWN, observed="exploded")
    rest = never_ran(("node1", "hardware.cpus"), ("node2", "hardware.cpus"))

    assert causes.follows([killed, *rest], "head") == {
        ("node1", "hardware.cpus"): ("run.ended",), ("node2", "hardware.cpus"): ("run.ended",)
    }  # fmt: skip
    assert causes.follows([broken, *rest], "head") == {("node1", "hardware.cpus"): ("munge.failed@node1",)}


def test_a_machine_that_cannot_be_entered_is_why_its_checks_never_ran() -> None:
    port = Check("access.port", "node1", Verdict.FAIL, observed="refuses connections")
    report = RunReport(rc=0, finished=True, owed=manifest.owed("verify", {"slurm_compute": ("node1", "node2")}))
    report.checks = [
        Check(name, host, Verdict.PASS) for host, name in report.owed if host != "node1" and not name.startswith("ddp.")
    ]
    report.add_access([port])

    told = shown(verdict(report).checks)

    assert told[0].startswith("fail")
    assert "access.port" in told[0]
    assert len([line for line in told if line.startswith("unknown")]) == 1


def test_the_document_keeps_every_check_and_names_what_it_follows() -> None:
    report = RunReport(checks=[*DDP, RESULT, MUNGE], rc=2, finished=True, failures={})
    found = verdict(report)
    folded = type(found)(found.word, found.checks, follows=causes.follows(found.checks, "head"))

    document = run_document("verify", 8, report, run={}, judgement=folded)

    follows = {check["id"]: check["follows"] for check in document["checks"]}
    assert follows["ddp.a"] == ["munge.same_key@node2"]
    assert follows["munge.same_key"] == []


def test_four_hundred_machines_that_never_answered_are_folded_in_a_second() -> None:
    hosts = [f"node{number}" for number in range(400)]
    checks = [Check("access.port", host, Verdict.FAIL) for host in hosts]
    checks += never_ran(*((host, f"hardware.h{number}") for host in hosts for number in range(60)))

    assert len(causes.follows(checks, "head")) == 24_000
