"""No job is lost by a change, as an ordinary user sees it, whose jobs of many kinds are there meanwhile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import labs
import pytest
import yaml
from working import PARTITION, no_job_is_lost


class Site:
    """The lab's inventory, and what its operator does to it and to the machines."""

    def __init__(self, lab: labs.Lab) -> None:
        self.lab, self.variables = lab, lab.directory / "group_vars/all.yml"
        self.whole, self.given = lab.inventory.read_text(encoding="utf-8"), self.variables.read_text(encoding="utf-8")

    def declares(self, **variables: Any) -> None:
        text = yaml.safe_dump({"slurm_partitions": [PARTITION], **variables})
        self.variables.write_text(self.given + text, encoding="utf-8")

    def provision(self, *stages: str) -> None:
        labs.clusterctl("provision", self.lab.inventory, *stages)

    def has_one_node(self) -> None:
        """Have the cluster without node2, which is then as a machine that joins it."""
        self.lab.inventory.write_text(re.sub(r"(?m)^node2 .*\n", "", self.whole), encoding="utf-8")
        self.declares()
        self.provision()
        self.lab.root("node2", "docker rm --force slurmd")

    def changes_its_configuration(self) -> None:
        self.declares(slurm_conf_parameters={"MessageTimeout": 43})
        self.provision("slurm")

    def replaces_slurmctld(self) -> None:
        # In order, as a change of what only a start takes up does it.
        self.lab.root("head", "docker stop --time 60 slurmctld && docker rm slurmctld")
        self.provision("slurm")

    def restarts_its_database(self) -> None:
        self.lab.root("head", "systemctl restart mariadb && docker restart slurmdbd")

    def adds_a_node(self) -> None:
        self.lab.inventory.write_text(self.whole, encoding="utf-8")
        self.provision()
        labs.until(self.lab.nodes_are_well)

    def removes_another_node(self) -> None:
        # Jobs that were submitted meanwhile may run there.
        labs.clusterctl("node", "remove", "node2", "--drain", "-i", self.lab.inventory)

    def is_as_given(self) -> None:
        self.lab.inventory.write_text(self.whole, encoding="utf-8")
        self.variables.write_text(self.given, encoding="utf-8")
        self.provision()


@pytest.fixture
def site(provisioned_lab: labs.Lab) -> Iterator[Site]:
    site = Site(provisioned_lab)
    try:
        site.has_one_node()
        yield site
    finally:
        site.is_as_given()


def test_no_job_is_lost_by_a_change_of_the_cluster(site: Site) -> None:
    """Numbers without a hole, own exit codes, one row in sacct each: begun, pending, interactive, submitted then."""
    changes = {
        "configuration": site.changes_its_configuration,
        "slurmctld replaced": site.replaces_slurmctld,
        "database restarted": site.restarts_its_database,
        "node added": site.adds_a_node,
        "another node removed": site.removes_another_node,
    }

    no_job_is_lost(site.lab, "node1", changes)
