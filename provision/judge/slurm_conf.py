"""Do Slurm's files, as the inventory renders them, confine jobs, and does slurmctld start with them? Pure.

That they are there is judged like any file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from provision.model.checks import Check, Subject, Verdict
from provision.model.facts import MachineFacts

SUBJECT = Subject(
    "slurm_conf",
    names=("confinement",),
    fix="see what differs with 'clusterctl plan', then run 'clusterctl provision slurm'",
)
#: What slurmctld says of files that are not there yet. It concerns the whole cluster, as all nodes have these files.
CANDIDATE = Subject("slurm_conf", names=("candidate",), before=True, whole=("candidate",))


def candidate(code: str, lines: Sequence[str], place: str) -> Check:
    """Return what a slurmctld has said that was started with the files and without the cluster.

    ``code``: started, refused, same (it runs with these), absent (of Slurm's image), else nothing is known. ``lines``
    are its own, ``place`` where in the inventory that is of which they speak.
    """
    said = "; ".join(lines)
    if code in ("same", "absent"):
        why = (
            "slurmctld has these files"
            if code == "same"
            else "Slurm's image is not here yet: the trial follows once it is"
        )
        return CANDIDATE.skip("candidate", why, unproven=code == "absent")
    verdict = {"started": Verdict.PASS, "refused": Verdict.FAIL}.get(code, Verdict.WARN)
    return CANDIDATE.check(
        "candidate",
        verdict,
        f"slurmctld: {said or 'nothing'}" if code != "started" else "slurmctld starts",
        "slurmctld starts with the inventory's configuration",
        source=place or "slurm.conf",
        cause="Slurm refuses these files: none was written, and the daemons go on with theirs"
        if code == "refused"
        else "no slurmctld could try these files: the running one shows whether it takes them",
        fix=f"correct {place or 'what Slurm names (clusterctl render shows the files)'}; then run this again"
        if code == "refused"
        else "nothing to do where the configuration works",
    )


def checks(_: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Return what holds for the configuration itself.

    ``wants``: ``unconfined`` is why these files confine no job, empty where they do, None on a machine that has none.
    """
    unconfined = wants["unconfined"]
    if unconfined is None:
        return [SUBJECT.skip("confinement", "one slurm.conf for all nodes, the controller's")]
    if unconfined:
        why = f"no job is confined to its cores, memory and GPUs. {unconfined}"
        return [SUBJECT.skip("confinement", why, unproven=True)]
    said = "jobs are confined to their cores, memory and GPUs"
    return [SUBJECT.check("confinement", True, said, said, source="slurm.conf and cgroup.conf")]
