"""Did two jobs run side by side where prove-session has tried it? Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

#: Why a job waits where no more of a site's jobs, cores or nodes are allowed: QOSMaxJobsPerUserLimit, AssocGrpCpuLimit;
#: squeue(1), JOB REASON CODES. A limit of memory may be reached because a job took all: what is looked for here.
_ALLOWED = re.compile(r"(?:QOS|Assoc)\w*(?:Job|Cpu|Node)\w*")
BUSY = re.compile(r"Requested nodes are busy|Unable to allocate resources: .*immediate|Immediate execution impossible")


def told(lines: Sequence[str]) -> dict[str, str]:
    """Return the first line of each kind: ``kind rest``."""
    found: dict[str, str] = {}
    for text in lines:
        kind, _, rest = text.partition(" ")
        found.setdefault(kind, rest)
    return found


def tried(said: Mapping[str, Sequence[str]], asked: Sequence[Sequence[str]]) -> tuple[list[str], list[str]]:
    """Return what is wrong and what is not proven, a sentence for each node in each partition.

    ``said`` are the script's lines by ``partition:node``, ``asked`` what it was to do: partition, node, GRES, and how
    two jobs fit there.
    """
    wrong: list[str] = []
    unproven: list[str] = []
    for partition, node, _, fits in asked:
        own, where = told(said.get(f"{partition}:{node}", [])), f"{node} in {partition}"
        both = [own.get("first", ""), own.get("second", "")]
        times = [re.fullmatch(r"(\d{10,20}) (\d{10,20})", text) for text in both]
        if fits == "exclusive":
            unproven.append(f"{where}: a job there has the whole node (OverSubscribe, SelectType)")
        elif fits != "pair":
            unproven.append(f"{where} has less than two idle cores")
        elif any(BUSY.search(text) for text in both) and not any(times):
            unproven.append(f"{where}: other jobs have what they need: {both[0][:200]}")
        elif fault := _not_beside(both, times):
            if limit := _ALLOWED.fullmatch(own.get("held", "")):
                unproven.append(f"{where}: one waited for a limit of the site ({limit[0]})")
            elif "others" in own and (all(times) or any(BUSY.search(text) for text in both)):
                unproven.append(f"{where}: one waited beside other jobs ({own.get('held', '')[:100]})")
            else:
                why = own.get("held", "")[:100]
                wrong.append(f"{where}: {fault}" + (f" (it waited: {why})" if why else ""))
    return wrong, unproven


def _not_beside(both: Sequence[str], times: Sequence[re.Match[str] | None]) -> str:
    """Return what is wrong with two jobs that were to run at the same time; empty where they did."""
    if not all(times):
        silent = "; ".join(text[:200] for text, time in zip(both, times, strict=True) if not time)
        return f"one of two did not run: {silent or 'it said nothing'}"
    (_, ended), (later, _) = sorted((int(time[1]), int(time[2])) for time in times if time)
    return "one after the other" if later >= ended else ""
