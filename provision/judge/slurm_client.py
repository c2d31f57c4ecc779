"""Are Slurm's commands on a machine those of the daemons' image, and whole? Pure judgement of what it answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.model.checks import Check, Code, Detail, Subject
from provision.model.facts import MachineFacts

SUBJECT = Subject("slurm_client", names=("user", "programs"), fix="clusterctl provision slurm")


def checks(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Judge one machine.

    ``wants``: ``install``, whether the commands are to be there; ``image`` by digest (empty: still to be built; None:
    the controller did not say) and ``name``, that of its tree; ``user``, Slurm's own, and its ``uid``.
    """
    if not wants["install"]:
        return SUBJECT.all_skipped("users have no commands here (slurm_client_install)")
    return [_user(facts, wants), _programs(facts, wants)]


def _user(facts: MachineFacts, wants: Mapping[str, Any]) -> Check:
    found = facts["state"].get("users", {}).get(str(wants["user"]))
    number = int(wants["uid"])
    return SUBJECT.check(
        "user",
        found is not None and (found["uid"], found["gid"]) == (number, number),
        f"{wants['user']}, uid {found['uid']} and gid {found['gid']}" if found else f"no user {wants['user']}",
        f"{wants['user']}, uid and gid {number}",
        source="SlurmUser in slurm.conf",
        cause="another Slurm made it" if found else "every command of Slurm's ends with 'Invalid user for SlurmUser'",
        fix=f"remove the other Slurm, or give its files and its user the number {number}" if found else None,
    )


def _programs(facts: MachineFacts, wants: Mapping[str, Any]) -> Check:
    answer = facts.get("commands", {}).get("clients") or {"rc": None, "text": "the machine was not asked"}
    if wants["image"] is None:
        return SUBJECT.unknown("programs", "the controller did not say which image it has built")
    if answer["rc"] is None:
        return SUBJECT.unknown("programs", answer["text"])
    lines = [line.split(" ", 1) for line in answer["text"].splitlines()]
    trees = {name: state for state, name in (line for line in lines if len(line) == 2) if state in ("whole", "broken")}
    current = next((line[1] for line in lines if len(line) == 2 and line[0] == "current"), "")
    name = str(wants["name"])
    state = trees.get(name, "missing") if name else "of an image that is still to be built"
    used = state == "whole" and current == name
    return SUBJECT.check(
        "programs",
        used,
        "those of the daemons' image" if used else f"{state}; in use: {current or 'none'}" if name else state,
        "those of the daemons' image, unchanged, in use",
        source="/opt/clusterctl/slurm",
        cause="never exported, changed by hand, or of an earlier image",
        details=[] if name else [Detail(Code.UNBUILT)],
    )
