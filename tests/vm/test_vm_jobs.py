"""Jobs where only a real kernel can show it: they outlive slurmd's container, and are kept from others' devices."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import labs
import pytest
import vms
from container_starts import LEFT, on_node, starts_leave_nothing

#: A user whom the lab declares.
USER = "ada"
SURVIVOR = Path(__file__).with_name("survivor.sh").read_text(encoding="utf-8")


def said(lab: vms.VmLab, command: str, text: str = "") -> str:
    """Return what a command prints that the user runs after a login on the controller."""
    return labs.run(lab.entering("head", command, user=USER), input=text, timeout=vms.LIMIT).stdout.strip()


def counted(text: str) -> tuple[list[int], list[int]]:
    """Return the numbers that the job wrote, one a second, and when it did, in seconds since 1970."""
    rows = [line.split() for line in text.splitlines()]
    return [int(number) for number, _ in rows], [int(second) for _, second in rows]


@pytest.mark.proves("job_survival")
def test_a_job_survives_the_replacement_of_slurmds_container(node_lab: vms.VmLab, tmp_path: Path) -> None:
    """Twice, and of slurmctld's: what it writes, its own /tmp, its containers, new steps and its end."""
    lab = node_lab
    before = lab.root("node1", "docker inspect --format '{{.Id}}' slurmd")
    home = f"/home/{USER}"

    def left(name: str) -> str:
        return lab.root("node1", f"cat {home}/survivor.{name} 2>/dev/null || true")

    options = f"--parsable --nodelist=node1 --mem=2000 --time=60 --chdir={home}"
    options += f" --output={home}/survivor.out --error={home}/survivor.err"
    lab.root("node1", f"rm -f {home}/survivor.*")
    job = said(lab, f"sbatch {options}", SURVIVOR)
    labs.until(lambda: "begun" in left("loader"), lambda: left("loader") + left("out"))

    removed = int(lab.root("node1", "docker rm --force slurmd >/dev/null; date +%s"))
    # In order: what slurmctld has not saved, it forgets when it is killed.
    lab.root("head", "docker stop --time 60 slurmctld && docker rm slurmctld")
    assert lab.root("node1", "pgrep -c slurmstepd") != "0"
    labs.clusterctl("provision", lab.inventory, "slurm", timeout=vms.LIMIT)
    assert lab.root("node1", "docker inspect --format '{{.Id}}' slurmd") != before
    # The new slurmd knows the job's /tmp by way of the job's own process. Once more, as another role has it made anew.
    lab.root("node1", "docker rm --force slurmd")
    done = labs.tasks(lab.inventory, "node1", "slurm_service", "renew", tmp_path, ansible_become=True)
    assert done.returncode == 0, done.stdout
    labs.until(lambda: lab.node_is_well("node1"), lambda: lab.node("node1").told)
    replaced = int(lab.root("node1", f"touch {home}/survivor.replaced; date +%s"))

    asked = f"sacct --noheader --parsable2 --allocations --duplicates --jobs={job} --format=JobID,State,ExitCode"
    labs.until(lambda: said(lab, asked) == f"{job}|FAILED|3:0", lambda: said(lab, asked) + left("step"))
    for name in ("home", "tmp", "out"):
        numbers, seconds = counted(left(name))
        assert numbers == list(range(1, len(numbers) + 1)), name
        assert seconds == sorted(seconds), name
        print(f"{name}: at most {max(after - before for before, after in pairwise(seconds))} s between two numbers")
        assert seconds[0] <= removed <= replaced <= seconds[-1], f"{name}: it was there all the time"
    assert re.fullmatch(r"step 0 \d+ \d+", left("step")), "a new step has the job's own /tmp"
    assert left("container") == "container"
    assert re.fullmatch(r"begun\nwhole \d+\nloader 0", left("loader"))
    lab.wait_free("node1")
    assert lab.root("node1", "ls /var/lib/clusterctl/jobtmp/node1") == "", "its /tmp goes with it"


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
