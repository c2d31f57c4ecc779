"""One repair: what is broken is named, a provision that is killed is finished by plain Ansible, and jobs go on."""

from __future__ import annotations

import re

import labs
import snapshots
from breaking import apply, no_jobs, on_all, told_by_plan
from interrupting import killed_at_its_first_change
from mutation import Row, spoilt
from mutations_files import LIMITS, PROGRAM, REGISTRY, astray
from mutations_services import KEYS
from mutations_users import USERS

#: Something of each stage, and of each kind of thing that is managed.
BROKEN = (
    *spoilt("text", "base_system", f"{LIMITS}/90-clusterctl.conf", "node1"),
    USERS[0],
    *spoilt("mode", "container_engine", "/etc/docker/daemon.json", "node2"),
    *spoilt("mode", "container_images", f"{REGISTRY}/server.key", "head"),
    KEYS[0],
    Row("munge is stopped", "login1", "systemctl stop munge", {"munge.services": "munge is inactive"}, (), ("munge",)),
    *spoilt("mode", "slurm_conf", "/etc/slurm/gres.conf", "head"),
    Row(
        "slurmd is removed", "node2", "docker rm --force slurmd",
        {"slurm_service.containers": "slurmd does not exist"}, (), ("slurmd",),
    ),
    astray("sinfo", "squeue"),
    *spoilt("gone", "ddp_validation", f"{PROGRAM}/reference.py", "node1"),
)  # fmt: skip


def test_what_is_broken_is_named_and_a_killed_run_is_finished_by_plain_ansible_while_jobs_go_on(
    provisioned_lab: labs.Lab,
) -> None:
    lab = provisioned_lab
    no_jobs(lab)
    before = on_all(lab, snapshots.files)
    goes_on = "while [ ! -e t-go ]; do sleep 1; done"
    running = lab.said(f"sbatch --parsable --nodelist=node1 --output=t-running --wrap '{goes_on}'")
    held = lab.said("sbatch --parsable --hold --output=t-held --wrap true")
    asked = "squeue --noheader --me --format='%i %T'"
    labs.until(lambda: f"{running} RUNNING" in lab.said(asked), lambda: lab.said(asked))

    apply(lab, BROKEN)
    plan, wrong = told_by_plan(lab, BROKEN)

    assert not wrong, "\n".join(wrong)
    assert plan["pending"]

    killed_at_its_first_change(lab)
    status = labs.document(lab.inventory, "status")
    labs.playbook("site", "-i", lab.inventory)

    assert (status["last_run"]["command"], status["last_run"]["ended"]) == ("provision", None)
    after = {name: snapshots.difference(before[name], files) for name, files in on_all(lab, snapshots.files).items()}
    assert after == {machine: [] for machine in lab.machines}
    again = labs.playbook("site", "-i", lab.inventory).stdout
    assert set(re.findall(r"changed=(\d+)", again)) == {"0"}
    assert set(lab.said(asked).splitlines()) == {f"{running} RUNNING", f"{held} PENDING"}
    lab.said(f"touch t-go; scontrol release {held}")
    ended = f"sacct --noheader --parsable2 --allocations --jobs={running},{held} --format=JobID,State,Restarts"
    wanted = {f"{job}|COMPLETED|0" for job in (running, held)}
    labs.until(lambda: set(lab.said(ended).splitlines()) == wanted, lambda: lab.said(ended))
    lab.said("rm -f t-go t-running t-held")
