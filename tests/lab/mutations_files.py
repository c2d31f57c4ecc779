"""Rows of the mutation table: managed files, directories and links, edited, of another mode or owner, or removed."""

from __future__ import annotations

from mutation import Row, spoilt

LIMITS = "/etc/security/limits.d"
MANAGER = "/etc/systemd/system.conf.d"
TRUST = "/etc/docker/certs.d/head:5000"
WRITER = "/etc/docker/certs.d/head:5001"
REGISTRY = "/etc/clusterctl/registry"
#: node1 passes images on, to node2 and itself.
MIRROR = "/etc/clusterctl/mirror"
MIRROR_TRUST = "/etc/docker/certs.d/node1:5002"
MUNGE = "/etc/systemd/system/munge.service.d"
PROOF = "/var/lib/clusterctl/ddp"
PROGRAM = f"{PROOF}/ddp_proof"
COMMANDS = "/opt/clusterctl/slurm"


def astray(*names: str) -> Row:
    """Return a row: some of Slurm's commands lead elsewhere, or are no links, or are gone."""
    first, second, *rest = (f"/usr/local/bin/{name}" for name in names)
    return Row(
        f"commands of Slurm's: {' '.join(names)}",
        "head",
        f"ln -sfn /bin/true {first}; rm {second}; cp /bin/true {second}; rm -f {' '.join(rest)}",
        {
            "slurm_client.files": (
                f"{first} leads to /bin/true, not to {COMMANDS}/current/bin/{names[0]}",
                f"{second} is a file, not a link",
                *(f"{path} is absent" for path in rest),
            )
        },
    )


#: One of each role whose other files are in none of the batches of every day.
PLACES = (
    Row(
        "Debian's installer has named the machine",
        "node2",
        "cp /etc/hosts /root/hosts; { echo 127.0.1.1 node2; cat /root/hosts; } >/etc/hosts; rm /root/hosts",
        {"base_system.names": "node2 is 127.0.1.1"},
    ),
    Row(
        "the cluster's part of the hosts file was edited",
        "node1",
        "sed 's/ *[0-9.]*\tnode2$/192.0.2.9\tnode2/' /etc/hosts >/root/hosts;"
        " cat /root/hosts >/etc/hosts; rm /root/hosts",
        {"base_system.names": "node2 is 192.0.2.9"},
    ),
    *spoilt("mode", "shared_storage", "/scratch", "node1"),
    *spoilt("owner", "munge", MUNGE, "node1"),
)

#: Of every day. Nothing is restarted for these and the next: a mode or an owner is no other text, and what is read anew
#: each time needs no start.
SEEN = (
    *spoilt("mode", "base_system", LIMITS, "head"),
    *spoilt("owner", "container_engine", "/etc/docker", "node2"),
    *spoilt("mode", "container_images", "/etc/containers/registries.conf.d", "node2"),
    *spoilt("owner", "slurm_service", "/var/spool/slurmd", "node1"),
    *spoilt("mode", "munge", f"{MUNGE}/clusterctl.conf", "head"),
    *spoilt("there", "slurm_conf", "/etc/slurm/slurm.conf", "node1"),
    *spoilt("mode", "slurm_service", "/var/lib/clusterctl", "node2"),
)

FILES = (
    *spoilt("owner", "base_system", MANAGER, "node1"),
    *spoilt("mode", "base_system", f"{MANAGER}/clusterctl.conf", "node1"),
    *spoilt("owner", "base_system", f"{LIMITS}/90-clusterctl.conf", "node2"),
    *spoilt("there", "base_system", "/etc/chrony/sources.d/clusterctl.sources", "node1"),
    *spoilt("there", "base_system", "/etc/clusterctl/proxy", "node2"),
    *spoilt("there", "base_system", "/etc/apt/apt.conf.d/95clusterctl-proxy", "node2"),
    *spoilt("there", "container_engine", "/etc/systemd/system/docker.service.d/clusterctl-proxy.conf", "node1"),
    *spoilt("mode", "container_engine", "/etc/docker/daemon.json", "head"),
    *spoilt("mode", "container_engine", "/etc/docker/clusterctl-keys.json", "node1"),
    *spoilt("mode", "container_images", f"{REGISTRY}/server.key", "head"),
    *spoilt("owner", "container_images", REGISTRY, "head"),
    *spoilt("mode", "container_images", "/etc/docker/certs.d", "node1"),
    *spoilt("mode", "container_images", MIRROR, "node1"),
    *spoilt("mode", "container_images", f"{MIRROR}/server.key", "node1"),
    *spoilt("owner", "container_images", MIRROR_TRUST, "node1"),
    *spoilt("there", "container_images", "/var/cache/clusterctl/mirror", "node2"),
    *spoilt("mode", "container_images", WRITER, "head"),
    *spoilt("mode", "container_images", f"{WRITER}/client.key", "head"),
    *spoilt("mode", "slurm_client", "/opt/clusterctl", "head"),
    *spoilt("owner", "slurm_client", COMMANDS, "head"),
    *spoilt("there", "slurm_client", "/usr/local/bin/slurm-command", "head"),
    *spoilt("there", "slurm_client", "/usr/local/sbin/slurm-as-user", "head"),
    *spoilt("there", "slurm_client", "/etc/sudoers.d/clusterctl-slurm", "head"),
    Row(
        "a library of Slurm's commands is another",
        "head",
        f"echo by hand >>{COMMANDS}/current/lib/libmunge.so.2",
        {"slurm_client.programs": "broken; in use: "},
    ),
    *spoilt("gone", "slurm_service", "/var/lib/clusterctl/scratch", "node1"),
)

#: No job can be run with these, that of the proof least of all.
PROOFS = (
    *spoilt("mode", "slurm_service", "/var/spool/slurmctld", "head"),
    *spoilt("text", "ddp_validation", f"{PROOF}/ddp_submit.py", "head"),
    *spoilt("mode", "ddp_validation", f"{PROOF}/ddp_job.sh", "head"),
    *spoilt("mode", "ddp_validation", PROOF, "head"),
    *spoilt("owner", "ddp_validation", f"{PROOF}/runs", "head"),
    *spoilt("there", "ddp_validation", f"{PROOF}/ddp_proof.py", "head"),
    *spoilt("gone", "ddp_validation", f"{PROOF}/ddp_node.sh", "node1"),
    *spoilt("mode", "ddp_validation", f"{PROOF}/ddp_collect.py", "node1"),
    *spoilt("text", "ddp_validation", f"{PROGRAM}/__init__.py", "node1"),
    *spoilt("owner", "ddp_validation", f"{PROGRAM}/__main__.py", "node1"),
    *spoilt("gone", "ddp_validation", f"{PROGRAM}/collectives.py", "node1"),
    *spoilt("text", "ddp_validation", f"{PROGRAM}/gradients.py", "node2"),
    *spoilt("mode", "ddp_validation", f"{PROGRAM}/identity.py", "node2"),
    *spoilt("gone", "ddp_validation", f"{PROGRAM}/job.py", "node2"),
    *spoilt("owner", "ddp_validation", f"{PROGRAM}/measures.py", "node2"),
    *spoilt("text", "ddp_validation", f"{PROGRAM}/model.py", "node2"),
)

#: The rest of the files that are read anew each time; beside what is no file.
MORE_FILES = (
    astray("sacct", "sacctmgr", "salloc", "sattach", "sbatch"),
    Row(
        "other commands of Slurm are in use",
        "head",
        f"mkdir {COMMANDS}/other; ln -sfn other {COMMANDS}/current",
        {"slurm_client.programs": "whole; in use: other"},
    ),
    *spoilt("text", "ddp_validation", f"{PROGRAM}/program.py", "node1"),
    *spoilt("mode", "ddp_validation", f"{PROGRAM}/record.py", "node1"),
    *spoilt("gone", "ddp_validation", f"{PROGRAM}/reference.py", "node1"),
    *spoilt("owner", "ddp_validation", f"{PROGRAM}/release.py", "node1"),
    *spoilt("text", "ddp_validation", f"{PROGRAM}/suspects.py", "node1"),
    *spoilt("gone", "ddp_validation", f"{PROGRAM}/training.py", "node2"),
    *spoilt("owner", "ddp_validation", PROGRAM, "node2"),
    *spoilt("mode", "ddp_validation", f"{PROOF}/runs/grace", "node2"),
    *spoilt("text", "ddp_validation", f"{PROOF}/ddp_job.sh", "node2"),
)

#: The other commands of Slurm's: a check shows five things that are wrong.
COMMANDS_ASTRAY = astray("sbcast", "scancel", "scontrol", "scrontab", "sdiag")
MORE_COMMANDS = astray("sinfo", "sprio", "squeue", "sreport", "srun")
LAST_COMMANDS = astray("sshare", "sstat", "strigger", "torchrun-slurm", "lint-job")

#: What is for users' jobs beside Slurm's own commands.
FOR_JOBS = (
    astray("job-exec", "job-shell", "docker", "seff"),
    *spoilt("mode", "slurm_client", "/usr/local/bin/cluster-help", "head"),
    *spoilt("text", "slurm_client", "/usr/local/share/clusterctl/cluster-help.txt", "head"),
    *spoilt("gone", "slurm_client", "/etc/profile.d/clusterctl.sh", "head"),
    *spoilt("mode", "slurm_client", "/usr/local/share/clusterctl", "head"),
    Row(
        "the templates of jobs lead elsewhere",
        "head",
        "ln -sfn /tmp /usr/local/share/clusterctl/jobs",
        {"slurm_client.files": (f"/usr/local/share/clusterctl/jobs leads to /tmp, not to {COMMANDS}/current/jobs",)},
    ),
)

#: Of the configuration what nodes are sent beside slurm.conf.
SENT = (
    *(
        row
        for name in ("begin", "end", "task")
        for row in spoilt("mode", "slurm_conf", f"/etc/slurm/job_{name}", "head")
    ),
    *spoilt("owner", "slurm_conf", "/etc/slurm/plugstack.conf", "head"),
)
