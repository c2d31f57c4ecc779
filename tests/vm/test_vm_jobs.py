"""Jobs where only a real kernel can show it: they outlive slurmd's container, and are kept from others' devices."""

from __future__ import annotations

import re

import labs
import pytest
import vms


@pytest.mark.proves("job_survival")
def test_a_job_survives_the_replacement_of_slurmds_container(node_lab: vms.VmLab) -> None:
    container = node_lab.root("node1", "docker inspect --format '{{.Id}}' slurmd")
    seconds = 240
    job = node_lab.job(f"sleep {seconds}; exit 3", "--nodelist=node1", "--time=30")
    labs.until(lambda: node_lab.job_state(job)["JobState"] == "RUNNING", 120, "the job does not start")
    node_lab.watch_job(job)

    node_lab.root("node1", "docker rm --force slurmd")
    assert node_lab.root("node1", "pgrep -c slurmstepd") != "0"
    labs.clusterctl("provision", node_lab.inventory, "slurm", timeout=vms.LIMIT)

    assert node_lab.root("node1", "docker inspect --format '{{.Id}}' slurmd") != container
    ended = node_lab.ended_job(job, 600)
    assert (ended["JobState"], ended["ExitCode"]) == ("FAILED", "3:0")
    hours, minutes, rest = map(int, ended["RunTime"].split(":"))
    assert seconds <= hours * 3600 + minutes * 60 + rest < seconds + 60
    node_lab.wait_idle("node1", 120)


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
    words = " ".join(["srun", "--nodelist=node1", "--immediate=300", "--time=5", "--chdir=/", *options, "sh", "-s"])
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


def test_two_jobs_side_by_side_have_one_gpu_each(node_lab: vms.VmLab) -> None:
    holder = node_lab.job("sleep 600", "--nodelist=node1", "--gres=gpu:1", "--mem=100", "--time=20")
    try:
        labs.until(lambda: node_lab.job_state(holder)["JobState"] == "RUNNING", 120, "the job does not start")
        held = node_lab.root("head", f"scontrol --details --oneliner show job {holder} | grep -o 'IDX:[0-9]'")

        other, _ = look(node_lab, "--gres=gpu:1", "--mem=100")

        own = "/dev/nvidia1" if held == "IDX:0" else "/dev/nvidia0"
        assert other[own] == NO_DRIVER
        assert sorted(other.values()) == [NO_DRIVER, FORBIDDEN]
    finally:
        node_lab.root("head", f"scancel {holder}")
        node_lab.wait_idle("node1", 300)


def test_a_job_may_lock_all_memory(node_lab: vms.VmLab) -> None:
    words = "srun --immediate=300 --time=5 --chdir=/ sh -c 'ulimit -l'"

    assert node_lab.root("head", f"runuser -u slurmtest -- {words}") == "unlimited"
