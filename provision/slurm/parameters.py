"""Which parameters a release of Slurm reads, and which values it takes. Pure.

Names, types and releases are those of Slurm's source (:mod:`provision.slurm.parameter_table`); what a text has to be is
in its code and in slurm.conf(5). An unknown key stops every daemon and every command, and a wrong value often does; so
neither may reach a cluster that runs.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from provision.slurm.parameter_table import NEWEST, TABLE

#: The files, and the lines ``PartitionName=`` in slurm.conf.
PLACES = {
    "slurm.conf": "slurm.conf",
    "partition": "a partition",
    "cgroup.conf": "cgroup.conf",
    "slurmdbd.conf": "slurmdbd.conf",
}

#: Of what Slurm reads into whole numbers: s_p_handle_uint16() and its kin in src/common/parse_config.c.
_LARGEST = {"uint16": 2**16 - 1, "uint32": 2**32 - 1, "uint64": 2**64 - 1}
_ENDLESS = ("infinite", "unlimited")
_BOOLEAN = ("yes", "no", "up", "down", "true", "false", "1", "0")
#: _is_valid_timespec() in src/common/parse_time.c: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:...].
_TIME = re.compile(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|-1|infinite|unlimited", re.IGNORECASE)
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|\d+")
_LEVELS = "quiet fatal error info verbose debug debug2 debug3 debug4 debug5 0 1 2 3 4 5 6 7 8 9"

_TIMES = {
    "slurm.conf": "PriorityCalcPeriod PriorityDecayHalfLife PriorityMaxAge",
    "partition": "DefaultTime MaxTime",
}
#: One of these words.
_WORDS = {
    "slurm.conf": {
        "AccountingStorageType": "accounting_storage/none accounting_storage/slurmdbd",
        "EnforcePartLimits": "ALL ANY NO YES",
        "JobAcctGatherType": "jobacct_gather/cgroup jobacct_gather/linux jobacct_gather/none",
        "JobCompType": "jobcomp/elasticsearch jobcomp/filetxt jobcomp/kafka jobcomp/lua jobcomp/mysql jobcomp/none "
        "jobcomp/script",
        "JobContainerType": "job_container/tmpfs job_container/none",
        "MCSPlugin": "mcs/account mcs/group mcs/label mcs/none mcs/user",
        "PreemptType": "preempt/none preempt/partition_prio preempt/qos",
        "PriorityType": "priority/basic priority/multifactor",
        "PriorityUsageResetPeriod": "NONE NOW DAILY WEEKLY MONTHLY QUARTERLY YEARLY",
        "ProctrackType": "proctrack/cgroup proctrack/linuxproc proctrack/pgid",
        "ReturnToService": "0 1 2",
        "SchedulerType": "sched/backfill sched/builtin",
        "SelectType": "select/cons_tres select/linear",
        "SlurmctldDebug": _LEVELS,
        "SlurmctldSyslogDebug": _LEVELS,
        "SlurmdDebug": _LEVELS,
        "SlurmdSyslogDebug": _LEVELS,
        "TopologyPlugin": "topology/3d_torus topology/block topology/default topology/flat topology/tree",
    },
    "partition": {"State": "UP DOWN DRAIN INACTIVE"},
    "cgroup.conf": {"CgroupPlugin": "autodetect cgroup/v1 cgroup/v2 disabled"},
}
#: One or more of these words, with commas.
_LISTS = {
    "slurm.conf": {
        "AccountingStorageEnforce": "all associations limits nojobs none nosteps qos safe wckeys",
        "HealthCheckNodeState": "ALLOC ANY CYCLE IDLE MIXED NONDRAINED_IDLE START_ONLY",
        "PreemptMode": "OFF CANCEL GANG PRIORITY REQUEUE SUSPEND WITHIN",
        "TaskPlugin": "task/affinity task/cgroup task/none",
    },
    "partition": {"PreemptMode": "OFF CANCEL GANG PRIORITY REQUEUE SUSPEND WITHIN"},
}
#: A form of its own, and what it is called.
_FORMS = {
    "partition": {
        "OverSubscribe": (r"NO|EXCLUSIVE|(YES|FORCE)(:\d+)?", "NO, EXCLUSIVE, YES, YES:n, FORCE or FORCE:n"),
        "OverTimeLimit": (r"\d+|INFINITE|UNLIMITED", "minutes, or UNLIMITED"),
        "SuspendTime": (r"\d+|-1|INFINITE", "seconds, or INFINITE"),
    },
    "slurm.conf": {
        "SlurmctldPort": (r"\d{1,5}(-\d{1,5})?", "a port, or a range of ports"),
        "SrunPortRange": (r"\d{1,5}-\d{1,5}", "a range of ports"),
        "SuspendTime": (r"\d+|-1|INFINITE|NONE", "seconds, or INFINITE"),
    },
}


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


def unknown(place: str, name: str, release: str) -> tuple[str, str] | None:
    """Return why a release does not read this parameter, and what to do; None where it does, or may."""
    found = known(place).get(name.lower())
    if found and (found.is_in(release) or release > NEWEST):
        return None
    if found:
        when = f"it came with {found.since}" if release < (found.since or "") else f"{found.until} was its last"
        return f"{name!r} is no parameter of {PLACES[place]} in Slurm {release}: {when}", f"remove {name}"
    for other in PLACES.keys() - {place}:
        if name.lower() in known(other):
            return f"{name!r} is no parameter of {PLACES[place]}", f"it is one of {PLACES[other]}: remove it here"
    near = difflib.get_close_matches(name.lower(), known(place), n=1, cutoff=0.8)
    if not near and release > NEWEST:
        return None
    fix = f"did you mean {known(place)[near[0]].name}?" if near else f"remove {name[:70]}, or see slurm.conf(5)"
    return f"{name[:70]!r} is no parameter of {PLACES[place]}", fix


def misfit(place: str, name: str, value: str) -> str:
    """Return what the value of a parameter must be, where it is something else; empty for one that Slurm takes."""
    found = known(place).get(name.lower())
    if found is None:
        return ""
    accepts, what = _accepted(place, found)
    return "" if accepts(value) else f"it must be {what}"


def _accepted(place: str, parameter: Parameter) -> tuple[Callable[[str], bool], str]:
    """Return what tells whether a value is one of the parameter's, and how that is said."""
    name = parameter.name
    if name in _TIMES.get(place, "").split():
        return lambda value: bool(_TIME.fullmatch(value)), "minutes, hours:minutes:seconds, days-hours, or UNLIMITED"
    if form := _FORMS.get(place, {}).get(name):
        return lambda value: bool(re.fullmatch(form[0], value, re.IGNORECASE)), form[1]
    if words := _WORDS.get(place, {}).get(name):
        return lambda value: value.lower() in words.lower().split(), f"one of {', '.join(words.split())}"
    if words := _LISTS.get(place, {}).get(name):
        return lambda value: set(value.lower().split(",")) <= set(words.lower().split()), (
            f"one or more of {', '.join(words.split())}"
        )
    if largest := _LARGEST.get(parameter.kind):
        return lambda value: _whole(value, largest), f"a whole number from 0 to {largest}, or UNLIMITED"
    if parameter.kind == "boolean":
        return lambda value: value.lower() in _BOOLEAN, "YES or NO"
    if parameter.kind == "float":
        return lambda value: bool(re.fullmatch(r"\d+(\.\d+)?", value)), "a number"
    return lambda value: True, ""


def _whole(value: str, largest: int) -> bool:
    if value.lower() in _ENDLESS:
        return True
    return bool(_NUMBER.fullmatch(value)) and int(value, 16 if value[1:2] in ("x", "X") else 10) <= largest
