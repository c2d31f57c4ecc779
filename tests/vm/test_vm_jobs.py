"""Jobs where only a real kernel can show it: they outlive slurmd's container, and are kept from others' devices."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import labs
import pytest
import vms
import yaml
from container_starts import LEFT, on_node, starts_leave_nothing
from working import PARTITION, no_job_is_lost


@pytest.mark.proves("job_survival")
def test_a_job_survives_the_replacement_of_slurmds_container(node_lab: vms.VmLab, tmp_path: Path) -> None:
    """By the role, by another role, with slurmctld's, and by one of another image; nothing else that waits is lost."""
    lab, variables = node_lab, node_lab.directory / "group_vars/all.yml"
    given = variables.read_text(encoding="utf-8") if variables.exists() else "{}"

    def declare(**more: Any) -> None:
        variables.parent.mkdir(exist_ok=True)
        declared = {**yaml.safe_load(given), "slurm_partitions": [PARTITION], **more}
        variables.write_text(yaml.safe_dump(declared), encoding="utf-8")
        labs.clusterctl("provision", lab.inventory, "slurm", timeout=vms.LIMIT)
        labs.until(lambda: lab.node_is_well("node1"), lambda: lab.node("node1").told)

    def removed() -> None:
        # As the role does before it replaces it, and is then killed. The next run opens the node.
        done = labs.tasks(lab.inventory, "node1", "slurm_service", "close", tmp_path, ansible_become=True)
        assert done.returncode == 0, done.stdout
        lab.root("node1", "docker rm --force slurmd")

    def replaced() -> None:
        before = lab.root("node1", "docker inspect --format '{{.Id}}' slurmd")
        removed()
        # In order: what slurmctld has not saved, it forgets when it is killed.
        lab.root("head", "docker stop --time 60 slurmctld && docker rm slurmctld")
        assert lab.root("node1", "pgrep -c slurmstepd") != "0"
        declare()
        assert lab.root("node1", "docker inspect --format '{{.Id}}' slurmd") != before

    def renewed() -> None:
        # The new slurmd knows the job's /tmp by way of the job's own process. Once more, as another role does it.
        removed()
        done = labs.tasks(lab.inventory, "node1", "slurm_service", "renew", tmp_path, ansible_become=True)
        assert done.returncode == 0, done.stdout
        labs.until(lambda: lab.node_is_well("node1"), lambda: lab.node("node1").told)

    def image_replaced() -> None:
        before = lab.root("node1", "docker inspect --format '{{.Image}}' slurmd")
        declare(slurm_image_extra_packages=["tree"])
        assert lab.root("node1", "docker inspect --format '{{.Image}}' slurmd") != before

    try:
        declare()
        changes = {"slurmd and slurmctld replaced": replaced, "renewed": renewed, "image replaced": image_replaced}
        no_job_is_lost(lab, "node1", changes)
        lab.wait_free("node1")
        assert lab.root("node1", "ls /var/lib/clusterctl/jobtmp/node1") == "", "each job's /tmp goes with it"
    finally:
        variables.write_text(given, encoding="utf-8")
        labs.clusterctl("provision", lab.inventory, "slurm", timeout=vms.LIMIT)


#: What a job is told when it opens a device file: no driver is behind a simulated GPU's number (ENXIO), and what
#: its control group forbids is refused before anybody looks for one (EPERM).
NO_DRIVER, FORBIDDEN = "No such device or address", "Operation not permitted"

LOOK = r"""
for device in /dev/nvidia0 /dev/nvidia1; do
    echo "$device: $( (: <"$device") 2>&1 )"
done
echo "visible: $CUDA_VISIBLE_DEVICES"
"""


def look(node_lab: vms.VmLab, *options: str) -> tuple[dict[str, str], str]:
    """Return what a job is told about each GPU's device file, and which it is to use."""
    words = " ".join(["srun", "--nodelist=node1", "--time=5", "--chdir=/", *options, "sh", "-s"])
    told = node_lab.root("head", f"runuser -u slurmtest -- {words} <<'END'\n{LOOK}\nEND\n")
    opened = dict(re.findall(r"^(/dev/nvidia\d): .*?([^:]+)$", told, re.MULTILINE))
    return {device: text.strip() for device, text in opened.items()}, told.rsplit("visible: ", 1)[-1]


@pytest.mark.proves("job_survival")
def test_a_job_with_one_gpu_cannot_open_the_other(node_lab: vms.VmLab) -> None:
    one, visible = look(node_lab, "--gres=gpu:1")

    assert sorted(one.values()) == [NO_DRIVER, FORBIDDEN], one
    assert visible == "0"


def test_a_job_with_all_gpus_opens_all_and_one_without_opens_none(node_lab: vms.VmLab) -> None:
    assert set(look(node_lab, "--gres=gpu:2")[0].values()) == {NO_DRIVER}
    assert set(look(node_lab)[0].values()) == {FORBIDDEN}


def test_containers_leave_no_control_group_behind(node_lab: vms.VmLab) -> None:
    """Nor anything else; one of them here, where a start takes seconds: test_container_jobs has two hundred."""
    lab = node_lab
    job = lab.job("sleep 600", "--nodelist=node1", "--mem=100", "--time=20")
    try:
        # What a job has is seen, or its absence says nothing.
        labs.until(lambda: f"/job_{job}/step_batch" in on_node(lab, LEFT), lambda: on_node(lab, LEFT))
    finally:
        lab.root("head", f"scancel {job}")
        lab.wait_free("node1")

    starts_leave_nothing(lab, 1)

    assert "/job_" not in on_node(lab, LEFT)
