"""How a node's slurmd has to run rests on slurm.conf, which the controller says where it is in no scope of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from managed_things import on_machines

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


def daemons(tmp_path: Path, shared: dict[str, Any]) -> dict[str, Container]:
    """Return the daemons of all machines where the controller has said this of itself, or nothing, and is not asked."""
    file = tmp_path / "inventory.ini"
    file.write_text(INVENTORY, encoding="utf-8")
    found = {}
    for _, constants, templar in on_machines(file):
        templar.available_variables = {**templar.available_variables, "cluster_controller_shared": shared}
        for entry in constants["__slurm_service_managed"]["containers"]:
            if templar.template(entry["when"]):
                told = container({key: templar.template(value) for key, value in entry.items()})
                found[told.name] = told
    return found


@pytest.mark.parametrize("start", ["", "ClusterName=c\nPrologFlags=Contain\nJobContainerType=job_container/tmpfs\n"])
def test_daemons_of_others_are_not_known_where_the_controller_is_silent(tmp_path: Path, start: str) -> None:
    found = daemons(tmp_path, {"slurm": {"files": {}, "start": start, "resume": []}} if start else {})

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
    found = daemons(tmp_path, {"slurm": {"files": {}, "start": f"ClusterName=c\n{start}", "resume": []}})

    for name in ("slurmd", "sackd"):
        assert found[name].command[found[name].command.index("--conf-server") + 1] == server
