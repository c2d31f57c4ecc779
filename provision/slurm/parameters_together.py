"""Which parameters contradict each other, in slurm.conf or in one partition. Pure."""

from __future__ import annotations

from collections.abc import Mapping

#: What is wrong with a parameter beside another: its name, the sentence, and what to do.
Wrong = tuple[str, str, str]

#: Of two, Slurm takes the second, and logs that it ignores the first.
_NOT_TOGETHER = (("DefMemPerCPU", "DefMemPerNode"), ("MaxMemPerCPU", "MaxMemPerNode"))
#: Of a list's words, two that exclude each other: slurmctld does not start, or ignores one.
_WORDS_APART = {
    "LaunchParameters": ("enable_nss_slurm", "disable_send_gids"),
    "JobAcctGatherParams": ("usepss", "noshared"),
    "SlurmdParameters": ("l3cache_as_socket", "numa_node_as_socket"),
}


def together(place: str, given: Mapping[str, str | None]) -> Wrong | None:
    """Return what is wrong with a parameter beside another; None where all go together.

    ``given`` are values by names, of slurm.conf or of one partition, as ``place`` says.
    """
    there = {name.lower(): value for name, value in given.items() if value is not None}
    for ignored, taken in _NOT_TOGETHER:
        if {ignored.lower(), taken.lower()} <= there.keys():
            return ignored, f"{ignored} and {taken} exclude each other: Slurm ignores {ignored}", "leave one of them"
    if place == "slurmdbd.conf":
        return _network(there) or _database(there)
    if place == "slurm.conf":
        return _preemption(there) or _daemons(there)
    for allowed, denied in (("AllowAccounts", "DenyAccounts"), ("AllowQos", "DenyQos")):
        if there.get(allowed.lower(), "ALL").upper() != "ALL" and denied.lower() in there:
            return denied, f"{allowed} and {denied} exclude each other: Slurm ignores {denied}", "leave one of them"
    if {"oversubscribe", "shared"} <= there.keys():
        return "Shared", "Shared is the old name of OverSubscribe", "remove Shared"
    if minutes(there.get("maxtime", "")) == 0:
        return "MaxTime", "MaxTime is 0: no job could start", "write minutes, or remove it"
    default, most = (minutes(there.get(name, "")) for name in ("defaulttime", "maxtime"))
    if default is not None and most is not None and default > most:
        return (
            "DefaultTime",
            f"DefaultTime {there['defaulttime']} is longer than MaxTime {there['maxtime']}",
            "lower it, or raise MaxTime",
        )
    least, largest = there.get("minnodes", ""), there.get("maxnodes", "")
    if least.isdecimal() and largest.isdecimal() and int(least) > int(largest):
        return "MinNodes", f"MinNodes {least} is more than MaxNodes {largest}: no job could start", "lower MinNodes"
    return None


def _daemons(there: Mapping[str, str]) -> Wrong | None:
    """Judge what slurmctld does not start with: _validate_and_set_defaults() in src/common/read_config.c."""
    for name, words in _WORDS_APART.items():
        if set(words) <= set(there.get(name.lower(), "").lower().split(",")):
            return name, f"{name}: {' and '.join(words)} exclude each other", "leave one of them"
    first, last = there.get("firstjobid", "1"), there.get("maxjobid", "")
    if first.isdecimal() and last.isdecimal() and int(first) > int(last):
        return "FirstJobId", f"FirstJobId {first} is more than MaxJobId {last}", "lower it"
    categories, of = there.get("mcsplugin", "mcs/none").lower(), there.get("mcsparameters")
    if of and categories == "mcs/none":
        return "MCSParameters", "MCSParameters needs an MCSPlugin", "set MCSPlugin: mcs/account, or remove it"
    if categories == "mcs/group" and not of:
        return "MCSPlugin", "MCSPlugin mcs/group needs MCSParameters", "name the groups there; slurm.conf(5)"
    if there.get("prioritydecayhalflife") in ("0", "0:00", "0-0") and (
        there.get("priorityusageresetperiod", "NONE").upper() == "NONE"
    ):
        fix = "set PriorityUsageResetPeriod, for example to MONTHLY"
        return "PriorityDecayHalfLife", "PriorityDecayHalfLife is 0, and nothing resets what was used", fix
    if there.get("selecttype", "").lower() == "select/linear":
        if there.get("topologyplugin", "").lower() == "topology/tree":
            return (
                "TopologyPlugin",
                "TopologyPlugin topology/tree needs SelectType select/cons_tres",
                "remove SelectType",
            )
        if "maxnodecount" in there:
            return "MaxNodeCount", "MaxNodeCount needs SelectType select/cons_tres", "remove SelectType"
    return _network(there)


def _network(there: Mapping[str, str]) -> Wrong | None:
    network = set(there.get("communicationparameters", "").lower().split(","))
    if "disableipv4" in network and "enableipv6" not in network:
        fix = "add EnableIPv6, or remove DisableIPv4"
        return "CommunicationParameters", "CommunicationParameters: DisableIPv4 leaves no network", fix
    return None


def _database(there: Mapping[str, str]) -> Wrong | None:
    if minutes(there.get("maxquerytimerange", "")) == 0:
        return "MaxQueryTimeRange", "MaxQueryTimeRange is 0: every question would be refused", "write days, as 60-0"
    return None


def _preemption(there: Mapping[str, str]) -> Wrong | None:
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
