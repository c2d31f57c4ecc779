"""What machines share, and what jobs see of the machine they run on: at any time, at the same path, and no more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import labs
import pytest

#: A person of the lab, whose home is on the file system that its machines share.
USER = "ada"
#: What the lab's inventory declares.
MOUNTS = [{"path": "/home", "fstype": "present"}, {"path": "/scratch", "fstype": "local"}]


@pytest.fixture(scope="module")
def lab(provisioned_lab: labs.Lab) -> Iterator[labs.Lab]:
    yield provisioned_lab
    run(provisioned_lab, "rm -rf ~/t-*")


def run(lab: labs.Lab, script: str, *, machine: str = "head", check: bool = True) -> str:
    """Return what a script prints that she runs after a login."""
    words = ["docker", "exec", "-i", lab.container(machine), "runuser", "--login", USER, "--command", script]
    return labs.run(words, check=check).stdout.strip()


def started(lab: labs.Lab, machine: str) -> str:
    """Return which container slurmd runs in, and since when."""
    told = json.loads(lab.root(machine, "docker container inspect slurmd"))[0]
    return f"{told['Id']} {told['State']['StartedAt']}"


def test_what_is_mounted_later_is_seen_by_the_next_job_of_a_slurmd_that_runs_on(lab: labs.Lab) -> None:
    before = started(lab, "node1")
    seen = "srun --nodelist=node1 cat /scratch/t-later/new"
    lab.root(
        "node1", "mkdir -p /scratch/t-later && mount -t tmpfs none /scratch/t-later && echo later >/scratch/t-later/new"
    )
    try:
        assert run(lab, seen) == "later"
    finally:
        lab.root("node1", "umount /scratch/t-later && rmdir /scratch/t-later")

    assert run(lab, seen, check=False) == ""
    assert started(lab, "node1") == before


def test_a_job_writes_where_the_machine_is_and_nowhere_else_and_reads_the_sites_software(lab: labs.Lab) -> None:
    def written(path: str) -> bool:
        return run(lab, f"srun --nodelist=node1 sh -c 'echo x >{path} && echo yes' 2>/dev/null", check=False) == "yes"

    for path in ("/tmp/t-storage", "/var/tmp/t-storage", "/scratch/t-storage", "/dev/shm/t-storage"):
        assert written(path), path
        assert lab.root("node1", f"stat --format=%U {path} && rm {path}").strip() == USER, path
    for path in (
        "/t-storage",
        "/opt/t-storage",
        "/var/t-storage",
        "/run/t-storage",
        "/etc/t-storage",
        "/usr/t-storage",
    ):
        assert not written(path), path
    lab.root("node1", "mkdir /opt/t-site && echo software >/opt/t-site/version")
    try:
        assert run(lab, "srun --nodelist=node1 cat /opt/t-site/version") == "software"
    finally:
        lab.root("node1", "rm -r /opt/t-site")


def renewed(lab: labs.Lab, directory: Path, **variables: Any) -> None:
    """Have node2's slurmd run as these variables declare it, as the role does that has installed a toolkit."""
    done = labs.tasks(lab.inventory, "node2", "slurm_service", "renew", directory, ansible_become=True, **variables)
    assert done.returncode == 0, done.stdout


def test_a_declared_cuda_toolkit_is_seen_by_jobs_which_cannot_write_it(lab: labs.Lab, tmp_path: Path) -> None:
    toolkit = "/usr/local/cuda-12.8"
    lab.root("node2", f"mkdir {toolkit} && chmod 1777 {toolkit} && echo a toolkit >{toolkit}/version")
    try:
        renewed(lab, tmp_path, cuda_toolkit_versions=["12.8"])

        look = f"cat {toolkit}/version /usr/local/cuda/version; echo x >{toolkit}/t-storage"
        told = run(lab, f'srun --nodelist=node2 sh -c "{look}" 2>&1', check=False)
        assert told.splitlines()[:2] == ["a toolkit"] * 2
        assert "Read-only file system" in told
    finally:
        renewed(lab, tmp_path)
        lab.root("node2", f"rm -r {toolkit}")
    assert "No such file" in run(lab, f"srun --nodelist=node2 cat {toolkit}/version 2>&1", check=False)


def test_slurmd_says_for_which_mount_it_waits_and_takes_no_job_before(lab: labs.Lab) -> None:
    since = "scontrol show node node1 | grep -o 'SlurmdStartTime=[^ ]*'"
    before = lab.root("head", since)
    # The lab's own mount, which only the computer below could make again, is kept at another place.
    away = "mkdir -p /run/t-home && mount --bind /home /run/t-home && docker stop --time 60 slurmd"
    lab.root("node1", f"{away} && umount --lazy /home && docker start slurmd")
    begun = lab.root("node1", "docker inspect --format '{{.State.StartedAt}}' slurmd")
    told = f"docker logs --since {begun} slurmd 2>&1"
    try:
        labs.until(lambda: "waits for /home to be mounted" in lab.root("node1", told), lambda: started(lab, "node1"))
        assert lab.root("node1", "docker top slurmd -o args | grep -c '^slurmd ' || true") == "0"
        assert lab.root("head", since) == before, "it has not registered"
    finally:
        lab.root("node1", "mountpoint -q /home || mount --bind /run/t-home /home; umount /run/t-home")

    labs.until(lambda: lab.root("head", since) != before and lab.node_is_well("node1"))
    assert run(lab, "srun --nodelist=node1 cat /etc/hostname") == "node1"


def test_slurmctld_has_nobodys_home(lab: labs.Lab) -> None:
    assert "/home" not in lab.root("head", "docker exec slurmctld cat /proc/mounts").split()


def test_a_job_that_asks_for_what_is_not_there_says_so_and_its_node_goes_on(lab: labs.Lab) -> None:
    done = run(
        lab,
        "STAGE_IN=$HOME/t-none sbatch --wait --parsable --nodelist=node1 --output=t-out --wrap 'echo began';"
        " echo code $?; cat t-out",
    ).splitlines()

    assert done[1] == "code 1"
    assert f"stage-in: /home/{USER}/t-none: no such file or directory" in done[2]
    assert "began" not in done
    assert lab.node_is_well("node1")


def test_a_mount_that_is_no_longer_declared_goes_when_that_is_asked_and_nobody_uses_it(lab: labs.Lab) -> None:
    lines = ["# From cluster_mounts of the inventory.", "[Mount]", "What=/srv/t_gone", "Where=/t_gone", "Type=none"]
    unit = "\\n".join([*lines, "Options=bind", "[Install]", "WantedBy=remote-fs.target", ""])
    lab.root(
        "node2",
        f"mkdir -p /srv/t_gone; echo kept >/srv/t_gone/file; printf '{unit}' >/etc/systemd/system/t_gone.mount;"
        " systemctl daemon-reload && systemctl enable --now t_gone.mount && mountpoint /t_gone",
    )
    gone = json.dumps({"cluster_mounts": [*MOUNTS, {"path": "/t_gone", "state": "absent"}]})

    def said(document: dict[str, Any], name: str, verdict: str) -> list[str]:
        mine = (one for one in document["checks"] if (one["id"], one["verdict"]) == (f"shared_storage.{name}", verdict))
        return [f"{one['host']}: {one['observed']}" for one in mine]

    told = labs.document(lab.inventory, "plan")
    assert (said(told, "undeclared", "warn"), told["pending"]) == (
        ["node2: /t_gone is no longer in cluster_mounts"],
        False,
    )
    process = lab.root("node2", "cd /t_gone; setsid sleep 300 >/dev/null 2>&1 </dev/null & echo $!").strip()
    try:
        (used,) = said(labs.document(lab.inventory, "provision", "base", "-e", gone), "left", "fail")
    finally:
        lab.root("node2", f"kill {process}")
    assert used.startswith("node2: /t_gone is in use: sleep of uid 0 (process ")
    assert lab.root("node2", "cat /t_gone/file").strip() == "kept"

    assert labs.document(lab.inventory, "provision", "base", "-e", gone)["exit_code"] == 0

    assert "is not a mountpoint" in lab.root("node2", "mountpoint /t_gone 2>&1", check=False)
    assert lab.root("node2", "find /etc/systemd -name 't_gone*'") == ""
    assert lab.root("node2", "cat /srv/t_gone/file && rm -r /srv/t_gone /t_gone").strip() == "kept"


def test_what_a_job_had_on_the_disk_of_a_node_that_crashed_goes_when_it_is_back(lab: labs.Lab) -> None:
    script = "touch $JOB_SCRATCH/half; echo $JOB_SCRATCH; sleep 300"
    for node in ("node1", "node2"):
        run(lab, f"sbatch --nodelist={node} --no-requeue --job-name=t-crash --output=t-{node} --wrap '{script}'")
        labs.until(lambda node=node: bool(run(lab, f"cat t-{node} 2>/dev/null", check=False)))  # type: ignore[misc]
    lost, going_on = run(lab, "cat t-node1"), run(lab, "cat t-node2")

    labs.docker("kill", lab.container("node1"))
    lab.restart("node1")

    storage = f"/var/lib/clusterctl/jobs/{lost.rpartition('-')[2]}"
    labs.until(lambda: lab.root("node1", f"ls -d {lost} {storage} /scratch/.jobs/.ended/* 2>/dev/null || true") == "")
    assert lab.root("node2", f"ls {going_on}").strip() == "half"
    run(lab, "scancel --name=t-crash")
    labs.until(lambda: lab.node_is_well("node1"), lambda: lab.node("node1").told)
    assert run(lab, "srun --nodelist=node1 echo back") == "back"
