"""clusterctl: from bare GPU machines to a Slurm cluster that has proven it can train."""

__version__ = "0.1.0"
