"""Why Slurm did not start the DDP job, in Slurm's own words. Pure: no cause is given that Slurm has not named."""

from __future__ import annotations

import re
from collections.abc import Mapping

from provision.judge.ddp_evidence import Job

#: Of a job that does not get out of this state; ``ddp_submit.py`` says since when it is in it.
CLEARING = (
    r"COMPLETING for",
    "a node of the job has not confirmed its end to Slurm: slurmd and the controller do not understand each other, or a"
    " process or the Epilog does not end",
    "docker logs --tail 20 slurmd on the job's nodes",
)

#: Slurm's reasons, what each means, and the way out. Slurm prints them with underscores for spaces; the first that fits
#: counts. Each has a fixture in the tests.
REASONS: tuple[tuple[str, str, str], ...] = (
    CLEARING,
    (
        r"PartitionDown|PartitionInactive",
        "the partition does not start jobs",
        "scontrol update PartitionName=NAME State=UP",
    ),
    (
        r"ReqNodeNotAvail|are DOWN|DRAINED or reserved|NodeDown|NODE_FAIL",
        "nodes of the job are out of service",
        "sinfo -R; fix what it shows, then scontrol update NodeName=NODE State=RESUME",
    ),
    (
        r"launch failed requeued held|JobLaunchFailure",
        "a node could not launch the job, so Slurm holds it: a failing Prolog, or slurmd could not set it up",
        "docker logs --tail 20 slurmd on the job's nodes",
    ),
    (r"JobHeld(Admin|User)", "the job is held", "scontrol show job; scontrol release, or find out who holds jobs"),
    (
        r"Assoc(Grp|Max)|QOS(Grp|Max|Min|Job|Resource|Usage)|AssociationJobLimit|AssociationResourceLimit",
        "a limit of the test user's account or QOS stops it",
        "sacctmgr show assoc where user=USER; raise the limit, or let the test user have the nodes",
    ),
    (
        r"InvalidAccount|InvalidQOS",
        "the test user's account or QOS is not valid here",
        "sacctmgr add user USER account=NAME",
    ),
    (
        r"Partition(NodeLimit|TimeLimit)|JobArrayTaskLimit",
        "the partition's own limits do not let a job of this size or length run",
        "MaxNodes, MaxTime of slurm_partitions; ddp_validation_time_limit; ddp_validation_partition",
    ),
    (
        r"BeginTime",
        "the job may not begin yet: Slurm requeued it, or it was submitted with a later time",
        "scontrol show job",
    ),
    (r"Reservation", "a reservation keeps the nodes", "scontrol show reservation"),
    (
        r"Licenses|BurstBuffer|FedJobLock|Dependency",
        "the job waits for something other than nodes",
        "scontrol show job",
    ),
    (
        r"BadConstraints|NodeConfig",
        "no node can ever satisfy what the job asks for",
        "compare node_gres with scontrol show node",
    ),
    (r"Priority", "other jobs are before it in the queue", "squeue --start; verify again when the nodes are free"),
    (r"Resources", "its nodes are busy with other jobs", "squeue --start; verify again when the nodes are free"),
)


def why(job: Job, wanted: Mapping[str, int]) -> tuple[str, str]:
    """Return (cause, fix) of a job that Slurm did not start; those of its ``wanted`` nodes that are out are named."""
    if not job.id:
        return "Slurm did not take the job", "read what sbatch said"
    words = job.reason.replace("_", " ")
    ours = [line for line in job.out if line.partition(" ")[0] in wanted]
    told = f": {'; '.join(ours[:5])}" if ours else ""
    for pattern, cause, fix in REASONS:
        if re.search(pattern, words):
            # That a node is free or not is Slurm's to say; here it says more about a node that is not in service.
            if pattern == "Resources" and ours:
                return f"nodes of the job are out of service{told}", "sinfo -R; fix what it shows"
            return f"{cause}{told}", fix
    return f"Slurm did not start the job, and names no reason that is known here{told}", "scontrol show job; sinfo -R"
