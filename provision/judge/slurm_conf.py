"""Are Slurm's files those that the inventory renders? Pure judgement of what the machines' files are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha1
from typing import Any

from provision.model.checks import Check, Subject, Verdict

SUBJECT = Subject(
    "slurm_conf",
    names=("files", "confinement"),
    fix="see what differs with 'clusterctl plan', then run 'clusterctl provision slurm'",
)


#: What a machine has that is not the controller: no slurm.conf of its own.
OTHERS: dict[str, str | None] = {"slurm.conf": None}


def checks(found: object, texts: Mapping[str, str | None], unconfined: str | None = None) -> list[Check]:
    """Judge a machine's files by what ``stat`` said about each.

    ``found`` are stat's results as ``{item: file's name, stat: {exists, checksum (SHA-1)}}``; ``texts`` is each file's
    text as rendered, None for one that must not be there. ``unconfined`` is why these files confine no job, empty where
    they do, None on a machine that does not have them.
    """
    return [_files(found, texts), _confinement(unconfined)]


def refused(problem: str, fix: str) -> list[Check]:
    """Return the checks of a controller whose inventory renders no files."""
    return [
        SUBJECT.check(
            "files", False, "the inventory renders none", "those that the inventory renders", cause=problem, fix=fix
        ),
        SUBJECT.unknown("confinement", "the inventory renders no slurm.conf", cause=problem, fix=fix),
    ]


def _confinement(unconfined: str | None) -> Check:
    if unconfined is None:
        return SUBJECT.skip("confinement", "one slurm.conf for all nodes, the controller's")
    if unconfined:
        return SUBJECT.skip(
            "confinement", f"no job is confined to its cores, memory and GPUs. {unconfined}", unproven=True
        )
    said = "jobs are confined to their cores, memory and GPUs"
    return SUBJECT.check("confinement", True, said, said, source="slurm.conf and cgroup.conf")


def _files(found: object, texts: Mapping[str, str | None]) -> Check:
    seen = {name: _checksum(found, name) for name in texts}
    wrong = []
    for name, text in texts.items():
        if seen[name] == "" and text is not None:
            wrong.append(f"{name} missing")
        elif seen[name] and text is None:
            wrong.append(f"{name} exists")
        elif text is not None and seen[name] not in (None, sha1(text.encode(), usedforsecurity=False).hexdigest()):
            wrong.append(f"{name} different")
    silent = [name for name in texts if seen[name] is None]
    verdict = Verdict.FAIL if wrong else Verdict.UNKNOWN if silent else Verdict.PASS
    told = [*wrong, *(f"{name} could not be read" for name in silent)]
    return SUBJECT.check(
        "files",
        verdict,
        ", ".join(told) or "none different",
        "none different",
        source="the inventory; machines other than the controller have no slurm.conf of their own",
        cause="the files were written by something else, or the inventory has changed since"
        if wrong
        else "the machine did not say what its files are",
    )


def _checksum(found: object, name: str) -> str | None:
    """Return the file's SHA-1, empty where there is no such file, None where nothing was said about it."""
    for one in found if isinstance(found, Sequence) and not isinstance(found, str) else ():
        if isinstance(one, Mapping) and one.get("item") == name:
            stat: Any = one.get("stat")
            if not isinstance(stat, Mapping) or not isinstance(stat.get("exists"), bool):
                return None
            if not stat["exists"]:
                return ""
            # What is no file has no checksum, and is there all the same.
            return str(stat.get("checksum") or "no file")[:40]
    return None
