"""Parameters of slurm.conf that are ours to set, and where the inventory says them."""

from __future__ import annotations

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
