"""Which parameters a release of Slurm reads, and which values it takes. Pure.

Names, types and releases are those of Slurm's source (:mod:`provision.slurm.parameter_table`); what a text has to be is
in its code and in slurm.conf(5). An unknown key stops every daemon and every command, and a wrong value often does; so
neither may reach a cluster that runs.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from provision.slurm.parameter_forms import BOUNDS, FORMS, FRACTIONS, LISTS_OF, TIMES, WORDS_OF, plugins_of
from provision.slurm.parameter_table import NEWEST, TABLE
from provision.slurm.word_values import has_words, nearest, of_release, wrong_word

#: The files, and the lines ``PartitionName=`` in slurm.conf.
PLACES = {
    "slurm.conf": "slurm.conf",
    "partition": "a partition",
    "cgroup.conf": "cgroup.conf",
    "slurmdbd.conf": "slurmdbd.conf",
    # Of these the inventory has the text: provision.slurm.file_lines.
    **{
        name: name
        for name in ("acct_gather.conf", "helpers.conf", "job_container.conf", "mpi.conf", "oci.conf", "topology.conf")
    },
}

#: Of what Slurm reads into whole numbers: s_p_handle_uint16() and its kin in src/common/parse_config.c.
_LARGEST = {"uint16": 2**16 - 1, "uint32": 2**32 - 1, "uint64": 2**64 - 1}
_ENDLESS = ("infinite", "unlimited")
#: s_p_handle_boolean() there.
ON, OFF = ("yes", "up", "true", "1"), ("no", "down", "false", "0")
#: _is_valid_timespec() in src/common/parse_time.c: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:...].
_TIME = re.compile(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|-1|infinite|unlimited", re.IGNORECASE)
_FRACTION = re.compile(r"\d+(\.\d+)?")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|\d+")
#: Of these words one stands in a list: preempt_mode_num(), _parse_select_type_param() in src/common/.
_ONE_OF = {
    "PreemptMode": ("OFF CANCEL REQUEUE SUSPEND", "GANG WITHIN"),
    "SelectTypeParameters": (
        "CR_CPU CR_CPU_Memory CR_Core CR_Core_Memory CR_Memory CR_Socket CR_Socket_Memory",
        "CR_CPU CR_ONE_TASK_PER_CORE",
        "CR_CPU_Memory CR_ONE_TASK_PER_CORE",
    ),
    "TaskPluginParam": ("None Sockets Cores Threads",),
    "CpuBind": ("no none socket sockets ldom ldoms core cores thread threads off",),
    "LogTimeFormat": ("iso8601 iso8601_ms rfc5424 rfc5424_ms rfc3339 clock short thread_id",),
}
#: What scontrol prints and slurm.conf does not have, with what to do.
_PRINTED = {"jobdefaults": "write DefCpuPerGPU and DefMemPerGPU, which scontrol shows as JobDefaults"}
#: Those below are root's: slurmctld is none, nor is whoever calls srun.
_FIRST_PORT = 1024
#: MAX_EXIT_VAL in src/slurmctld/job_mgr.c.
_LAST_EXIT = 255
#: How many ports a range has at least; one port is no range of SrunPortRange's.
_PORTS = {"slurm.conf": {"SlurmctldPort": 1, "SrunPortRange": 2}}


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
    return "slurm.conf(5)" if place == "partition" else f"{place}(5)"


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


def misfit(place: str, name: str, value: str, release: str = NEWEST) -> str:
    """Return what the value of a parameter must be, where it is something else; empty for one that Slurm takes."""
    found = known(place).get(name.lower())
    if found is None:
        return ""
    daemons = place in ("slurm.conf", "slurmdbd.conf")
    if release <= NEWEST and daemons and (plugins := plugins_of(found.name, release)):
        return _unknown_plugin(value, *plugins)
    accepts, what = _accepted(place, found, release)
    if not accepts(value):
        return f"it must be {what}" + _meant(place, found.name, value, release)
    given = [word for word in value.split(",") if word]
    for words in _ONE_OF.get(found.name, ()):
        if len(both := [word for word in given if word.lower() in words.lower().split()]) > 1:
            return f"{' and '.join(both)} exclude each other"
    if daemons and has_words(found.name) and found.name not in LISTS_OF.get(place, {}) and release <= NEWEST:
        return wrong_word(found.name, given, release)
    return _beside(found.name, given)


def _beside(name: str, given: Sequence[str]) -> str:
    """Return what is wrong with the items of a list beside each other."""
    if name in ("TRESBillingWeights", "PriorityWeightTRES"):
        names = [item.lower().partition("=")[0] for item in given]
        if twice := [one for one in names if names.count(one) > 1]:
            return f"{twice[0]} is there twice"
    for item in given if name in ("RequeueExit", "RequeueExitHold") else ():
        low, _, high = item.partition("-")
        if not int(low) <= int(high or low) <= _LAST_EXIT:
            return f"{item} is no range of exit codes from 0 to {_LAST_EXIT}, the lower one first"
        if not int(low):
            return f"{item} has 0, the exit code of success: each job that succeeds would be queued again"
    return ""


def _meant(place: str, name: str, value: str, release: str) -> str:
    """Return the question for the first word of a value that is none of those which the parameter takes."""
    words = WORDS_OF.get(place, {}).get(name) or LISTS_OF.get(place, {}).get(name)
    # What a form has in letters is a word of it.
    form = re.sub(r"\\.", " ", FORMS.get(place, {}).get(name, ("",))[0])
    known = of_release(words, release) if words else re.findall(r"[A-Za-z][A-Za-z0-9_/]+", form)
    given = [word.partition("=")[0] for word in value.split(",")]
    return nearest(next((word for word in given if word.lower() not in map(str.lower, known)), ""), known)


def _unknown_plugin(value: str, plugins: Sequence[str], several: bool) -> str:
    """Return what is wrong with the first plugin that the release does not have: its daemons would not start."""
    items = value.lower().split(",") if several else [value]
    if len(set(items)) < len(items):
        return "it names a plugin twice"
    for item in items:
        if item.lower() not in plugins:
            kind = plugins[0].partition("/")[0] + "/"
            full = item if "/" in item else kind + item
            return f"it must be {'one or more' if several else 'one'} of {', '.join(plugins)}" + nearest(full, plugins)
    return ""


def _is_ports(value: str, least: int) -> bool:
    if not re.fullmatch(r"\d{1,5}(-\d{1,5})?", value):
        return False
    low, _, high = value.partition("-")
    return _FIRST_PORT <= int(low) <= int(high or low) - least + 1 and int(high or low) <= 65535


def _accepted(place: str, parameter: Parameter, release: str) -> tuple[Callable[[str], bool], str]:
    """Return what tells whether a value is one of the parameter's, and how that is said."""
    name = parameter.name
    if name in TIMES.get(place, "").split():
        return lambda value: bool(_TIME.fullmatch(value)), "minutes, hours:minutes:seconds, days-hours, or UNLIMITED"
    if least := _PORTS.get(place, {}).get(name):
        wanted = "a range of ports" if least > 1 else "a port, or a range of ports"
        return lambda value: _is_ports(value, least), f"{wanted}, from {_FIRST_PORT} to 65535, the lower one first"
    if form := FORMS.get(place, {}).get(name):
        return lambda value: bool(re.fullmatch(form[0], value, re.IGNORECASE)), form[1]
    if words := WORDS_OF.get(place, {}).get(name):
        return lambda value: value.lower() in words.lower().split(), f"one of {', '.join(words.split())}"
    if words := LISTS_OF.get(place, {}).get(name):
        here = of_release(words, release)
        return lambda value: set(value.lower().split(",")) <= {word.lower() for word in here}, (
            f"one or more of {', '.join(here)}"
        )
    if bounds := BOUNDS.get(place, {}).get(name):
        least, most = bounds
        last = _LARGEST[parameter.kind] if most is None else most
        what = f"a whole number from {least} to {last}{', or UNLIMITED' if most is None else ''}"
        return lambda value: _whole(value, last, least, endless=most is None), what
    if largest := _LARGEST.get(parameter.kind):
        return lambda value: _whole(value, largest), f"a whole number from 0 to {largest}, or UNLIMITED"
    if parameter.kind == "boolean":
        return lambda value: value.lower() in (*ON, *OFF), "YES or NO"
    if part := FRACTIONS.get(place, {}).get(name):
        return lambda value: bool(_FRACTION.fullmatch(value)) and part[0] <= float(value) <= part[1], (
            f"a percentage from {part[0]} to {part[1]}"
        )
    if parameter.kind == "float":
        return lambda value: bool(_FRACTION.fullmatch(value)), "a number"
    return lambda value: True, ""


def _whole(value: str, largest: int, least: int = 0, *, endless: bool = True) -> bool:
    if value.lower() in _ENDLESS:
        return endless
    return bool(_NUMBER.fullmatch(value)) and least <= int(value, 16 if value[1:2] in ("x", "X") else 10) <= largest
