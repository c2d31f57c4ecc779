"""What the value of a parameter has to be: words, plugins, numbers within bounds, or a form of its own. Pure.

From slurm.conf(5), and from Slurm's source where that is stricter: _validate_and_set_defaults() in
src/common/read_config.c. What a release logs as an error and goes on without is no value here either: whoever wrote it
meant something.
"""

from __future__ import annotations

from provision.slurm.plugin_table import PLUGINS

_LEVELS = "quiet fatal error info verbose debug debug2 debug3 debug4 debug5 0 1 2 3 4 5 6 7 8 9"
_GOVERNORS = "Conservative OnDemand Performance PowerSave SchedUtil UserSpace"
#: debug_str2flags() in src/common/read_config.c, by release, as the tables say it.
_DEBUG_FLAGS = """
Accrue Agent AuditRPCs:24.05- AuditTLS:25.05- Backfill BackfillMap BurstBuffer cgroup ConMgr:24.11- CPU_Bind
CpuFrequency Data DB_Archive DB_Assoc DB_Event DB_Job DB_QOS DB_Query DB_Reservation DB_Resource DB_Step DB_TRES
DB_Usage DB_WCKey DBD_Agent:24.05- Dependency Elasticsearch Energy ExtSensors:-23.11 Federation FrontEnd:-24.11
Gang GLOB_SILENCE:23.11- Gres Hetjob Interconnect JAG JobAccountGather JobComp:23.02- JobContainer License
Metrics:25.11- MPI Namespace:25.11- Net NetRaw Network NetworkRaw NO_CONF_HASH NodeFeatures Power PowerSave
Priority Profile Protocol Reservation Route Sack:23.11- Script SelectType Steps Switch Task thread:26.05-
threads:26.05- TimeCray:-23.11 TLS:24.05- TraceJobs Trigger Triggers WorkQ WorkQueue
"""
_TIME_FORMATS = "iso8601 iso8601_ms rfc5424 rfc5424_ms rfc3339 clock short thread_id format_stderr"

TIMES = {
    "slurm.conf": "PreemptExemptTime PriorityCalcPeriod PriorityDecayHalfLife PriorityMaxAge",
    "slurmdbd.conf": "MaxQueryTimeRange",
    "partition": "DefaultTime MaxTime",
}
#: One of these words.
WORDS_OF = {
    "slurm.conf": {
        "EnforcePartLimits": "ALL ANY NO YES",
        "PriorityUsageResetPeriod": "NONE NOW DAILY WEEKLY MONTHLY QUARTERLY YEARLY",
        "ReturnToService": "0 1 2",
        "SlurmctldDebug": _LEVELS,
        "SlurmctldSyslogDebug": _LEVELS,
        "SlurmdDebug": _LEVELS,
        "SlurmdSyslogDebug": _LEVELS,
        # Of several versions of PMIx each is a plugin of its own: auxdir/x_ac_pmix.m4.
        "MpiDefault": "none openmpi pmi2 pmix pmix_v2 pmix_v3 pmix_v4 pmix_v5 cray_shasta",
    },
    "partition": {"State": "UP DOWN DRAIN INACTIVE"},
    # As slurmd's container has it.
    "cgroup.conf": {"CgroupMountpoint": "/sys/fs/cgroup"},
    "slurmdbd.conf": {"DebugLevel": _LEVELS, "DebugLevelSyslog": _LEVELS},
    "oci.conf": {
        "CreateEnvFile": "null newline disabled true false yes no",
        **dict.fromkeys(("StdIODebug", "SyslogDebug", "FileDebug"), _LEVELS),
    },
}
#: One or more of these words, with commas; with their releases, where not all have them.
LISTS_OF = {
    "slurm.conf": {
        "DebugFlags": _DEBUG_FLAGS,
        "AccountingStorageEnforce": "all associations limits nojobs nosteps qos safe wckeys",
        "CpuFreqGovernors": _GOVERNORS,
        "HealthCheckNodeState": "ALLOC ANY CYCLE IDLE MIXED NONDRAINED_IDLE START_ONLY",
        "LogTimeFormat": _TIME_FORMATS,
        "PreemptMode": "OFF CANCEL GANG PRIORITY REQUEUE SUSPEND WITHIN",
        "PrologFlags": "Alloc Contain DeferBatch ForceRequeueOnFail:23.02- NoHold RunInJob:24.05- Serial X11",
        "SuspendExcStates": "CLOUD DOWN DRAIN DYNAMIC_FUTURE DYNAMIC_NORM FAIL INVALID_REG MAINTENANCE NOT_RESPONDING "
        "PERFCTRS PLANNED RESERVED",
    },
    "acct_gather.conf": dict.fromkeys(
        ("ProfileHDF5Default", "ProfileInfluxDBDefault"), "All None Energy Filesystem Network Task"
    ),
    "helpers.conf": {"Flags": "rebootless"},
    # More than what Slurm uses itself: xstrstr(extra, "all") in src/plugins/cgroup/v2/cgroup_v2.c.
    "cgroup.conf": {"EnableExtraControllers": "all hugetlb io misc pids rdma"},
    "slurmdbd.conf": {
        "DebugFlags": _DEBUG_FLAGS,
        "LogTimeFormat": _TIME_FORMATS,
        "Parameters": "PreserveCaseUser",
        "PrivateData": "accounts events jobs nodes partitions reservations usage users",
    },
    "partition": {
        # xlate_cpu_bind_str() in src/common/slurm_resource_info.c.
        "CpuBind": "no none socket sockets ldom ldoms core cores thread threads off v verbose",
        # Not GANG, which is the cluster's as a whole: Slurm ignores it here.
        "PreemptMode": "OFF CANCEL PRIORITY REQUEUE SUSPEND WITHIN",
        "SelectTypeParameters": "CR_Core CR_Core_Memory CR_Socket CR_Socket_Memory",
    },
}
#: The type of the plugin that a parameter of slurm.conf names, and further values: what means that there is none, and
#: names that Slurm replaces by others. One plugin; of several types a list.
_PLUGIN = {
    # Not mysql and ctld_relay, which are slurmdbd's and slurmctld's own.
    "AccountingStorageType": ("", "accounting_storage/none accounting_storage/slurmdbd"),
    "AcctGatherFilesystemType": ("acct_gather_filesystem", "acct_gather_filesystem/none"),
    "AcctGatherProfileType": ("acct_gather_profile", "acct_gather_profile/none"),
    "BurstBufferType": ("burst_buffer", ""),
    "CertgenType": ("certgen", ""),
    "CertmgrType": ("certmgr", ""),
    "HashPlugin": ("hash", ""),
    "HttpParserType": ("http_parser", ""),
    "JobAcctGatherType": ("jobacct_gather", "jobacct_gather/none"),
    "JobCompType": ("jobcomp", "jobcomp/none"),
    # Later ones read it as NamespaceType.
    "JobContainerType": ("", "job_container/tmpfs job_container/none"),
    "MCSPlugin": ("mcs", "mcs/none"),
    "MetricsType": ("metrics", ""),
    "NamespaceType": ("namespace", "namespace/none"),
    "PreemptType": ("preempt", "preempt/none"),
    "PrioritySiteFactorPlugin": ("site_factor", "site_factor/none"),
    "PriorityType": ("priority", ""),
    "ProctrackType": ("proctrack", ""),
    "SchedulerType": ("sched", ""),
    "SelectType": ("select", ""),
    "SwitchType": ("switch", "switch/none"),
    "TLSType": ("tls", "tls/none"),
    "TopologyPlugin": ("topology", "topology/default topology/none"),
    "UrlParserType": ("url_parser", ""),
}
_PLUGIN_LIST = {
    "AcctGatherEnergyType": ("acct_gather_energy", "acct_gather_energy/none acct_gather_energy/rsmi"),
    "AcctGatherInterconnectType": ("acct_gather_interconnect", "acct_gather_interconnect/none"),
    "AuthAltTypes": ("auth", ""),
    "NodeFeaturesPlugins": ("node_features", ""),
    "PrEpPlugins": ("prep", ""),
    "TaskPlugin": ("task", "task/none"),
}
_TRES = (
    r"(billing|cpu|energy|mem|node|pages|vmem|fs/(disk|lustre)|ic/ofed|(license|bb)/[\w.:@-]+|gres/[a-z]\w*(:[\w.-]+)?)"
)
_WEIGHT = rf"{_TRES}=(\d+(\.\d*)?|\.\d+)[KMGTP]?"
_WEIGHTS = (rf"{_WEIGHT}(,{_WEIGHT})*", "TRES with weights, for example CPU=1.0,Mem=0.25G,GRES/gpu=2.0")
_GPU_FREQUENCY = r"(memory=)?(low|medium|high|highm1|\d+)"
_RATE = r"(task|energy|network|filesystem)=\d+"
_EXITS = (r"\d+(-\d+)?(,\d+(-\d+)?)*", "exit codes and ranges of them, for example 1-9,18")
_OCTET = r"(25[0-5]|2[0-4]\d|1?\d?\d)"
#: Of digits and points alone an address is made, and no name.
_HOST = (rf"{_OCTET}(\.{_OCTET}){{3}}|(?![\d.]+$)[\w.:\[\]-]{{1,253}}", "a host's name or address")
_MPI = r"(ports=\d{1,5}-\d{1,5}|disable_slurm_hydra_bootstrap(=\w+)?)"
#: src/interfaces/mcs.c.
_MCS = "enforced|noenforced|select|noselect|ondemandselect|privatedata|noprivatedata"
_FILE = (r"/\S*", "a whole path")
_PROGRAM = (r"/\S*", "a whole path without arguments, of a program where the daemons and jobs are")
_PROGRAMS = """
HealthCheckProgram MailProg ResumeFailProgram ResumeProgram ResvEpilog ResvProlog SlurmctldPrimaryOffProg
SlurmctldPrimaryOnProg SrunEpilog SrunProlog SuspendProgram TaskEpilog TaskProlog UnkillableStepProgram
""".split()  # noqa: SIM905 - read as a text, not as a list of quotes
#: A form of its own, and what it is called.
FORMS = {
    "partition": {
        # Slurm makes NO of YES:1 and of FORCE:0; Shared is the old name.
        **dict.fromkeys(
            ("OverSubscribe", "Shared"),
            (
                r"NO|EXCLUSIVE|YES(:0*([2-9]|[1-9]\d{1,3}))?|FORCE(:0*[1-9]\d{0,3})?",
                "NO, EXCLUSIVE, YES, YES:2 and more, FORCE, or FORCE:1 and more",
            ),
        ),
        "OverTimeLimit": (r"\d+|INFINITE|UNLIMITED", "minutes, or UNLIMITED"),
        "SuspendTime": (r"\d+|-1|INFINITE", "seconds, or INFINITE"),
        "TRESBillingWeights": _WEIGHTS,
    },
    "slurm.conf": {
        # slurm.conf(5); what can be counted of generic resources depends on the nodes'.
        "AccountingStorageTRES": (
            rf"{_TRES}(,{_TRES})*",
            "one or more of gres/NAME, gres/NAME:TYPE, license/NAME, bb/NAME, fs/disk, fs/lustre, ic/ofed, and what is "
            "counted anyway: billing, cpu, energy, mem, node, pages, vmem",
        ),
        "BcastExclude": (r"NONE|/[^,]*(,/[^,]*)*", "NONE, or whole paths with commas"),
        # cpu_freq_verify_def() in src/common/cpu_frequency.c.
        "CpuFreqDef": (
            rf"{_GOVERNORS.replace(' ', '|')}|low|medium|high|highm1|\d+",
            f"one of {_GOVERNORS.replace(' ', ', ')}, low, medium, high, highm1, or kHz",
        ),
        "GpuFreqDef": (
            rf"{_GPU_FREQUENCY}(,({_GPU_FREQUENCY}|verbose))*",
            "low, medium, high, highm1 or MHz; after memory= that of the memory",
        ),
        # acct_gather_parse_freq() in src/interfaces/acct_gather.c takes what it does not know for nothing said.
        "JobAcctGatherFrequency": (
            rf"\d+|{_RATE}(,{_RATE})*",
            "seconds, or one or more of task=, energy=, network=, filesystem= with seconds",
        ),
        # _build_license_list() in src/slurmctld/licenses.c; slurmctld does not start with another.
        "Licenses": (r"[^\s,;:=]+([:=]\d{1,9})?([,;][^\s,;:=]+([:=]\d{1,9})?)*", "names, with a number after a colon"),
        "MCSParameters": (
            rf"({_MCS})(,({_MCS}))*(:[\w.|-]+)?",
            f"one or more of {_MCS.replace('|', ', ')}, and groups after a colon",
        ),
        "MpiParams": (rf"{_MPI}(,{_MPI})*", "ports=LOW-HIGH, or disable_slurm_hydra_bootstrap"),
        "PriorityWeightTRES": _WEIGHTS,
        "RequeueExit": _EXITS,
        "RequeueExitHold": _EXITS,
        "SuspendTime": (r"\d+|-1|INFINITE|NONE", "seconds, or INFINITE"),
        **dict.fromkeys(("AccountingStorageHost", "AccountingStorageBackupHost", "JobCompHost", "MailDomain"), _HOST),
        "SlurmctldAddr": _HOST,
        "TmpFS": _FILE,
        # Run from wherever a daemon or a job happens to be.
        **dict.fromkeys(_PROGRAMS, _PROGRAM),
        # Only of this one slurmd looks for arguments: _rpc_reboot() in src/slurmd/slurmd/req.c.
        "RebootProgram": (r'"?/.*', "a whole path, and arguments, of a program where slurmd is"),
    },
    # In hours, days or months; a number alone is months: slurmdb_parse_purge() in src/common/slurmdb_defs.c.
    "slurmdbd.conf": {
        # SLURMDB_PURGE_BASE in slurm/slurmdb.h: 16 bits; 0 would purge all.
        f"Purge{what}After": (
            r"([1-9]\d{0,3}|[1-5]\d{4})(h|hours?|d|days?|m|months?)?",
            "hours, days or months, for example 24months",
        )
        for what in ("Event", "Job", "JobEnv", "JobScript", "Resv", "Step", "Suspend", "TXN", "Usage")
    },
    "job_container.conf": {
        "BasePath": (r"(/(?!\.\.?(/|$))[^/\s]+)+|none", "a whole path, written plainly, or none"),
        "Dirs": (r"/[^,]*(,/[^,]*)*", "whole paths with commas"),
        **dict.fromkeys(("InitScript", "CloneNSScript", "CloneNSEpilog"), _FILE),
    },
    "cgroup.conf": {"CgroupSlice": (r"[A-Za-z0-9:_.@-]+\.slice", "a slice of systemd's, for example system.slice")},
    "acct_gather.conf": {"ProfileHDF5Dir": _FILE},
    "helpers.conf": {"Helper": _FILE},
    "oci.conf": {"ContainerPath": _FILE, "MountSpoolDir": _FILE, "SrunPath": _FILE},
    "topology.conf": {"BlockSizes": (r"\d+(,\d+)*", "whole numbers with commas")},
}
_PORT = (1, 65535)
_SWITCH = (0, 1)
#: From which to which a whole number is, where its type alone would let in what Slurm refuses, or sets to another one.
#: None: to the type's largest, or UNLIMITED.
BOUNDS: dict[str, dict[str, tuple[int, int | None]]] = {
    "slurm.conf": {
        "AccountingStoragePort": _PORT,
        "FairShareDampeningFactor": (1, None),
        # MAX_JOB_ID in slurm/slurm.h.
        "FirstJobId": (1, 0x03FFFFFF),
        "GroupUpdateForce": _SWITCH,
        "JobCompPort": _PORT,
        "JobFileAppend": _SWITCH,
        "JobRequeue": _SWITCH,
        "KillOnBadExit": _SWITCH,
        "MaxArraySize": (0, 4_000_001),
        "MaxDBDMsgs": (10_000, None),
        "MaxJobCount": (1, None),
        "MaxJobId": (1, 0x03FFFFFF),
        # MAX_SLURM_NODES there.
        "MaxNodeCount": (1, 65_536),
        "MaxStepCount": (1, None),
        "MaxTasksPerNode": (1, 65_533),
        # With 0 no message would be answered in time.
        "MessageTimeout": (1, None),
        "MinJobAge": (0, None),
        "TCPTimeout": (1, None),
        "PropagatePrioProcess": (0, 2),
        "SchedulerTimeSlice": (5, 65_533),
        "SlurmdPort": (1024, 65535),
        "TreeWidth": (1, 65_533),
    },
    "partition": {
        **dict.fromkeys(("MaxCPUsPerNode", "MaxCPUsPerSocket", "MaxNodes"), (1, None)),
        # Of nodes; without end there is no job.
        "MinNodes": (0, 65_536),
    },
    "cgroup.conf": {"MemorySwappiness": (0, 100), "SystemdTimeout": (1, None)},
    "slurmdbd.conf": {"MessageTimeout": (1, None), "TCPTimeout": (1, None)},
}
#: The same of numbers with a fraction: percentages. Of a limit of 0 MinRAMSpace is left, 30 MB for any job, and
#: who writes 1 means the whole.
FRACTIONS: dict[str, dict[str, tuple[float, float]]] = {
    "cgroup.conf": {
        "AllowedRAMSpace": (10, 1000),
        "AllowedSwapSpace": (0, 1000),
        "MaxRAMPercent": (10, 100),
        "MaxSwapPercent": (0, 100),
    },
}


def plugins_of(name: str, release: str) -> tuple[list[str], bool] | None:
    """Return what a parameter may name in a release, and whether several; None where it names no plugin."""
    several = name in _PLUGIN_LIST
    kind, further = (_PLUGIN_LIST if several else _PLUGIN).get(name, (None, ""))
    if kind is None:
        return None
    found = []
    for word in PLUGINS.get(kind, "").split():
        plugin, _, releases = word.partition(":")
        since, _, until = releases.partition("-")
        if since <= release and (not until or release <= until):
            found.append(plugin)
    return sorted({*found, *further.split()}), several
