"""Slurm's own names: the parameters of a partition, and those of slurm.conf that are ours to set."""

from __future__ import annotations

#: PartitionName lines: slurm.conf(5), "PARTITION CONFIGURATION", of 22.05 to 25.11.
PARTITION_PARAMETERS = frozenset(
    """
    AllocNodes AllowAccounts AllowGroups AllowQos Alternate CpuBind Default DefaultTime DefCpuPerGPU DefMemPerCPU
    DefMemPerGPU DefMemPerNode DenyAccounts DenyQos DisableRootJobs ExclusiveTopo ExclusiveUser GraceTime Hidden LLN
    MaxCPUsPerNode MaxCPUsPerSocket MaxMemPerCPU MaxMemPerNode MaxNodes MaxTime MinNodes Nodes OverSubscribe
    OverTimeLimit PartitionName PowerDownOnIdle PreemptMode PriorityJobFactor PriorityTier QOS ReqResv ResumeTimeout
    RootOnly SelectTypeParameters State SuspendTime SuspendTimeout Topology TRESBillingWeights
    """.split()  # noqa: SIM905 - read as a text, not as a list of quotes
)

#: The parameters of slurm.conf(5), of 22.05 to 25.11, that are not owned below. For suggestions only: a newer Slurm has
#: more, and what is none of these and like none of them is left for Slurm to judge.
CONF_PARAMETERS = frozenset(
    """
    AccountingStorageBackupHost AccountingStorageEnforce AccountingStorageExternalHost AccountingStorageHost
    AccountingStorageParameters AccountingStoragePass AccountingStoragePort AccountingStorageTRES AccountingStorageType
    AccountingStorageUser AccountingStoreFlags AcctGatherEnergyType AcctGatherFilesystemType AcctGatherInterconnectType
    AcctGatherNodeFreq AcctGatherProfileType AllowSpecResourcesUsage AuthAltParameters AuthAltTypes AuthInfo
    BatchStartTimeout BcastExclude BcastParameters BurstBufferType CertgenParameters CertgenType CertmgrParameters
    CertmgrType CliFilterParameters CliFilterPlugins CommunicationParameters CompleteWait CpuFreqDef CpuFreqGovernors
    DataParserParameters DebugFlags DefCpuPerGPU DefMemPerCPU DefMemPerGPU DefMemPerNode DependencyParameters
    DisableRootJobs EioTimeout EnforcePartLimits Epilog EpilogMsgTime EpilogSlurmctld EpilogTimeout
    FairShareDampeningFactor FederationParameters FirstJobId GetEnvTimeout GpuFreqDef GroupUpdateForce GroupUpdateTime
    HashPlugin HealthCheckInterval HealthCheckNodeState HealthCheckProgram HttpParserType InactiveLimit
    InteractiveStepOptions JobAcctGatherFrequency JobAcctGatherParams JobAcctGatherType JobCompHost JobCompLoc
    JobCompParams JobCompPass JobCompPassScript JobCompPort JobCompType JobCompUser JobContainerType JobFileAppend
    JobRequeue JobSubmitPlugins KeepAliveTime KillOnBadExit KillWait LaunchParameters LaunchType Licenses LogTimeFormat
    MailDomain MailProg MaxArraySize MaxBatchRequeue MaxDBDMsgs MaxJobCount MaxJobId MaxMemPerCPU MaxMemPerNode
    MaxNodeCount MaxStepCount MaxTasksPerNode MCSParameters MCSPlugin MessageTimeout MetricsType MinJobAge MpiDefault
    MpiParams NamespaceType NodeFeaturesPlugins OverTimeLimit PlugStackConfig PluginDir PowerParameters PowerPlugin
    PrEpParameters PrEpPlugins PreemptExemptTime PreemptMode PreemptParameters PreemptType PriorityCalcPeriod
    PriorityDecayHalfLife PriorityFavorSmall PriorityFlags PriorityMaxAge PriorityParameters
    PrioritySiteFactorParameters PrioritySiteFactorPlugin PriorityType PriorityUsageResetPeriod PriorityWeightAge
    PriorityWeightAssoc PriorityWeightFairshare PriorityWeightJobSize PriorityWeightPartition PriorityWeightQOS
    PriorityWeightTRES PrivateData ProctrackType Prolog PrologEpilogTimeout PrologFlags PrologSlurmctld PrologTimeout
    PropagatePrioProcess PropagateResourceLimits PropagateResourceLimitsExcept RebootProgram ReconfigFlags RequeueExit
    RequeueExitHold ResumeFailProgram ResumeProgram ResumeRate ResumeTimeout ResvEpilog ResvOverRun ResvProlog
    ReturnToService RoutePlugin SallocDefaultCommand SbcastParameters SchedulerParameters SchedulerTimeSlice
    SchedulerType ScronParameters SelectType SelectTypeParameters SlurmSchedLogFile SlurmSchedLogLevel SlurmctldAddr
    SlurmctldDebug SlurmctldLogFile SlurmctldParameters SlurmctldPidFile SlurmctldPort SlurmctldPrimaryOffProg
    SlurmctldPrimaryOnProg SlurmctldSyslogDebug SlurmctldTimeout SlurmdDebug SlurmdLogFile SlurmdParameters
    SlurmdPidFile SlurmdPort SlurmdSyslogDebug SlurmdTimeout SlurmdUser SrunEpilog SrunPortRange SrunProlog
    SuspendExcNodes SuspendExcParts SuspendExcStates SuspendProgram SuspendRate SuspendTime SuspendTimeout
    SwitchParameters SwitchType
    TaskEpilog TaskPlugin TaskPluginParam TaskProlog TCPTimeout TLSParameters TLSType TmpFS TopologyParam TopologyPlugin
    TrackWCKey TreeWidth UnkillableStepProgram UnkillableStepTimeout UsePAM VSizeFactor WaitTime X11Parameters
    """.split()  # noqa: SIM905 - read as a text, not as a list of quotes
)

#: What the inventory says elsewhere or the rest of the installation relies on, and where to say it instead.
OWNED_PARAMETERS = {
    "NodeName": "the compute nodes are the inventory's group slurm_compute",
    "NodeSet": "partitions take their nodes from slurm_partitions",
    "PartitionName": "partitions are slurm_partitions",
    "ClusterName": "the name is cluster_name",
    "SlurmctldHost": "the controller is the inventory's group slurm_controller",
    "GresTypes": "it follows from node_gres",
    "SlurmUser": "it is part of the image",
    "StateSaveLocation": "the container's directories are fixed",
    "SlurmdSpoolDir": "the container's directories are fixed",
    "AuthType": "the daemons are installed for munge",
    "CredType": "the daemons are installed for munge",
    "Include": "nodes fetch one file; write its parameters into slurm_conf_parameters",
}
