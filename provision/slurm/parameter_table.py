"""What each release of Slurm reads, by place and type, from the tables of its source. Made by scripts/slurm-parameters.

``Name`` is in all releases from 22.05 on, ``Name:24.11-`` since one, ``Name:-23.11`` until one.
"""

NEWEST = "26.05"

TABLE = {
    ("cgroup.conf", "boolean"): """
        CgroupAutomount:-23.02 CgroupJobIdPaths:26.05- ConstrainCores ConstrainDevices ConstrainKmemSpace:-23.02
        ConstrainRAMSpace ConstrainSwapSpace EnableControllers:23.02- IgnoreSystemd IgnoreSystemdOnFailure
        MemoryLimitEnforcement RootOwnedCgroups:23.02-23.02 SignalChildrenProcesses:23.11-
    """,
    ("cgroup.conf", "float"): """
        AllowedKmemSpace:-23.02 AllowedRAMSpace AllowedSwapSpace MaxKmemPercent:-23.02 MaxRAMPercent MaxSwapPercent
        MemoryLimitThreshold
    """,
    ("cgroup.conf", "string"): """
        AllowedDevicesFile CgroupMountpoint CgroupPlugin CgroupReleaseAgentDir:-25.05 CgroupSlice:25.11-
        EnableExtraControllers:25.05-
    """,
    ("cgroup.conf", "uint64"): """
        MemorySwappiness MinKmemSpace:-23.02 MinRAMSpace SystemdTimeout:24.05-
    """,
    ("node", "string"): """
        BcastAddr CpuBind CPUSpecList Feature Features Gres GresConf:25.11- NodeAddr NodeHostname Parameters:25.11-
        Port Reason State SuspendTime:26.05- Topology:25.05- TRESWeights
    """,
    ("node", "uint16"): """
        Boards CoreSpecCount CoresPerSocket CPUs Procs RestrictedCoresPerGPU:24.05- Sockets SocketsPerBoard
        ThreadsPerCore
    """,
    ("node", "uint32"): """
        TmpDisk Weight
    """,
    ("node", "uint64"): """
        MemSpecLimit RealMemory
    """,
    ("partition", "boolean"): """
        Default DisableRootJobs ExclusiveTopo:24.05- ExclusiveUser Hidden LLN PowerDownOnIdle:23.02- ReqResv
        RootOnly
    """,
    ("partition", "string"): """
        AllocNodes AllowAccounts AllowGroups AllowQos Alternate CpuBind DefaultTime DenyAccounts DenyQos
        Exclusive:26.05- MaxTime Nodes OverSubscribe OverTimeLimit PreemptMode QOS SelectTypeParameters Shared State
        SuspendTime Topology:25.05- TRESBillingWeights
    """,
    ("partition", "uint16"): """
        Priority PriorityJobFactor PriorityTier ResumeTimeout SuspendTimeout
    """,
    ("partition", "uint32"): """
        GraceTime MaxCPUsPerNode MaxCPUsPerSocket:23.02- MaxNodes MinNodes
    """,
    ("partition", "uint64"): """
        DefCPUPerGPU DefMemPerCPU DefMemPerGPU DefMemPerNode MaxMemPerCPU MaxMemPerNode
    """,
    ("slurm.conf", "array"): """
        DownNodes Epilog EpilogSlurmctld FrontendName:-24.11 NodeName NodeSet PartitionName PowerAction:26.05-
        Prolog PrologSlurmctld SlurmctldHost
    """,
    ("slurm.conf", "boolean"): """
        AccountingStoreJobComment AllowSpecResourcesUsage DisableRootJobs PriorityFavorSmall TrackWCKey UsePAM
    """,
    ("slurm.conf", "string"): """
        AccountingStorageBackupHost AccountingStorageEnforce AccountingStorageExternalHost AccountingStorageHost
        AccountingStorageLoc:-25.05 AccountingStorageParameters AccountingStoragePass AccountingStorageTRES
        AccountingStorageType AccountingStorageUser:-25.05 AccountingStoreFlags AcctGatherEnergyType
        AcctGatherFilesystemType AcctGatherInfinibandType AcctGatherInterconnectType AcctGatherProfileType
        AuthAltParameters AuthAltTypes AuthInfo AuthType BackupAddr BackupController BcastExclude BcastParameters
        BurstBufferParameters BurstBufferType CertgenParameters:25.05- CertgenType:25.05- CertmgrParameters:24.11-
        CertmgrType:24.11- CliFilterParameters:25.11- CliFilterPlugins ClusterName CommunicationParameters
        ControlAddr ControlMachine CoreSpecPlugin:-23.11 CpuFreqDef CpuFreqGovernors CredType CryptoType
        DataParserParameters:24.11- DebugFlags DependencyParameters EnforcePartLimits ExtSensorsType:-23.02
        FederationParameters GpuFreqDef GresTypes HashPlugin:24.05- HealthCheckNodeState HealthCheckProgram
        HttpParserType:25.11- InteractiveStepOptions JobAcctGatherFrequency JobAcctGatherParams JobAcctGatherType
        JobCompHost JobCompLoc JobCompParams JobCompPass JobCompPassScript:25.11- JobCompType JobCompUser
        JobContainerType JobCredentialPrivateKey:-23.02 JobCredentialPublicCertificate:-23.02 JobSubmitPlugins
        LaunchParameters LaunchType LicenseParameters:26.05- Licenses LogTimeFormat MailDomain MailProg
        MCSParameters MCSPlugin MetricsAuthUsers:26.05- MetricsParameters:26.05- MetricsType:25.11- MpiDefault
        MpiParams NamespaceType:25.11- NodeFeaturesPlugins PluginDir PlugStackConfig PowerParameters:-23.11
        PowerPlugin:-23.11 PreemptExemptTime PreemptMode PreemptParameters:23.02- PreemptType PrEpParameters
        PrEpPlugins PriorityCalcPeriod PriorityDecayHalfLife PriorityFlags PriorityMaxAge PriorityParameters
        PrioritySiteFactorParameters PrioritySiteFactorPlugin PriorityType PriorityUsageResetPeriod
        PriorityWeightTRES PrivateData ProctrackType PrologFlags PropagateResourceLimits
        PropagateResourceLimitsExcept RebootProgram ReconfigFlags RequeueExit RequeueExitHold ResumeFailProgram
        ResumeProgram ResvEpilog ResvProlog RoutePlugin SallocDefaultCommand SbcastParameters SchedulerParameters
        SchedulerType ScronParameters SelectType SelectTypeParameters SlurmctldAddr SlurmctldDebug
        SlurmctldHttpAuthParameters:26.05- SlurmctldLogFile SlurmctldParameters SlurmctldPidFile
        SlurmctldPlugstack:-22.05 SlurmctldPort SlurmctldPrimaryOffProg SlurmctldPrimaryOnProg SlurmctldSyslogDebug
        SlurmdDebug SlurmdHttpAuthParameters:26.05- SlurmdLogFile SlurmdParameters SlurmdPidFile SlurmdSpoolDir
        SlurmdSyslogDebug SlurmdUser SlurmSchedLogFile SlurmUser SrunEpilog SrunPortRange SrunProlog
        StateSaveLocation SuspendExcNodes SuspendExcParts SuspendExcStates:23.02- SuspendProgram SuspendTime
        SwitchParameters SwitchType TaskEpilog TaskPlugin TaskPluginParam TaskProlog TLSParameters:24.05-
        TLSType:24.05- TmpFS TopologyParam TopologyPlugin UnkillableStepProgram UrlParserType:25.11- X11Parameters
    """,
    ("slurm.conf", "uint16"): """
        AccountingStoragePort AcctGatherNodeFreq BatchStartTimeout CompleteWait EioTimeout EpilogTimeout:25.05-
        ExtSensorsFreq:-23.02 FairShareDampeningFactor FastSchedule GetEnvTimeout:-24.11 GroupUpdateForce
        GroupUpdateTime HealthCheckInterval HealthCheckTimeout:26.05- InactiveLimit JobFileAppend JobRequeue
        KillOnBadExit KillWait MaxTasksPerNode MessageTimeout OverTimeLimit PrologEpilogTimeout PrologTimeout:25.05-
        PropagatePrioProcess ResumeRate ResumeTimeout ResvOverRun ReturnToService SchedulerTimeSlice
        SlurmctldTimeout SlurmdTimeout SlurmSchedLogLevel SuspendRate SuspendTimeout TCPTimeout TreeWidth
        UnkillableStepTimeout VSizeFactor WaitTime
    """,
    ("slurm.conf", "uint32"): """
        EpilogMsgTime FirstJobId JobCompPort KeepAliveTime MaxArraySize MaxBatchRequeue:23.02- MaxDBDMsgs
        MaxJobCount MaxJobId MaxNodeCount MaxStepCount MinJobAge PriorityWeightAge PriorityWeightAssoc
        PriorityWeightFairshare PriorityWeightJobSize PriorityWeightPartition PriorityWeightQOS SlurmdPort
    """,
    ("slurm.conf", "uint64"): """
        DefCPUPerGPU DefMemPerCPU DefMemPerGPU DefMemPerNode MaxMemPerCPU MaxMemPerNode
    """,
    ("slurmdbd.conf", "boolean"): """
        AllowNoDefAcct AllResourcesAbsolute:23.02- ArchiveEvents ArchiveJobEnv:26.05- ArchiveJobs
        ArchiveJobScript:26.05- ArchiveResvs ArchiveSteps ArchiveSuspend ArchiveTXN ArchiveUsage
        DisableArchiveCommands:25.11- DisableCoordDBD:24.05- DisableRollups:26.05- TrackSlurmctldDown TrackWCKey
    """,
    ("slurmdbd.conf", "string"): """
        ArchiveDir ArchiveScript AuthAltParameters AuthAltTypes AuthInfo AuthType CommunicationParameters DbdAddr
        DbdBackupHost DbdHost DebugFlags DebugLevel DebugLevelSyslog DefaultQOS HashPlugin:24.05- LogFile
        LogTimeFormat MaxQueryTimeRange Parameters PidFile PluginDir PrivateData PurgeEventAfter PurgeJobAfter
        PurgeJobEnvAfter:26.05- PurgeJobScriptAfter:26.05- PurgeResvAfter PurgeStepAfter PurgeSuspendAfter
        PurgeTXNAfter PurgeUsageAfter SlurmUser StorageBackupHost StorageHost StorageLoc StorageParameters
        StoragePass StoragePassScript:25.11- StorageType StorageUser TLSParameters:24.05- TLSType:24.05-
    """,
    ("slurmdbd.conf", "uint16"): """
        CommitDelay DbdPort MessageTimeout StoragePort TCPTimeout
    """,
    ("slurmdbd.conf", "uint32"): """
        JobPurge MaxPurgeLimit:25.11- PurgeEventMonths PurgeJobMonths PurgeStepMonths PurgeSuspendMonths
        PurgeTXNMonths PurgeUsageMonths StepPurge
    """,
}
