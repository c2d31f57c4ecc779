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
