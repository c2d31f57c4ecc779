"""Which parameters a release of Slurm reads, and which plain type a value has. Pure.

Names, types and releases are those of Slurm's source (:mod:`provision.slurm.parameter_table`). What a value means, and
which go together, Slurm says itself: a configuration is started in a slurmctld of its own before it replaces another.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from provision.slurm.parameter_table import NEWEST, TABLE

#: The files, and the lines ``PartitionName=`` and ``NodeName=`` in slurm.conf.
PLACES = {
    "slurm.conf": "slurm.conf",
    "partition": "a partition",
    "node": "a node",
    "cgroup.conf": "cgroup.conf",
    "slurmdbd.conf": "slurmdbd.conf",
}
#: s_p_handle_boolean() in src/common/parse_config.c.
ON, OFF = ("yes", "up", "true", "1"), ("no", "down", "false", "0")
#: _is_valid_timespec() in src/common/parse_time.c: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:...].
_TIME = re.compile(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|-1|infinite|unlimited", re.IGNORECASE)
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|\d+")
_FRACTION = re.compile(r"\d+(\.\d+)?")
#: Of what Slurm reads into whole numbers: s_p_handle_uint16() and its kin.
_LARGEST = {"uint16": 2**16 - 1, "uint32": 2**32 - 1, "uint64": 2**64 - 1}
_LEVELS = "quiet fatal error info verbose debug debug2 debug3 debug4 debug5 0 1 2 3 4 5 6 7 8 9"
#: What common values are beyond the types in Slurm's tables: a time, a port or a range of at least so many, one of some
#: words, or a number from one to another (None: to the type's largest, or UNLIMITED).
_TIMES = """
DefaultTime MaxTime MaxQueryTimeRange PreemptExemptTime PriorityCalcPeriod PriorityDecayHalfLife PriorityMaxAge
""".split()  # noqa: SIM905 - read as a text, not as a list of quotes
_PORTS = {"SlurmctldPort": 1, "SrunPortRange": 2}
_WORDS = {
    "EnforcePartLimits": "ALL ANY NO YES",
    "PriorityUsageResetPeriod": "NONE NOW DAILY WEEKLY MONTHLY QUARTERLY YEARLY",
    "ReturnToService": "0 1 2",
    "State": "UP DOWN DRAIN INACTIVE",
    # slurmd becomes each job's user.
    "SlurmdUser": "root 0",
    # As slurmd's container has it.
    "CgroupMountpoint": "/sys/fs/cgroup",
    **dict.fromkeys(("SlurmctldDebug", "SlurmctldSyslogDebug", "SlurmdDebug", "SlurmdSyslogDebug"), _LEVELS),
    **dict.fromkeys(("DebugLevel", "DebugLevelSyslog"), _LEVELS),
}
_BOUNDS: Mapping[str, tuple[int, int | None]] = {
    **dict.fromkeys(("JobFileAppend", "JobRequeue", "KillOnBadExit"), (0, 1)),
    **dict.fromkeys(("MaxJobCount", "MaxStepCount", "MessageTimeout", "TCPTimeout", "MaxNodes"), (1, None)),
    # src/common/slurm_limits.h: MAX_SLURM_NODES, MAX_JOB_ID, MAX_JOB_ARRAY_VALUE.
    "MaxNodeCount": (1, 65_536),
    **dict.fromkeys(("FirstJobId", "MaxJobId"), (1, 0x03FFFFFF)),
    "MaxArraySize": (0, 4_000_001),
    "TreeWidth": (1, 65_533),
    "AccountingStoragePort": (1, 65_535),
    "CoreSpecCount": (0, 65_533),
    # Those below are root's: slurmctld is none, nor is whoever calls srun.
    "SlurmdPort": (1024, 65_535),
    # Percentages. A limit of 0 leaves a job 30 MB (MinRAMSpace), and who writes 1 means the whole.
    "MaxRAMPercent": (10, 100),
    "AllowedRAMSpace": (10, 1000),
    "MemorySwappiness": (0, 100),
}
#: slurmdb_parse_purge() in src/common/slurmdb_defs.c: 0, and what is beyond 16 bits, would purge all.
_PURGE = (r"([1-9]\d{0,3}|[1-5]\d{4})(h|hours?|d|days?|m|months?)?", "hours, days or months, for example 24months")
#: A form of its own, and what it is called.
_FORMS = {
    "CPUSpecList": (r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*", "numbers of processors, for example 0-1,64"),
    **{
        f"Purge{what}After": _PURGE
        for what in ("Event", "Job", "JobEnv", "JobScript", "Resv", "Step", "Suspend", "TXN", "Usage")
    },
}
#: What scontrol prints and slurm.conf does not have, with what to do.
_PRINTED = {"jobdefaults": "write DefCpuPerGPU and DefMemPerGPU, which scontrol shows as JobDefaults"}


@dataclass(frozen=True)
class Parameter:
    """A parameter that Slurm reads; ``since`` and ``until`` are releases, empty where all known ones have it."""

    name: str
    kind: str
    since: str
    until: str

    def is_in(self, release: str) -> bool:
        """Tell whether a release reads it; their texts compare like numbers."""
        return (not self.since or self.since <= release) and (not self.until or release <= self.until)


@cache
def known(place: str) -> Mapping[str, Parameter]:
    """Return all parameters of a place by their names in lower case: Slurm's do not depend on case."""
    found = {}
    for (where, kind), names in TABLE.items():
        for word in names.split() if where == place else ():
            name, _, releases = word.partition(":")
            since, _, until = releases.partition("-")
            found[name.lower()] = Parameter(name, kind, since, until)
    return found


def page(place: str) -> str:
    """Return the manual page that tells of a place's parameters."""
    return "slurm.conf(5)" if place in ("partition", "node") else f"{place}(5)"


def unknown(place: str, name: str, release: str) -> tuple[str, str] | None:
    """Return why a release does not read this parameter, and what to do; None where it does, or may."""
    found = known(place).get(name.lower())
    if found and (found.is_in(release) or release > NEWEST):
        return None
    if found:
        when = f"it came with {found.since}" if release < (found.since or "") else f"{found.until} was its last"
        return f"{name!r} is no parameter of {PLACES[place]} in Slurm {release}: {when}", f"remove {name}"
    for other in PLACES:
        if other != place and name.lower() in known(other):
            return f"{name!r} is no parameter of {PLACES[place]}", f"it is one of {PLACES[other]}: remove it here"
    near = difflib.get_close_matches(name.lower(), known(place), n=1, cutoff=0.8)
    if name.lower() in _PRINTED:
        return f"{name!r} is no parameter of {PLACES[place]}", _PRINTED[name.lower()]
    if not near and release > NEWEST:
        return None
    fix = f"did you mean {known(place)[near[0]].name}?" if near else f"remove {name[:70]}, or see {page(place)}"
    return f"{name[:70]!r} is no parameter of {PLACES[place]}", fix


def misfit(place: str, name: str, value: str) -> str:
    """Return what a parameter's value must be, where it is of another type; empty for one that Slurm may take."""
    found = known(place).get(name.lower())
    if found is None:
        return ""
    name, fits, what = found.name, True, ""
    if name in _TIMES:
        fits, what = bool(_TIME.fullmatch(value)), "minutes, hours:minutes:seconds, days-hours, or UNLIMITED"
    elif form := _FORMS.get(name):
        fits, what = bool(re.fullmatch(form[0], value, re.IGNORECASE)), form[1]
    elif least := _PORTS.get(name, 0):
        wanted = "a range of ports" if least > 1 else "a port, or a range of ports"
        fits, what = is_ports(value, least), f"{wanted}, from 1024 to 65535, the lower one first"
    elif words := _WORDS.get(name, ""):
        fits, what = value.lower() in words.lower().split(), f"one of {', '.join(words.split())}"
    elif found.kind in _LARGEST:
        least, most = _BOUNDS.get(name, (0, None))
        last = _LARGEST[found.kind] if most is None else most
        what = f"a whole number from {least} to {last}{', or UNLIMITED' if most is None else ''}"
        fits = _is_whole(value, least, last) or (most is None and value.lower() in ("infinite", "unlimited"))
    elif found.kind == "boolean":
        fits, what = value.lower() in (*ON, *OFF), "YES or NO"
    elif found.kind == "float":
        least, most = _BOUNDS.get(name, (0, None))
        fits = bool(_FRACTION.fullmatch(value)) and least <= float(value) <= (most or float("inf"))
        what = f"a percentage from {least} to {most}" if most else "a number"
    return "" if fits else f"it must be {what}"


def is_ports(value: str, least: int) -> bool:
    """Tell whether a value is a port or a range of them, of as many at least."""
    if not re.fullmatch(r"\d{1,5}(-\d{1,5})?", value):
        return False
    low, _, high = value.partition("-")
    return 1024 <= int(low) <= int(high or low) - least + 1 and int(high or low) <= 65535


def _is_whole(value: str, least: int, most: int) -> bool:
    return bool(_NUMBER.fullmatch(value)) and least <= number(value) <= most


def number(text: str) -> int:
    """Return a whole number as Slurm reads it, which takes hexadecimal ones, too."""
    return int(text, 16 if text[1:2] in ("x", "X") else 10)
