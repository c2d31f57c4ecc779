"""Parameters of slurm.conf that are ours to set, and where the inventory says them."""

from __future__ import annotations

#: What the inventory says elsewhere or the rest of the installation relies on, and where to say it instead.
OWNED_PARAMETERS = {
    "NodeName": "the compute nodes are the inventory's group slurm_compute",
    "NodeSet": "name the nodes in slurm_partitions: a job's share of each is reckoned from them",
    "PartitionName": "partitions are slurm_partitions",
    "ClusterName": "the name is cluster_name",
    "SlurmctldHost": "the controller is the inventory's group slurm_controller",
    "GresTypes": "it follows from node_gres",
    "SlurmUser": "it is part of the image",
    "StateSaveLocation": "the container's directories are fixed",
    "SlurmdSpoolDir": "the container's directories are fixed",
    "SlurmctldLogFile": "slurmctld logs to the machine's journal: journalctl -u docker CONTAINER_NAME=slurmctld",
    "SlurmdLogFile": "slurmd logs to the machine's journal: journalctl -u docker CONTAINER_NAME=slurmd",
    "SlurmSchedLogFile": "slurmctld's root is read-only; it logs to the machine's journal",
    "SlurmSchedLogLevel": "it needs SlurmSchedLogFile, and slurmctld's root is read-only",
    **dict.fromkeys(("SlurmctldPidFile", "SlurmdPidFile"), "the container's directories are fixed"),
    "AuthType": "the daemons are installed for munge",
    "CredType": "the daemons are installed for munge",
    "CryptoType": "the daemons are installed for munge",
    **dict.fromkeys(
        ("ControlMachine", "ControlAddr", "BackupController", "BackupAddr"),
        "the controller is the inventory's group slurm_controller",
    ),
    "AccountingStorageLoc": "Slurm has removed it, and slurmctld does not start with it",
    "AccountingStoreJobComment": "Slurm has removed it; use AccountingStoreFlags: job_comment",
    "KeepAliveTime": "Slurm has moved it; use CommunicationParameters: keepalivetime=SECONDS",
    "FastSchedule": "Slurm has removed it; what it did is SlurmdParameters: config_overrides",
    "SallocDefaultCommand": "Slurm has removed it; use LaunchParameters: use_interactive_step",
    "PluginDir": "it is part of the image, and of users' commands",
    "PlugStackConfig": "plugstack.conf is fetched; add its lines by slurm_conf_files",
    "Include": "nodes fetch one file; write its parameters into slurm_conf_parameters",
}

#: The same of cgroup.conf.
OWNED_CGROUP_PARAMETERS = {
    "IgnoreSystemd": "slurmd runs in a container, where there is no systemd",
    "CgroupPlugin": "it follows from node_cgroup_version and slurm_conf_cgroup_v1_allowed",
    "CgroupReleaseAgentDir": "Slurm has removed it, and slurmd does not start with it",
    **dict.fromkeys(("AllowedDevicesFile", "MemoryLimitEnforcement", "MemoryLimitThreshold"), "Slurm has removed it"),
}

_REACHED = "a node has its name, address and port from the inventory"
_STATES = "each node is a machine that is there, so none is CLOUD or FUTURE; scontrol update takes one out of service"
#: The same of nodes.
OWNED_NODE_PARAMETERS = {
    **dict.fromkeys(("NodeName", "NodeAddr", "NodeHostname", "Port"), _REACHED),
    **dict.fromkeys(("State", "Reason"), _STATES),
    **dict.fromkeys(("CPUs", "Procs"), "it is node_cpus"),
    "Boards": "it is node_boards",
    **dict.fromkeys(("Sockets", "SocketsPerBoard"), "it is node_sockets"),
    "CoresPerSocket": "it is node_cores_per_socket",
    "ThreadsPerCore": "it is node_threads_per_core",
    "RealMemory": "it is node_real_memory",
    "MemSpecLimit": "it is node_mem_spec_limit",
    "TmpDisk": "it is node_tmp_disk",
    **dict.fromkeys(("Gres", "GresConf"), "it is node_gres"),
    **dict.fromkeys(("Feature", "Features"), "it is node_features"),
    "Weight": "it is node_weight",
}

#: The same of slurmdbd.conf.
OWNED_DATABASE_PARAMETERS = {
    "AuthType": "the daemons are installed for munge",
    **dict.fromkeys(
        (
            *("ArchiveDir", "ArchiveScript", "ArchiveEvents", "ArchiveJobEnv", "ArchiveJobs", "ArchiveJobScript"),
            *("ArchiveResvs", "ArchiveSteps", "ArchiveSuspend", "ArchiveTXN", "ArchiveUsage"),
        ),
        "what slurmdbd archives goes with its container; keep it longer (Purge...After), or dump the database",
    ),
    **{
        name: f"its value would not count beside Purge{what}After; use that"
        for what in ("Event", "Job", "Step", "Suspend", "TXN", "Usage")
        for name in (f"Purge{what}Months", *([f"{what}Purge"] if what in ("Job", "Step") else []))
    },
    "DbdAddr": "slurmdbd runs on the host in the inventory's group slurm_database",
    "DbdBackupHost": "slurmdbd runs on the host in the inventory's group slurm_database",
    "DbdHost": "slurmdbd runs on the host in the inventory's group slurm_database",
    "DbdPort": "slurmctld asks slurmdbd at Slurm's own port, 6819",
    "Include": "write its parameters into slurm_database_parameters",
    "LogFile": "slurmdbd logs to the machine's journal: journalctl -u docker CONTAINER_NAME=slurmdbd",
    "PidFile": "the container's directories are fixed",
    "PluginDir": "it is part of the image",
    "SlurmUser": "it is part of the image",
    **dict.fromkeys(("StorageBackupHost", "StorageLoc", "StoragePort"), "MariaDB runs beside slurmdbd"),
    "StorageHost": "MariaDB runs beside slurmdbd",
    "StoragePass": "the password is made on the machine, and never leaves it",
    "StoragePassScript": "the password is made on the machine, and never leaves it",
    "StorageType": "MariaDB runs beside slurmdbd",
    "StorageUser": "MariaDB runs beside slurmdbd",
}

#: The reservation that keeps new nodes from users until they are verified.
NEW_NODES = "clusterctl-new"

#: On which ports srun is called back where the site says nothing else.
SRUN_PORTS = "60001-63000"

#: Parameters of which a file has a line for each value, since a release: S_P_ARRAY in src/common/read_config.c.
LINES = {"Prolog": "24.05", "Epilog": "24.05", "PrologSlurmctld": "24.05", "EpilogSlurmctld": "24.05"}

#: What slurmctld hands to slurmd beside the files that are ours, each with the release that came with it, or nothing
#: where all known ones have it: slurmd_config_files in src/common/fetch_config.c.
FETCHED = {
    "acct_gather.conf": "",
    "cli_filter.lua": "",
    "helpers.conf": "",
    "job_container.conf": "",
    "mpi.conf": "",
    "oci.conf": "",
    "plugstack.conf": "",
    "topology.conf": "",
    "topology.yaml": "25.05",
    "namespace.yaml": "25.11",
}
#: Scripts of plugins called lua, with the parameters that name those. slurmctld alone reads what it does not hand on.
SCRIPTS = {"cli_filter.lua": "CliFilterPlugins", "job_submit.lua": "JobSubmitPlugins", "jobcomp.lua": "JobCompType"}
OF_SLURMCTLD = tuple(name for name in SCRIPTS if name not in FETCHED)
