"""Whether jobs share files with the machine that they were submitted on, and see its directories. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from provision.judge.slurm_facts import Wants
from provision.model.checks import Check, Subject, Verdict
from provision.model.text import brief, sections

#: The names of these checks, of the subject ``job``.
NAMES = ("home", "directories")


def checks(subject: Subject, seen: Mapping[str, str], wrote: str | None, machine: str, wants: Wants) -> list[Check]:
    """Return the checks of one node.

    ``seen`` is what its job said, by its words; ``wrote`` what the submitting machine then found of the job's, None
    where it did not look; ``machine`` what the node's own script printed.
    """
    return [_home(subject, seen, wrote, wants), _directories(subject, seen, machine, wants)]


def _home(subject: Subject, seen: Mapping[str, str], wrote: str | None, wants: Wants) -> Check:
    """Judge the test user's home: what was written there is read in the job, and what the job wrote is read there."""
    if wants.home == "alone":
        return subject.skip("home", "jobs run on the machine that they are submitted on")
    if wants.home != "shared":
        return subject.check(
            "home",
            Verdict.WARN,
            "each machine has a home of its own",
            "the same home on all machines",
            source="cluster_mounts",
            cause="no file system of cluster_mounts has the test user's home: a job's output stays on its node",
            fix="declare what machines share in cluster_mounts",
        )
    if wrote is None:
        return subject.unknown("home", "it was not tried: nothing could be written there when the job was submitted")
    wrong = (
        [] if seen.get("read") == "written" else ["the job does not read what was written on the submitting machine"]
    )
    wrong += [] if wrote == wants.host else ["what the job wrote is not read on the submitting machine"]
    return subject.check(
        "home",
        not wrong,
        "; ".join(wrong) or "written on one machine, read on the other, both ways",
        "written on one machine, read on the other, both ways",
        source="srun, as an ordinary user, in their home",
        cause="the job sees another file system there, or may not use it",
        fix="findmnt on both machines; clusterctl provision base slurm",
    )


def _directories(subject: Subject, seen: Mapping[str, str], machine: str, wants: Wants) -> Check:
    """Compare on which device a directory is in the job with where it is on the machine."""
    if not wants.directories:
        return subject.skip("directories", "cluster_mounts declares none for this machine")
    there = dict(re.findall(r"(?m)^(/\S*) (\d{1,20})$", sections(machine).get("directories", "")))
    told = (entry.rpartition(":") for entry in seen.get("seen", "").split(","))
    found = {path: device for path, _, device in told}
    silent = [path for path in wants.directories if path not in there]
    wrong = [
        f"{path} is another one in jobs" if found.get(path) else f"{path} is not there in jobs"
        for path in wants.directories
        if path in there and found.get(path) != there[path]
    ]
    if silent and not wrong:
        return subject.unknown("directories", f"the machine did not say where {brief(silent)} is")
    return subject.check(
        "directories",
        not wrong,
        brief(wrong) or f"{len(wants.directories)} as on the machine",
        "the machine's own, at the same path",
        source="stat, in the job and on the machine",
        cause="slurmd's container does not have it, or it was mounted where the container does not look",
        fix="clusterctl provision slurm",
    )
