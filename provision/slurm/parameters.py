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
from provision.slurm.word_table import WORDS

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
#: s_p_handle_boolean() there.
ON, OFF = ("yes", "up", "true", "1"), ("no", "down", "false", "0")
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
        # debug_str2flags() in src/common/read_config.c, of all known releases.
        "DebugFlags": "Accrue Agent AuditRPCs AuditTLS Backfill BackfillMap BurstBuffer cgroup ConMgr CPU_Bind "
        "CpuFrequency Data DBD_Agent DB_Archive DB_Assoc DB_Event DB_Job DB_QOS DB_Query DB_Reservation DB_Resource "
        "DB_Step DB_TRES DB_Usage DB_WCKey Dependency Elasticsearch Energy ExtSensors Federation FrontEnd Gang "
        "GLOB_SILENCE Gres Hetjob Interconnect JAG JobAccountGather JobComp JobContainer License Metrics MPI Namespace "
        "Net NetRaw Network NetworkRaw NO_CONF_HASH NodeFeatures Power PowerSave Priority Profile Protocol Reservation "
        "Route Sack Script SelectType Steps Switch Task TimeCray TLS TraceJobs Trigger Triggers WorkQ WorkQueue",
        "AccountingStorageEnforce": "all associations limits nojobs none nosteps qos safe wckeys",
        "HealthCheckNodeState": "ALLOC ANY CYCLE IDLE MIXED NONDRAINED_IDLE START_ONLY",
        "PreemptMode": "OFF CANCEL GANG PRIORITY REQUEUE SUSPEND WITHIN",
        "PrologFlags": "Alloc Contain DeferBatch ForceRequeueOnFail NoHold RunInJob Serial X11",
        "TaskPlugin": "task/affinity task/cgroup task/none",
    },
    # Not GANG, which is the cluster's as a whole: Slurm ignores it here.
    "partition": {
        "PreemptMode": "OFF CANCEL PRIORITY REQUEUE SUSPEND WITHIN",
        "SelectTypeParameters": "CR_Core CR_Core_Memory CR_Socket CR_Socket_Memory",
    },
}
#: Of these words one stands in a list: preempt_mode_num(), _parse_select_type_param() in src/common/.
_ONE_OF = {
    "PreemptMode": ("OFF CANCEL REQUEUE SUSPEND", "GANG WITHIN"),
    "SelectTypeParameters": (
        "CR_CPU CR_CPU_Memory CR_Core CR_Core_Memory CR_Memory CR_Socket CR_Socket_Memory",
        "CR_CPU CR_ONE_TASK_PER_CORE",
        "CR_CPU_Memory CR_ONE_TASK_PER_CORE",
    ),
}
_TRES = (
    r"(billing|cpu|energy|mem|node|pages|vmem|fs/(disk|lustre)|ic/ofed|(license|bb)/[\w.:@-]+|gres/[a-z]\w*(:[\w.-]+)?)"
)
#: A form of its own, and what it is called.
_FORMS = {
    "partition": {
        "OverSubscribe": (r"NO|EXCLUSIVE|(YES|FORCE)(:\d+)?", "NO, EXCLUSIVE, YES, YES:n, FORCE or FORCE:n"),
        "OverTimeLimit": (r"\d+|INFINITE|UNLIMITED", "minutes, or UNLIMITED"),
        "SuspendTime": (r"\d+|-1|INFINITE", "seconds, or INFINITE"),
    },
    "slurm.conf": {
        # slurm.conf(5); what can be counted of generic resources depends on the nodes'.
        "AccountingStorageTRES": (
            rf"{_TRES}(,{_TRES})*",
            "one or more of gres/NAME, gres/NAME:TYPE, license/NAME, bb/NAME, fs/disk, fs/lustre, ic/ofed, and what is "
            "counted anyway: billing, cpu, energy, mem, node, pages, vmem",
        ),
        "SuspendTime": (r"\d+|-1|INFINITE|NONE", "seconds, or INFINITE"),
        # Run from wherever a daemon or a job happens to be.
        **dict.fromkeys(
            ("HealthCheckProgram", "SrunEpilog", "SrunProlog", "TaskEpilog", "TaskProlog", "UnkillableStepProgram"),
            (r'"?/.*', "a whole path, of a program where the daemons and jobs are"),
        ),
    },
}
#: Words that may have a value, by ``=``; their manual page refers from the one to the other.
_KNOWN_WORDS = {**WORDS, "PropagateResourceLimitsExcept": WORDS["PropagateResourceLimits"]}
#: How many ports a range has at least; one port is no range of SrunPortRange's.
_PORTS = {"slurm.conf": {"SlurmctldPort": 1, "SrunPortRange": 2}}
#: Of two, Slurm takes the second, and logs that it ignores the first.
_NOT_TOGETHER = (("DefMemPerCPU", "DefMemPerNode"), ("MaxMemPerCPU", "MaxMemPerNode"))


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


def misfit(place: str, name: str, value: str, release: str = NEWEST) -> str:
    """Return what the value of a parameter must be, where it is something else; empty for one that Slurm takes."""
    found = known(place).get(name.lower())
    if found is None:
        return ""
    accepts, what = _accepted(place, found)
    if not accepts(value):
        return f"it must be {what}"
    given = [word for word in value.split(",") if word]
    for words in _ONE_OF.get(found.name, ()):
        if len(both := [word for word in given if word.lower() in words.lower().split()]) > 1:
            return f"{' and '.join(both)} exclude each other"
    if place == "slurm.conf" and found.name in _KNOWN_WORDS and release <= NEWEST:
        return _unknown_word(found.name, given)
    return ""


def _unknown_word(name: str, given: list[str]) -> str:
    """Return what is wrong with the first word that Slurm does not look for: it ignores such a one, or stops."""
    known = {word.lower(): word for word in _KNOWN_WORDS[name].split()}
    plugin = {"JobSubmitPlugins": "job_submit/", "CliFilterPlugins": "cli_filter/"}.get(name, "")
    for item in given:
        word = item.partition("=")[0].lower().removeprefix(plugin).removeprefix("rlimit_")
        if word not in known:
            near = difflib.get_close_matches(word, known, n=1, cutoff=0.7)
            return f"it has no word {item[:70]!r}" + (f": did you mean {known[near[0]]}?" if near else "")
    return ""


def together(place: str, given: Mapping[str, str | None]) -> tuple[str, str, str] | None:
    """Return a parameter's name, what is wrong with it beside another, and what to do; None where all go together.

    ``given`` are values by names, of slurm.conf or of one partition, as ``place`` says.
    """
    there = {name.lower(): value for name, value in given.items() if value is not None}
    for ignored, taken in _NOT_TOGETHER:
        if {ignored.lower(), taken.lower()} <= there.keys():
            return ignored, f"{ignored} and {taken} exclude each other: Slurm ignores {ignored}", "leave one of them"
    if place == "slurm.conf" and (wrong := _preemption(there)):
        return wrong
    default, most = (minutes(there.get(name, "")) for name in ("defaulttime", "maxtime"))
    if default is not None and most is not None and default > most:
        return (
            "DefaultTime",
            f"DefaultTime {there['defaulttime']} is longer than MaxTime {there['maxtime']}",
            "lower it, or raise MaxTime",
        )
    return None


def _preemption(there: Mapping[str, str]) -> tuple[str, str, str] | None:
    """Judge a cluster's PreemptMode beside its PreemptType, as validate_and_set_defaults() in read_config.c does."""
    mode = set(there.get("preemptmode", "off").upper().split(",")) - {"GANG", "WITHIN"}
    kind = there.get("preempttype", "preempt/none").lower()
    if kind == "preempt/none" and mode - {"OFF"}:
        return "PreemptMode", f"PreemptMode {there['preemptmode']} needs a PreemptType", "set PreemptType: preempt/qos"
    if kind != "preempt/none" and mode <= {"OFF"}:
        fix = "set PreemptMode: REQUEUE, or CANCEL"
        return "PreemptType", f"PreemptType {there['preempttype']} needs a PreemptMode that is not OFF", fix
    if mode == {"SUSPEND"} and "GANG" not in there["preemptmode"].upper():
        return "PreemptMode", "PreemptMode SUSPEND needs GANG", 'set PreemptMode: "SUSPEND,GANG"'
    return None


def minutes(value: str) -> float | None:
    """Return how many minutes a time of Slurm's is, and None where that has no end or is none."""
    days, dash, rest = value.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in (*parts, *([days] if dash else []))) or len(parts) > 3:
        return None
    # After days, and where there are three, hours come first; else minutes do.
    first = 60.0 if dash or len(parts) == 3 else 1.0
    told = sum(int(part) * first / 60.0**place for place, part in enumerate(parts))
    return told + int(days) * 1440 if dash else told


def _is_ports(value: str, least: int) -> bool:
    if not re.fullmatch(r"\d{1,5}(-\d{1,5})?", value):
        return False
    low, _, high = value.partition("-")
    return 1 <= int(low) <= int(high or low) - least + 1 and int(high or low) <= 65535


def _accepted(place: str, parameter: Parameter) -> tuple[Callable[[str], bool], str]:
    """Return what tells whether a value is one of the parameter's, and how that is said."""
    name = parameter.name
    if name in _TIMES.get(place, "").split():
        return lambda value: bool(_TIME.fullmatch(value)), "minutes, hours:minutes:seconds, days-hours, or UNLIMITED"
    if least := _PORTS.get(place, {}).get(name):
        wanted = "a range of ports" if least > 1 else "a port, or a range of ports"
        return lambda value: _is_ports(value, least), f"{wanted}, from 1 to 65535, the lower one first"
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
        return lambda value: value.lower() in (*ON, *OFF), "YES or NO"
    if parameter.kind == "float":
        return lambda value: bool(re.fullmatch(r"\d+(\.\d+)?", value)), "a number"
    return lambda value: True, ""


def _whole(value: str, largest: int) -> bool:
    if value.lower() in _ENDLESS:
        return True
    return bool(_NUMBER.fullmatch(value)) and int(value, 16 if value[1:2] in ("x", "X") else 10) <= largest
