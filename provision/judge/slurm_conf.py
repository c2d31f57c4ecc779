"""Do Slurm's files, as the inventory renders them, confine jobs? That they are there is judged like any file. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.model.checks import Check, Subject
from provision.model.facts import MachineFacts

SUBJECT = Subject(
    "slurm_conf",
    names=("confinement",),
    fix="see what differs with 'clusterctl plan', then run 'clusterctl provision slurm'",
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
