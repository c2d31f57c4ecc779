"""The proof: a healthy cluster passes with a training job, and each of several faults is named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import labs
import pytest
import snapshots
from breaking import NO_WAIT, OTHER_KEY, OWN_KEY, bad, broken, verified


@pytest.mark.proves("provision")
def test_a_healthy_cluster_is_proven_and_what_is_simulated_is_said(provisioned_lab: labs.Lab, tmp_path: Path) -> None:
    lab = provisioned_lab
    junit = tmp_path / "verify.xml"
    before = {machine: snapshots.files(lab, machine) for machine in lab.machines}

    done = labs.clusterctl("verify", lab.inventory, "--json", "--junit", str(junit), check=False)
    code, document = done.returncode, json.loads(done.stdout)

    assert (code, document["verdict"]) == (0, "pass"), bad(document)
    assert document["schema"].startswith("clusterctl/verify/")
    assert document["simulated"] == ["gpu"]
    subjects = {check["id"].split(".")[0] for check in document["checks"]}
    assert {"munge", "slurm", "ddp"} <= subjects, subjects
    proven = {check["id"]: check for check in document["checks"] if check["id"].startswith("ddp.")}
    for step in ("identity", "collectives", "broadcast", "gradients", "negative_control", "parameters", "reference"):
        assert proven[f"ddp.{step}"]["verdict"] == "pass"
        assert proven[f"ddp.{step}"]["simulated"] is True
    # What an ordinary user has done, on each node whose kernel and GPUs are not made up.
    users = {(check["id"], check["host"]): check["verdict"] for check in document["checks"]}
    for step in ("step", "batch", "allocation", "signal", "side_by_side", "accounting"):
        assert users[f"session.{step}", "head"] == "pass"
    for step in ("run", "exit_code", "gpu", "cancel", "container", "home", "directories"):
        assert {users[f"job.{step}", node] for node in ("node1", "node2")} == {"pass"}
    # In the order in which they ended.
    told = re.findall(r"(?m)^verify: head: job \d+: ([A-J]) .*: pass$", done.stderr)
    assert told == list("ABCDEFGHJ")
    suites = ElementTree.parse(junit).getroot()  # noqa: S314 - our own file
    assert len(list(suites.iter("testcase"))) == len(document["checks"])
    assert not list(suites.iter("failure"))
    for machine in lab.machines:
        assert snapshots.difference(before[machine], snapshots.files(lab, machine)) == []


def test_each_of_several_faults_is_named(provisioned_lab: labs.Lab) -> None:
    drain = "docker exec slurmctld scontrol update nodename=node2 state=drain reason='bad fan'"
    resume = "docker exec slurmctld scontrol update nodename=node2 state=resume"
    down = "docker exec slurmctld scontrol update partitionname=batch state=down"
    up = "docker exec slurmctld scontrol update partitionname=batch state=up"
    # Written in place: Docker holds the file itself.
    astray = "cp /etc/hosts /root/hosts && { echo 192.0.2.9 node2; cat /root/hosts; } >/etc/hosts"
    found_again = "cat /root/hosts >/etc/hosts && rm /root/hosts"
    with (
        broken(provisioned_lab, "node1", OTHER_KEY, OWN_KEY),
        broken(provisioned_lab, "head", drain, resume),
        broken(provisioned_lab, "head", down, up),
        broken(provisioned_lab, "head", astray, found_again),
        broken(provisioned_lab, "node2", "mv /dev/nvidia1 /dev/taken", "mv /dev/taken /dev/nvidia1"),
        broken(provisioned_lab, "head", "docker stop --time 30 slurmdbd", "docker start slurmdbd"),
    ):
        code, document = verified(provisioned_lab, *NO_WAIT)

    found = bad(document)
    assert (code, document["verdict"]) == (8, "fail")
    assert any("node1" in hosts for check, hosts in found.items() if check.startswith("munge.")), found
    states = [check for check in document["checks"] if check["id"] == "slurm.node_state" and check["verdict"] == "fail"]
    assert "node2" in [check["host"] for check in states]
    assert "bad fan" in json.dumps(states)
    told = {(check["id"], check["host"]): check for check in document["checks"]}
    assert "batch is DOWN" in told["slurm.partitions", "head"]["observed"]
    assert told["base_system.names", "head"]["verdict"] == "fail", told["base_system.names", "head"]
    assert "192.0.2.9" in told["base_system.names", "head"]["observed"]
    assert "ddp.result" in found
    assert {"slurm_database.containers", "slurm_database.answers"} <= found.keys()
    assert "gpu:sim:1" in told["hardware.gres", "node2"]["observed"]
    # What could not be tried for it stands below it, and nothing waited for a job that cannot start.
    assert "slurm.partitions@head" in told["job.run", "node2"]["follows"]
    assert "slurm.partitions@head" in told["ddp.result", "head"]["follows"]
