"""How a daemon has to run rests on slurm.conf: the inventory's, or the controller's where a run is not about that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import declare
import pytest
from machines import plugin
from managed_things import on_machines

from provision.judge import road
from provision.model.facts import facts_from
from provision.model.managed import Container, container

INVENTORY = """
[slurm_controller]
head
[slurm_compute]
node1
[slurm_login]
login1
[all:vars]
cluster_name=c
slurm_service_image=head:5000/clusterctl/slurm@sha256:aa
"""


def said(start: str) -> dict[str, Any]:
    """Return what a controller says of itself to others, with these lines in its slurm.conf; nothing of none."""
    slurm = {"files": {}, "start": start, "slurmctld": {"answered": False, "late": False, "problem": ""}}
    shared: dict[str, Any] = road.handed_on(facts_from({"slurm": slurm}))["cluster_shared"] if start else {}
    return shared


def rendered(**site: Any) -> dict[str, Any]:
    """Return what of its configuration an inventory says about the daemons' starts, as roles are told it."""
    groups, hostvars = declare.inventory(**site)
    (told,) = (
        plugin("plugins/lookup/declared.py").LookupModule().run(["at_start"], {"groups": groups, "hostvars": hostvars})
    )
    start: dict[str, Any] = told
    return start


def daemons(tmp_path: Path, shared: dict[str, Any], start: dict[str, Any] | None = None) -> dict[str, Container]:
    """Return the daemons of all machines where the controller has said this of itself, or nothing.

    With ``start`` the run is about the controller, too, and that is what the inventory says.
    """
    file = tmp_path / "inventory.ini"
    file.write_text(INVENTORY, encoding="utf-8")
    found = {}
    for _, constants, templar in on_machines(file):
        known = {"cluster_controller_shared": shared}
        if start is not None:
            groups = {**templar.available_variables["groups"], "observed_slurm_conf": ["head"]}
            known |= {"cluster_slurm_start": start, "groups": groups}
        templar.available_variables = {**templar.available_variables, **known}
        for entry in constants["__slurm_service_managed"]["containers"]:
            if templar.template(entry["when"]):
                told = container({key: templar.template(value) for key, value in entry.items()})
                found[told.name] = told
    return found


@pytest.mark.parametrize("start", ["", "ClusterName=c\nPrologFlags=Contain\nJobContainerType=job_container/tmpfs\n"])
def test_daemons_of_others_are_not_known_where_the_controller_is_silent(tmp_path: Path, start: str) -> None:
    found = daemons(tmp_path, said(start))

    assert {name: one.known for name, one in found.items()} == {
        "slurmctld": True,
        "slurmd": bool(start),
        "sackd": bool(start),
    }
    assert ("--first" in found["slurmd"].command) is bool(start)
    assert {one.image for one in found.values()} == {"head:5000/clusterctl/slurm@sha256:aa"}
    assert {name: one.stop_timeout for name, one in found.items() if one.stop_timeout} == {"slurmctld": 60}


@pytest.mark.parametrize(
    ("start", "server"),
    [("", "head"), ("SlurmctldPort=7000\n", "head:7000"), ("SlurmctldPort=7000-7003\n", "head:7000")],
)
def test_daemons_fetch_from_the_port_that_the_site_has_chosen(tmp_path: Path, start: str, server: str) -> None:
    found = daemons(tmp_path, said(f"ClusterName=c\n{start}"))

    for name in ("slurmd", "sackd"):
        assert found[name].command[found[name].command.index("--conf-server") + 1] == server


OLD, NEW = {"slurm_version": "24.11"}, {"slurm_version": "25.11"}
SITE = {"SlurmctldPort": "7000-7003", "SlurmdPort": "7004", "PrologFlags": "X11,Contain", "TLSType": "tls/none"}


@pytest.mark.parametrize(
    ("site", "labels"),
    [
        (OLD, ("ClusterName=lab SlurmctldHost=head", "JobContainerType=job_container/tmpfs", "")),
        (NEW, ("ClusterName=lab SlurmctldHost=head", "NamespaceType=namespace/tmpfs", "")),
        (
            {**OLD, "slurm_conf_parameters": {**SITE, "JobContainerType": None}},
            (
                "ClusterName=lab SlurmctldHost=head SlurmctldPort=7000-7003 TLSType=tls/none",
                "SlurmctldPort=7000-7003 SlurmdPort=7004 TLSType=tls/none",
                "SlurmctldPort=7000-7003 SlurmdPort=7004 TLSType=tls/none",
            ),
        ),
    ],
    ids=["old", "new", "site"],
)
def test_a_daemon_is_replaced_for_what_only_its_start_takes_up_and_for_no_other_word(
    site: dict[str, Any], labels: tuple[str, str, str]
) -> None:
    # Other letters here, from one release to the next, would replace all daemons.
    assert tuple(rendered(**site)["started_with"].values()) == labels


@pytest.mark.parametrize(
    ("parameters", "contain", "own_tmp"),
    [
        ({}, True, True),
        ({"JobContainerType": None}, True, False),
        ({"PrologFlags": "Alloc", "JobContainerType": None}, False, False),
        ({"PrologFlags": "X11,CONTAIN"}, True, True),
        ({"PrologFlags": None, "JobContainerType": "job_container/none"}, False, False),
    ],
    ids=str,
)
def test_what_is_run_before_slurmd_rests_on_what_the_site_has_said_last(
    parameters: dict[str, str | None], contain: bool, own_tmp: bool
) -> None:
    start = rendered(**OLD, slurm_conf_parameters=parameters)

    assert (start["contain"], start["own_tmp"]) == (contain, own_tmp)


def test_what_the_inventory_says_counts_before_what_the_controller_still_has(tmp_path: Path) -> None:
    start = rendered(**OLD, slurm_conf_parameters={"SlurmctldPort": "7000-7003", "PrologFlags": "X11,Contain"})
    found = daemons(tmp_path, said("ClusterName=another\nSlurmctldPort=9\n"), start)

    assert {name: one.labels for name, one in found.items()} == {
        name: {"clusterctl.started_with": label} for name, label in start["started_with"].items()
    }
    assert found["slurmd"].command.index("--first") < found["slurmd"].command.index("slurmd")
    assert [word.rpartition("/")[2] for word in found["slurmd"].command if word.endswith("_jobs")] == [
        "clear_jobs", "keep_jobs",
    ]  # fmt: skip
    assert "head:7000" in found["slurmd"].command
    assert "head:7000" in found["sackd"].command


def test_what_the_controller_has_and_what_the_inventory_renders_say_the_same_of_a_start() -> None:
    text = "ClusterName=lab\nSlurmctldHost=head\nJobContainerType=job_container/tmpfs\nPrologFlags=Contain"

    assert said(text)["slurm"]["start"] == rendered(**OLD)
