"""What may stand behind sacctmgr's words for an association and a QOS, and when two such values are one. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

#: TRES that every database has: slurmdb_defs.h. Others are those of the cluster's generic resources, and licences.
COUNTED_ANYWAY = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages")
_TRES_ITEM = re.compile(r"([a-z]+(?:/[A-Za-z0-9_.:@-]+)?)=(-1|\d{1,18})(\.\d\d)?([KMGTP]?)", re.IGNORECASE)
_UNITS = {"": 1, "m": 1, "k": 1 / 1024, "g": 1024, "t": 1024**2, "p": 1024**3}
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,39}")
#: parse_time.c: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]].
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
#: QOS flags of Slurm 24.11: slurmdb_str_2_qos_flag().
_FLAGS = """
DenyOnLimit EnforceUsageThreshold NoDecay NoReserve OverPartQOS PartitionMaxNodes PartitionMinNodes PartitionTimeLimit
Relative RequiresReservation UsageFactorSafe
""".split()  # noqa: SIM905 - read as a text, not as a list of quotes

_MODES = ("cluster", "cancel", "requeue", "gang", "suspend")

#: A value of which Slurm has none.
NONE = "-1"


@dataclass(frozen=True)
class Kind:
    """How a value is read: ``meaning`` is what is compared, None for a value that is none of it; ``what`` says so."""

    meaning: Callable[[str], Any]
    what: str
    #: What is printed where nothing is set, beside the empty text.
    unset: tuple[str, ...] = ()
    #: The words that it is made of, where it is made of words.
    words: tuple[str, ...] = ()
    #: What sacctmgr is told: the text, where this is None.
    told: Callable[[str], str] | None = None
    #: What it is told to have none.
    cleared: str = NONE

    def nearest(self, text: str) -> str:
        """Return the word that was meant by the first one which is none of them; empty where none is like it."""
        known = {word.lower(): word for word in self.words}
        for word in re.split(r"[,=]", text.lower()):
            if word and word not in known:
                near = difflib.get_close_matches(word, known, n=1)
                return known[near[0]] if near else ""
        return ""


def tres(text: str, *, shown: bool = False) -> dict[str, int] | None:
    """Return the amounts by TRES, memory in MB; None for what Slurm would not take.

    Where sacctmgr has ``shown`` it, 1536G are 1.50T, which it would not take: it reads 1.5T as 1M.
    """
    found: dict[str, int] = {}
    for word in text.split(",") if text else ():
        item = _TRES_ITEM.fullmatch(word.strip())
        if not item or (item[4] and item[1].lower() not in ("mem", "vmem")) or (item[3] and not shown):
            return None
        name = item[1].lower() if "/" not in item[1] else item[1]
        if name in found or not (name in COUNTED_ANYWAY or re.match(r"(gres|license)/.", name)):
            return None
        # In hundredths, as a float has not all digits.
        hundredths = int(item[2] + (item[3] or ".00")[1:])
        found[name] = int(item[2]) if item[2] == NONE else int(hundredths * _UNITS[item[4].lower()] // 100)
    return found


def _count(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,9}", text) else None


def _share(text: str) -> int | str | None:
    return "parent" if text.lower() == "parent" else _count(text)


def _seconds(text: str, lone: int) -> int | None:
    """Return the seconds of a time; ``lone`` are those of a number by itself."""
    found = _TIME.fullmatch(text)
    if not found:
        return None
    days, first, second, third = (None if part is None else int(part) for part in found.groups())
    if days is not None:
        return days * 86400 + (first or 0) * 3600 + (second or 0) * 60 + (third or 0)
    if second is None:
        return (first or 0) * lone
    if third is None:
        return (first or 0) * 60 + second
    return (first or 0) * 3600 + second * 60 + third


def _minutes(text: str) -> int | None:
    """Return a time as Slurm keeps it: in whole minutes, rounded up."""
    found = _seconds(text, 60)
    return None if found is None else -(-found // 60)


def _number(text: str) -> float | None:
    # The database keeps six digits.
    return round(float(text), 6) if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text) else None


def _names(text: str) -> frozenset[str] | None:
    words = [word.strip() for word in text.split(",") if word.strip()]
    return frozenset(words) if all(_NAME.fullmatch(word) for word in words) else None


def _name(text: str) -> str | None:
    return text if _NAME.fullmatch(text) else None


def _flags(text: str) -> frozenset[str] | None:
    words = frozenset(word.strip().lower() for word in text.split(",") if word.strip())
    return words if words <= {flag.lower() for flag in _FLAGS} else None


def _mode(text: str) -> str | None:
    return text.lower() if text.lower() in _MODES else None


COUNT = Kind(_count, "a whole number")
#: Of a QOS, which has one in any case.
PRIORITY = Kind(_count, COUNT.what, ("0",))
SHARE = Kind(_share, "a whole number, or parent", ("1",))
TRES = Kind(tres, "TRES with amounts, for example cpu=64,mem=500G,gres/gpu=8", words=COUNTED_ANYWAY)
TIME = Kind(_minutes, "minutes, hours:minutes:seconds or days-hours")
EXEMPT = Kind(lambda text: _seconds(text, 60), TIME.what)
#: sacctmgr reads 1:00 as one second.
SECONDS = Kind(
    lambda text: _seconds(text, 1),
    "seconds, or hours:minutes:seconds",
    ("00:00:00",),
    told=lambda text: str(_seconds(text, 1)),
)
NUMBER = Kind(_number, "a number", ("1.000000",))
PART = Kind(lambda text: found if (found := _number(text)) is not None and found <= 1 else None, "a number from 0 to 1")
NAMES = Kind(_names, "names of QOS, in lower case", ("normal",), cleared="")
NAME = Kind(_name, "the name of a QOS, in lower case")
FLAGS = Kind(_flags, f"one or more of {', '.join(_FLAGS)}", words=tuple(_FLAGS))
MODE = Kind(_mode, f"one of {', '.join(_MODES)}", ("cluster",), _MODES, cleared="cluster")
#: What sacctmgr is told where it prints a value under a name that it does not take: 24.11 says "Unknown option".
TOLD = {"MinPrioThreshold": "MinPrioThresh"}

#: Of an association: sacctmgr(1), "GENERAL SPECIFICATIONS FOR ASSOCIATION BASED ENTITIES".
ASSOCIATION: Mapping[str, Kind] = {
    "Fairshare": SHARE,
    **dict.fromkeys(("GrpJobs", "GrpJobsAccrue", "GrpSubmitJobs"), COUNT),
    **dict.fromkeys(("GrpTRES", "GrpTRESMins", "GrpTRESRunMins"), TRES),
    "GrpWall": TIME,
    **dict.fromkeys(("MaxJobs", "MaxJobsAccrue", "MaxSubmitJobs"), COUNT),
    **dict.fromkeys(("MaxTRES", "MaxTRESPerNode", "MaxTRESMins"), TRES),
    "MaxWall": TIME,
    "Priority": COUNT,
    "QOS": NAMES,
    "DefaultQOS": NAME,
}
#: Of a QOS: sacctmgr(1), "SPECIFICATIONS FOR QOS".
QOS: Mapping[str, Kind] = {
    "Priority": PRIORITY,
    "Flags": FLAGS,
    "GraceTime": SECONDS,
    **dict.fromkeys(("GrpJobs", "GrpJobsAccrue", "GrpSubmitJobs"), COUNT),
    **dict.fromkeys(("GrpTRES", "GrpTRESMins", "GrpTRESRunMins"), TRES),
    "GrpWall": TIME,
    **dict.fromkeys(("MaxJobsPA", "MaxJobsPU", "MaxJobsAccruePA", "MaxJobsAccruePU"), COUNT),
    **dict.fromkeys(("MaxSubmitJobsPA", "MaxSubmitJobsPU"), COUNT),
    **dict.fromkeys(("MaxTRES", "MaxTRESPerNode", "MaxTRESPA", "MaxTRESPU", "MaxTRESMins", "MinTRES"), TRES),
    **dict.fromkeys(("MaxTRESRunMinsPA", "MaxTRESRunMinsPU"), TRES),
    "MaxWall": TIME,
    "MinPrioThreshold": COUNT,
    "Preempt": NAMES,
    "PreemptExemptTime": EXEMPT,
    "PreemptMode": MODE,
    **dict.fromkeys(("LimitFactor", "UsageFactor"), NUMBER),
    # Compared with a share: slurmdb_qos_rec_t in slurm/slurmdb.h.
    "UsageThreshold": PART,
}
#: Other words of sacctmgr's for the same.
ALIASES = {
    "share": "Fairshare",
    "grpsubmit": "GrpSubmitJobs",
    "maxsubmit": "MaxSubmitJobs",
    "maxtresperjob": "MaxTRES",
    "maxtrespj": "MaxTRES",
    "maxtrespn": "MaxTRESPerNode",
    "maxtresperaccount": "MaxTRESPA",
    "maxtresperuser": "MaxTRESPU",
    "maxtresminsperjob": "MaxTRESMins",
    "maxwalldurationperjob": "MaxWall",
    "maxjobsperaccount": "MaxJobsPA",
    "maxjobsperuser": "MaxJobsPU",
    "maxsubmitjobsperaccount": "MaxSubmitJobsPA",
    "maxsubmitjobsperuser": "MaxSubmitJobsPU",
    "mintresperjob": "MinTRES",
    "qoslevel": "QOS",
}


def canonical(word: str, known: Mapping[str, Kind]) -> str:
    """Return the name of a parameter as it stands in the table; empty where it has none of this name."""
    names = {name.lower(): name for name in known}
    return names.get(word.lower()) or names.get(ALIASES.get(word.lower(), "").lower(), "")


def same(kind: Kind, wanted: str, found: str) -> bool:
    """Tell whether the database's value is the declared one; of TRES only those count that are declared."""
    if kind is TRES:
        there, asked = tres(found, shown=True) or {}, tres(wanted) or {}
        if wanted == NONE:
            return not there
        return all(there.get(name, -1) == amount for name, amount in asked.items())
    if wanted == NONE:
        return found in ("", *kind.unset)
    return bool(kind.meaning(found) == kind.meaning(wanted))
