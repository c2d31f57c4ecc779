"""Whether CUDA toolkits can be installed as asked, bring no driver along, and are there. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from provision.model.checks import Check, Subject, Verdict
from provision.model.text import clean
from provision.nvidia.cuda_toolkit import Plan, intruders, simulated

SUBJECT = Subject("cuda_toolkit", names=("versions", "toolkit", "default"), fix="clusterctl provision gpu")
#: What is judged before anything is installed, and only then.
BEFORE = Subject("cuda_toolkit", names=("packages", "driver_untouched"), before=True)

_SOURCE = "cuda_toolkit_versions and cuda_toolkit_installers"
_MAX_ANSWER = 1_000_000


def asked(plan: Plan, versions: Sequence[str]) -> list[Check]:
    """Return the checks of what was asked for, before anything is downloaded."""
    if plan.refusals:
        fix = "correct the inventory, then clusterctl provision gpu"
        return [SUBJECT.check("versions", False, text, source=_SOURCE, cause=text, fix=fix) for text in plan.refusals]
    if plan.warnings:
        fix = "none is needed if programs on the node want it"
        return [
            SUBJECT.check("versions", Verdict.WARN, text, source=_SOURCE, cause=text, fix=fix) for text in plan.warnings
        ]
    wanted = ", ".join([*versions, *(found["name"] for found in plan.installers)])
    return [SUBJECT.check("versions", True, wanted, source=_SOURCE)]


def brought(answer: Mapping[str, Any]) -> list[Check]:
    """Return the checks of what a package manager's simulation, as a finished command, would bring along."""
    if answer.get("rc"):
        told = clean(str(answer.get("stderr") or answer.get("stdout") or "")[-2000:]).strip().splitlines()
        cause = told[-1] if told else "the package manager did not answer"
        fix = "name a repository that has them: cuda_toolkit_repository, or with NVIDIA's driver nvidia_driver_source"
        return [BEFORE.check("packages", False, cause, source=_SOURCE, cause=cause, fix=fix)]
    found = intruders(simulated(str(answer.get("stdout") or "")[:_MAX_ANSWER]))
    cause = f"{', '.join(found)} would come along and replace the node's driver or kernel"
    fix = "name packages of a toolkit only; if a repository's toolkit depends on a driver, use cuda_toolkit_installers"
    return [BEFORE.check("driver_untouched", not found, cause if found else "", source=_SOURCE, cause=cause, fix=fix)]


def checks(plan: Plan, versions: Sequence[str], answer: str) -> list[Check]:
    """Return the checks of what was asked for and of each toolkit.

    ``answer`` has a line ``directory release`` for each toolkit that is there, as its compiler says, and a line
    ``default directory`` for what /usr/local/cuda leads to.
    """
    wanted = [*versions, *(found["version"] for found in plan.installers)]
    if not wanted and not plan.refusals:
        return SUBJECT.all_skipped("no toolkit is asked for (cuda_toolkit_versions, cuda_toolkit_installers)")
    first = asked(plan, versions)
    if plan.refusals or not wanted:
        why = "not judged, because the request is refused"
        return [*first, *(SUBJECT.skip(name, why, unproven=True) for name in ("toolkit", "default"))]
    lines = [line.split(None, 1) for line in clean(answer, _MAX_ANSWER).splitlines() if line.strip()]
    rows = dict(words for words in lines if len(words) == 2)
    if [words[0] for words in lines if words[0] == "default"] != ["default"]:
        unknown = [SUBJECT.unknown(name, "the machine did not answer") for name in ("toolkit", "default")]
        return [*first, *unknown]
    found = []
    for version in wanted:
        seen = rows.get(f"/usr/local/cuda-{version}", "nothing")[:100]
        cause = f"/usr/local/cuda-{version} holds {seen}: it was removed, or not installed completely"
        good = seen == version
        found.append(SUBJECT.check("toolkit", good, f"CUDA {seen}", f"CUDA {version}", source=_SOURCE, cause=cause))
    target, right = rows.get("default", "nothing")[:200], f"/usr/local/cuda-{plan.default}"
    default = SUBJECT.check(
        "default", target == right, target, right, source=_SOURCE, cause="something else changed it"
    )
    return [*first, *found, default]
