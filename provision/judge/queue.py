"""Would a changed slurm.conf end somebody's job? Compared with the queue before a file is written. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from provision import hostlist
from provision.model.checks import Check, Code, Detail, Subject, Verdict
from provision.model.text import brief
from provision.slurm.taken import Loss, Taken, jobs_in, losses, taken

#: Asked only where slurm.conf is to change. It concerns the whole cluster, as all nodes have this file.
QUEUE = Subject("slurm_conf", names=("queue",), before=True, whole=("queue",))
EXPECTED = "the change ends no job"
_FIX = (
    "wait for running jobs (clusterctl provision --drain); give waiting jobs other nodes (scontrol update JobId=NUMBER "
    "ReqNodeList=); end them (scancel), or let this run end them: -e slurm_conf_end_jobs=true"
)


def queue(live: str | None, wanted: str, answer: str | None, reservations: str, *, ends: bool = False) -> Check:
    """Return whether what ``wanted`` takes away from ``live``, texts of slurm.conf, is in nobody's use.

    ``live`` is empty where there is none yet, None where it could not be read. ``answer`` is what squeue printed by
    ``provision.slurm.taken.FORMAT``, None where it did not answer. Each line of ``reservations`` is one of scontrol's.
    ``ends``: the site says that jobs may end.
    """
    if live == "":
        return QUEUE.skip("queue", "there is no slurm.conf yet")
    change, jobs, problem = None, None, "the present slurm.conf could not be read"
    try:
        if live is not None:
            change, problem = taken(live, wanted), "squeue did not answer"
        if change == Taken():
            return QUEUE.check("queue", True, "the change removes nothing", EXPECTED)
        jobs = jobs_in(answer) if answer is not None else None
    except ValueError as error:
        problem = str(error)
    if change is None or jobs is None:
        return QUEUE.check(
            "queue",
            Verdict.WARN if ends else Verdict.FAIL,
            f"unknown: {problem}",
            EXPECTED,
            cause="the change may remove nodes, cores, GRES or partitions that unknown jobs use",
            fix="start slurmctld on the controller (docker start slurmctld), then run this again; or, if jobs "
            "may end: -e slurm_conf_end_jobs=true",
        )
    nodes = re.findall(r"(?m)^ReservationName=(\S+) .*?\bNodes=(\S+)", reservations)
    lost = losses(change, jobs, dict(nodes))
    said = brief([f"{one.what} {one.why}" for one in lost], 10)
    return QUEUE.check(
        "queue",
        (Verdict.WARN if ends else Verdict.FAIL) if lost else Verdict.PASS,
        said or f"{len(jobs)} jobs, and none uses what the change removes",
        EXPECTED,
        source="the inventory, compared with the present slurm.conf" if lost else "",
        cause="the change removes what they use" if lost else "",
        fix=_FIX if lost else "",
        details=[Detail(Code.IN_USE, hostlist.fold(there))] if (there := _awaited(change, lost)) else (),
    )


def _awaited(change: Taken, lost: Sequence[Loss]) -> frozenset[str]:
    """Return the nodes to drain for the change; none where something is lost however long one waits.

    They are those that the change is about, as the next job could begin there, and of jobs elsewhere all.
    """
    if not lost or change.everything or not all(one.runs for one in lost):
        return frozenset()
    changed = change.nodes | change.shape | change.gres
    return changed.union(*(one.runs for one in lost if not one.runs & changed))


def to_drain(checks: Iterable[Check]) -> list[str]:
    """Return the nodes whose running jobs alone keep a change from being made, in these checks of a run."""
    found = (one for check in checks if check.id in QUEUE.ids and not check.ok for one in check.details)
    return sorted({name for one in found if one.code is Code.IN_USE for name in hostlist.expand(one.thing)})
