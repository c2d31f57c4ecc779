"""What a plan folds away: which failures go with the mending of others. The checks are the judges' own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import test_judge_containers as engine
import test_judge_slurm_client as client
import test_judge_slurm_running as running

from provision.events.fold import RunReport
from provision.events.verdict import verdict
from provision.judge import causes, containers, ddp_ready, managed, rdma, road, slurm_image
from provision.model.checks import Check, Verdict, check_from
from provision.model.facts import facts_from
from provision.model.managed import Managed
from provision.model.places import Place
from provision.rdma.expected import majority
from provision.report.documents import run_document

_TEXT = hashlib.sha256(b"a\n").hexdigest()
FILE = {"kind": "file", "mode": "0644", "owner": "root", "group": "root", "sha256": _TEXT}
OTHER, MODE, ABSENT = {**FILE, "sha256": "0" * 64}, {**FILE, "mode": "0601"}, {"kind": "absent"}


def one(found: Iterable[Check], name: str, host: str) -> Check:
    """Return the check of this id, which fails, as one of this machine."""
    [check] = [check for check in found if check.id == name]
    assert check.verdict is Verdict.FAIL
    return replace(check, host=host)


def broken(name: str, host: str) -> Check:
    """Return the failure of a check of which no more counts than that."""
    return Check(name, host, Verdict.FAIL, observed="broken")


def files(role: str, host: str, found: Mapping[str, Mapping[str, str]], *removed: str) -> Check:
    """Return the check of a role's files: ``found`` by path, and ``removed``, which are still there."""
    wants = Managed(files=tuple(Place(path, mode="0644", text="a\n") for path in found), absent=removed)
    state = {**found, **dict.fromkeys(removed, FILE)}
    return one(managed.checks(road.generic(role, ("files",)), wants, {"paths": state}), f"{role}.files", host)


def packages(role: str, host: str, *names: str) -> Check:
    found = managed.checks(road.generic(role, ("packages",)), Managed(packages=names), {"packages": {}})
    return one(found, f"{role}.packages", host)


def of_adapters(host: str, *lacking: str) -> Check:
    """Return the check of what adapters need, whose judge is a role's own."""
    found = {"adapters": [], "devices": [], "lacking": lacking, "unloaded": [], "configured": {}}
    declared = {"ports": None, "rate": None, "link_layer": None}
    settings = {"wanted": "always", "declared": declared, "simulated": False, "ofed": {"kind": "none"}}
    return one(rdma.checks(found, majority([]), settings), "rdma.packages", host)


def daemon(host: str, **changes: Any) -> Check:
    """Return the check of a slurmd, whose image is still to be built; ``changes`` are its state."""
    found = engine.inspected("slurmd")
    found["State"].update(changes)
    told = engine.answer(found)
    return replace(containers.check(engine.SUBJECT, [replace(engine.SLURMD, image="")], told), host=host)


def configuration(*daemons: str) -> Check:
    """Return the check of daemons of the controller that run with another configuration."""
    facts = running.head(files=running.OTHER)
    facts["slurm"]["fetched"] = running.OTHER
    return one(running.judged(facts, *daemons).values(), "slurm_service.configuration", "head")


def training(name: str, host: str) -> Check:
    """Return a check of the proof's image, which is still to be built, on a machine that builds and runs jobs."""
    user = {"name": "a", "uid": 1, "gid": 1, "home": "/", "shell": "/bin/sh", "declared": False}
    image = {"reference": "", "name": "", "store": "/store", "unbuilt": ""}
    wants = {"user": user, "builds": True, "compute": True, **image}
    state = {"paths": {}, "packages": {}, "services": {}, "manager": {}, "users": {}}
    facts = facts_from({"state": state, "images": {"ddp": {"reference": "", "problem": "not built"}}})
    return one(ddp_ready.checks(facts, {**wants, "verify": False}), f"ddp_validation.{name}", host)


ENGINE = broken("engine.answers", "node1")
CERTIFICATE = broken("images.certificates", "head")
CONFIG = files("container_images", "head", {"/etc/docker/registry/config.yml": OTHER})
UNBUILT = one(
    slurm_image.checks(facts_from({"images": {"slurm": {"reference": "", "problem": "not built"}}}), {"base": ""}),
    "slurm_image.by_digest",
    "head",
)
CLIENT = one(client.judged(client.facts(), image="", name="").values(), "slurm_client.programs", "login1")
SCRIPT = "/var/lib/clusterctl/ddp/ddp_job.sh"

GONE_WITH = [
    (ENGINE, broken("slurm_service.containers", "node1")),
    (broken("slurm_database.answers", "head"), broken("slurm_accounts.users", "head")),
    (files("slurm_conf", "head", {}, "/etc/slurm/topology.conf"), configuration("slurmctld")),
    (files("slurm_conf", "head", {"/etc/slurm/gres.conf": ABSENT}), configuration("slurmctld")),
    (files("slurm_conf", "head", {"/etc/slurm/gres.conf": OTHER}), configuration("slurmctld")),
    (CONFIG, UNBUILT),
    (files("container_images", "head", {"/etc/docker/registry/config.yml": MODE}), training("image", "head")),
    (UNBUILT, CLIENT),
    (UNBUILT, daemon("node2")),
    (training("image", "head"), training("stored", "node1")),
    (training("image", "head"), files("ddp_validation", "node1", {SCRIPT: {**OTHER, "mode": "0601"}})),
    (CERTIFICATE, files("container_images", "node1", {"/etc/docker/certs.d/x/ca.crt": OTHER})),
    (packages("base_system", "node2", "dbus", "openssl"), packages("munge", "node2", "openssl")),
]


@pytest.mark.parametrize(("root", "check"), GONE_WITH, ids=lambda check: f"{check.id}@{check.host}")
def test_what_goes_with_the_mending_of_another_thing_names_it(root: Check, check: Check) -> None:
    expected = {(check.host, check.id): (f"{root.id}@{root.host}",)}

    assert causes.goes_with([root, check], "head") == expected
    assert causes.goes_with([check], "head") == {}
    # To a verdict both are failures.
    assert causes.follows([root, check], "head") == {}


@pytest.mark.parametrize(
    ("other", "check"),
    [
        (ENGINE, broken("slurm_service.containers", "node2")),
        (UNBUILT, daemon("node2", Paused=True)),
        (UNBUILT, broken("slurm_service.containers", "node2")),
        (files("container_images", "head", {"/etc/clusterctl": MODE}), UNBUILT),
        (files("container_images", "head", {"/etc/docker/registry/config.yml": ABSENT}), UNBUILT),
        (CERTIFICATE, files("container_images", "node1", {"/etc/docker/certs.d": ABSENT})),
        (CERTIFICATE, files("container_images", "head", {"/x/server.crt": ABSENT, "/x/ca.crt": OTHER})),
        (files("slurm_conf", "head", {"/etc/slurm/slurm.conf": MODE}), configuration("slurmctld")),
        (files("slurm_conf", "head", {"/etc/slurm/gres.conf": OTHER}), configuration("slurmctld", "slurmd")),
        (packages("base_system", "node2", "dbus"), packages("munge", "node2", "openssl")),
    ],
    ids=lambda check: f"{check.id}@{check.host}",
)
def test_what_is_merely_broken_too_is_put_down_to_nothing_else(other: Check, check: Check) -> None:
    assert (check.host, check.id) not in causes.goes_with([other, check], "head")


def test_a_package_that_several_roles_want_is_the_first_ones() -> None:
    first, second = (packages(role, "node1", "openssl") for role in ("base_system", "munge"))
    third = of_adapters("node1", "openssl")

    assert causes.goes_with([first, second, third], "head") == {
        ("node1", "munge.packages"): ("base_system.packages@node1",),
        ("node1", "rdma.packages"): ("base_system.packages@node1",),
    }


def test_only_the_root_of_what_goes_with_it_is_named() -> None:
    assert causes.goes_with([CONFIG, UNBUILT, CLIENT], "head") == {
        ("head", "slurm_image.by_digest"): ("container_images.files@head",),
        ("login1", "slurm_client.programs"): ("container_images.files@head",),
    }


def test_of_many_files_that_differ_each_counts_though_some_are_named() -> None:
    many = {f"/etc/{number}": MODE for number in range(9)}
    root = files("container_images", "head", {**many, "/etc/docker/registry/config.yml": OTHER})

    assert "config.yml" not in root.observed
    assert causes.goes_with([root, UNBUILT], "head")


def reworded(check: Check) -> Check:
    return replace(check, observed="one", expected="two; three", source="four", cause="five", fix="six")


def test_other_words_for_people_change_nothing_that_plan_or_verify_decide() -> None:
    pending = list(dict.fromkeys(check for pair in GONE_WITH for check in pair))
    killed = Check("run.ended", "", Verdict.UNKNOWN, observed="killed")
    owed = frozenset({("node1", "hardware.cpus"), ("head", "munge.key")})
    judged = verdict(RunReport(checks=[killed, *pending], owed=owed, rc=0, finished=True))
    again = replace(judged, checks=tuple(map(reworded, judged.checks)))

    assert len(causes.goes_with(pending, "head")) > 10
    assert causes.goes_with([*map(reworded, pending)], "head") == causes.goes_with(pending, "head")
    assert causes.follows(judged.checks, "head").keys() == {("node1", "hardware.cpus"), ("head", "munge.key")}
    assert causes.follows(again.checks, "head") == causes.follows(judged.checks, "head")
    assert judged.counts["never_ran"] == again.counts["never_ran"] == 2


def test_codes_come_through_ansible_and_are_in_no_document() -> None:
    pending = [check for pair in GONE_WITH for check in pair]
    report = RunReport(checks=pending, rc=0, finished=True)

    assert [check_from(check.as_dict()) for check in pending] == pending
    assert not any("details" in check for check in run_document("verify", 8, report, run={})["checks"])
    with pytest.raises(ValueError, match="explode"):
        check_from({"id": "a.b", "verdict": "fail", "details": [{"code": "explode", "thing": ""}]})
