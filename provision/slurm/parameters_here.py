"""Which parameters of slurm.conf contradict what the cluster sets beside them, and what its containers have. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provision.slurm.names import SRUN_PORTS
from provision.slurm.parameters_together import minutes

#: What is wrong with a parameter: its name, the sentence, and what to do.
Wrong = tuple[str, str, str]

#: Slurm's ports where nothing else is said, slurmdbd's among them.
PORTS = {"SlurmctldPort": "6817", "SlurmdPort": "6818", "AccountingStoragePort": "6819", "SrunPortRange": SRUN_PORTS}
#: Where slurmctld can write: its root is read-only, and /tmp goes with its container.
_STATE = "/var/spool/slurmctld/"
#: Seconds, as MessageTimeout is where nothing is said: an answer may take so long.
_LEAST_SILENCE = 10
#: Where the machine's munged listens.
_SOCKETS = ("/run/munge/munge.socket.2", "/var/run/munge/munge.socket.2")
#: Times that switch nothing off.
NEVER = ("", "-1", "infinite", "none")


def beside_ours(given: Mapping[str, str | None]) -> Wrong | None:
    """Return what is wrong with a parameter of the site's; None where all of them can work here."""
    there = {name.lower(): value for name, value in given.items() if value is not None}
    removed = {name.lower() for name, value in given.items() if value is None}
    return next(
        (
            wrong
            for judged in (
                _times(there),
                _zero(there),
                _selection(there, removed),
                _scripts(there),
                _programs(there, given),
                _jobcomp(there),
            )
            for wrong in judged
        ),
        None,
    )


def unkillable(given: Mapping[str, object]) -> str:
    """Return seconds for UnkillableStepTimeout: five minutes, or five times the site's MessageTimeout."""
    message = next((str(value) for name, value in given.items() if name.lower() == "messagetimeout"), "")
    return str(min(65535, max(300, 5 * int(message)))) if message.isdecimal() else "300"


def _range(value: str) -> tuple[int, int]:
    low, _, high = value.partition("-")
    return _number(low), _number(high or low)


def _number(text: str) -> int:
    """Return a number as Slurm reads it, which takes hexadecimal ones, too."""
    return int(text, 16) if text.lower().startswith("0x") else int(text)


def ports_of_mpi(value: str) -> str:
    """Return the range of ports that MpiParams reserves for steps; empty for none."""
    found = re.search(r"(?:^|,)ports=(\d{1,5}-\d{1,5})(?:,|$)", value)
    return found[1] if found else ""


def ports(given: Mapping[str, str | None], *, alone: bool, database: bool) -> Wrong | None:
    """Return what is wrong with ports that two would listen on.

    ``alone``: the controller is no compute node. ``database``: slurmdbd runs on it.
    """
    there = {name.lower(): value for name, value in given.items() if value is not None}
    said = {name: there.get(name.lower(), default) for name, default in PORTS.items()}
    if found := ports_of_mpi(there.get("mpiparams", "")):
        said["MpiParams"] = found
        low, high = _range(found)
        if not 1024 <= low < high <= 65535:
            return (
                "MpiParams",
                f"MpiParams has ports={found}",
                "write a range from 1024 to 65535, the lower one first",
            )
    named = list(said.items())
    for number, (name, value) in enumerate(named):
        for other, its in named[:number]:
            if not {name.lower(), other.lower()} & there.keys() or _apart({name, other}, value == its, alone, database):
                continue
            (low, high), (first, last) = _range(value), _range(its)
            if low <= last and first <= high:
                told = name if name.lower() in there else other
                return told, f"{other} {its} and {name} {value} are the same ports", "give each its own"
    return None


def _apart(two: set[str], equal: bool, alone: bool, database: bool) -> bool:
    """Tell whether two that have the same ports are on different machines: on nodes, and on the controller."""
    if "AccountingStoragePort" in two and not database:
        return True
    return (
        alone
        and not equal
        and two
        in (
            {"SlurmctldPort", "SlurmdPort"},
            {"SlurmctldPort", "MpiParams"},
            {"AccountingStoragePort", "SlurmdPort"},
            {"AccountingStoragePort", "MpiParams"},
        )
    )


def _times(there: Mapping[str, str]) -> Iterator[Wrong]:
    kill, message = there.get("unkillablesteptimeout", ""), there.get("messagetimeout", "10")
    if kill.isdecimal() and message.isdecimal() and int(kill) < 5 * int(message):
        problem = f"UnkillableStepTimeout is {kill}: below 5 times MessageTimeout ({message}) nodes go down"
        yield "UnkillableStepTimeout", problem, f"set it to {5 * int(message)} or more, or remove it"
    silent = there.get("slurmdtimeout", "0")
    if silent.isdecimal() and 0 < int(silent) < _LEAST_SILENCE:
        problem = f"SlurmdTimeout is {silent}: a node that is busy for some seconds goes down, and its jobs end"
        yield "SlurmdTimeout", problem, "it is in seconds: 300 is Slurm's own"
    weights = {name: value for name, value in there.items() if re.fullmatch(r"priorityweight(?!tres)\w+", name)}
    if sum(int(value) for value in weights.values() if value.isdecimal()) >= 2**32 - 2:
        name = max(weights, key=lambda one: int(weights[one]) if weights[one].isdecimal() else 0)
        yield name, "the weights of priority are more than 4294967293 together: a priority would overflow", "lower them"


def _zero(there: Mapping[str, str]) -> Iterator[Wrong]:
    if minutes(there.get("prioritycalcperiod", "")) == 0:
        yield "PriorityCalcPeriod", "PriorityCalcPeriod is 0", "write minutes, as 5, or remove it"


def _selection(there: Mapping[str, str], removed: set[str]) -> Iterator[Wrong]:
    linear = there.get("selecttype", "").lower() == "select/linear"
    words = there.get("selecttypeparameters", "CR_Core_Memory").lower().split(",")
    if linear and "selecttypeparameters" not in removed and set(words) - {"cr_memory", "cr_lln"}:
        problem = "SelectType select/linear gives whole nodes, and takes no SelectTypeParameters but CR_Memory"
        yield "SelectType", problem, "set SelectTypeParameters: CR_Memory, or remove SelectType"
    # select_p_node_init() in src/plugins/select/cons_tres/select_cons_tres.c: slurmctld does not start.
    if not linear and not any(re.fullmatch(r"cr_(cpu|core|socket)(_memory)?", word) for word in words):
        given = there["selecttypeparameters"]
        problem = f"SelectTypeParameters is {given}: it needs one of CR_Core_Memory, CR_CPU_Memory, CR_Socket_Memory"
        meant = [word for word in given.split(",") if word.lower() != "cr_memory"]
        yield "SelectTypeParameters", problem, f"write SelectTypeParameters: {','.join(['CR_Core_Memory', *meant])!r}"
    gather = there.get("jobacctgathertype", "").lower() == "jobacct_gather/linux"
    params = there.get("jobacctgatherparams", "").lower().split(",")
    if not gather and (word := next((one for one in ("usepss", "noshared") if one in params), "")):
        problem = (
            f"JobAcctGatherParams has {'UsePss' if word == 'usepss' else 'NoShared'}, which jobacct_gather/linux reads"
        )
        yield "JobAcctGatherParams", problem, "remove it: control groups count a job's memory"
    bound = there.get("taskplugin", "task/cgroup").lower().split(",")
    if "oomkillstep" in there.get("taskpluginparam", "").lower().split(",") and "task/cgroup" not in bound:
        yield "TaskPluginParam", "TaskPluginParam OOMKillStep needs task/cgroup", "add it to TaskPlugin"
    flags = there.get("prologflags", "").lower().split(",")
    if "x11" in flags and there.get("proctracktype", "").lower() == "proctrack/linuxproc":
        yield "PrologFlags", "PrologFlags X11 needs proctrack/cgroup", "remove ProctrackType"
    if "none" in (words := there.get("clifilterplugins", "").lower().split(",")) and len(words) > 1:
        yield "CliFilterPlugins", "CliFilterPlugins: none stands with another, and Slurm ignores all", "remove none"


def _scripts(there: Mapping[str, str]) -> Iterator[Wrong]:
    """Refuse what runs a script in Lua in users' own processes; slurmctld's are in /etc/slurm on the controller."""
    words = there.get("clifilterplugins", "").split(",")
    if found := next((word for word in words if word.lower().rpartition("/")[2] == "lua"), ""):
        problem = f"CliFilterPlugins has {found}, whose cli_filter.lua slurm_conf_files cannot give to users' commands"
        yield "CliFilterPlugins", problem, f"remove {found}; job_submit.lua is read by slurmctld, on the controller"


def _programs(there: Mapping[str, str], given: Mapping[str, object]) -> Iterator[Wrong]:
    if "suspendtime" in there and there["suspendtime"].lower() not in NEVER:
        missing = [name for name in ("SuspendProgram", "ResumeProgram") if name.lower() not in there]
        if missing:
            problem = f"SuspendTime is set without {' and '.join(missing)}: no node would be switched off"
            yield "SuspendTime", problem, f"set {' and '.join(missing)}, or remove SuspendTime"
    program, interval, asked = "HealthCheckProgram", "HealthCheckInterval", there.get("healthcheckinterval", "0")
    if program.lower() in there and asked == "0":
        yield program, f"{program} is never run without {interval}", f"set {interval}: 300, or remove {program}"
    for name in (interval, "HealthCheckNodeState"):
        if program.lower() not in there and there.get(name.lower(), "0") != "0":
            yield name, f"{name} is set without {program}", f"set {program}, or remove {name}"
    if there.get("slurmduser", "root").lower() not in ("root", "0"):
        yield "SlurmdUser", f"SlurmdUser is {there['slurmduser']}: slurmd becomes each job's user", "remove SlurmdUser"
    yield from sockets(there)
    key = re.search(r"(?:^|,)jwt_key=([^,]*)", there.get("authaltparameters", ""))
    if "authaltparameters" in there and "authalttypes" not in there:
        yield "AuthAltParameters", "AuthAltParameters is read with AuthAltTypes alone", "set AuthAltTypes: auth/jwt"
    elif key and not re.fullmatch(rf"({_STATE}|/etc/slurm/)[\w.-]+", key[1]):
        problem = f"AuthAltParameters has jwt_key={key[1]}, which slurmctld's container has not"
        yield "AuthAltParameters", problem, f"write jwt_key={_STATE}jwt_hs256.key"
    if {"propagateresourcelimits", "propagateresourcelimitsexcept"} <= there.keys():
        problem = "PropagateResourceLimits and PropagateResourceLimitsExcept exclude each other"
        yield "PropagateResourceLimits", problem, "leave one of them"
    weights = [name for name in given if re.fullmatch(r"PriorityWeight\w+", name, re.I) and name.lower() in there]
    if there.get("prioritytype", "").lower() == "priority/basic" and weights:
        yield weights[0], f"{weights[0]} is read with priority/multifactor alone", "remove PriorityType"
    if "acctgathernodefreq" in there and "acctgatherenergytype" not in there:
        yield "AcctGatherNodeFreq", "AcctGatherNodeFreq measures nothing without AcctGatherEnergyType", "remove it"


def sockets(there: Mapping[str, str]) -> Iterator[Wrong]:
    """Yield what is wrong with the socket of munged that AuthInfo names, in slurm.conf or slurmdbd.conf."""
    for word in there.get("authinfo", "").split(","):
        name, _, value = ("socket", "=", word) if word.startswith("/") else word.partition("=")
        if name.lower() == "socket" and value not in _SOCKETS:
            fix = "remove socket= from AuthInfo"
            yield "AuthInfo", f"AuthInfo has socket={value}: munged's is {_SOCKETS[0]}", fix


def _jobcomp(there: Mapping[str, str]) -> Iterator[Wrong]:
    kind, where = there.get("jobcomptype", "jobcomp/none").lower(), there.get("jobcomploc")
    if where is not None and kind == "jobcomp/none":
        yield "JobCompLoc", "JobCompLoc is read with a JobCompType alone", "set JobCompType, or remove JobCompLoc"
    if kind == "jobcomp/filetxt" and not re.fullmatch(rf"{_STATE}[A-Za-z0-9._-]+", where or ""):
        told = f"JobCompLoc is {where}" if where else "JobCompLoc is not set, which is /var/log/slurm_jobcomp.log"
        problem = f"{told}: slurmctld's container is read-only there"
        yield "JobCompLoc" if where else "JobCompType", problem, f"set JobCompLoc: {_STATE}jobcomp.log"
    if kind == "jobcomp/elasticsearch" and not re.fullmatch(r"https?://\S+", where or "", re.IGNORECASE):
        told = f"JobCompLoc is {where}" if where else "JobCompLoc is not set"
        fix = "set JobCompLoc: http://elastic.site.example:9200/slurm/_doc"
        yield "JobCompLoc" if where else "JobCompType", f"{told}: jobcomp/elasticsearch needs an address", fix
