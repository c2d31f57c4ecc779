"""Which checks each machine owes: known from the inventory before a run begins, without calling a judge. Pure.

A check that was owed and did not come is ``unknown: never ran``. Judges give all their names for every machine that
they judge, so what a machine owes follows from its groups alone; what does not apply comes as a skip, with the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from provision.judge import (
    base_system,
    cluster_users,
    ddp,
    ddp_ready,
    driver,
    engine,
    gpu_containers,
    gpu_stage,
    gpudirect,
    gpus,
    hardware,
    images,
    job_docker,
    job_images,
    jobs,
    mig,
    monitoring,
    munge,
    nccl,
    nfs_server,
    preflight,
    rdma_ports,
    rdma_transfers,
    road,
    session,
    shared_storage,
    slurm,
    slurm_accounts,
    slurm_client,
    slurm_conf,
    slurm_daemons,
    slurm_database,
    slurm_image,
    slurm_running,
    toolkit,
    users_before,
)
from provision.model.checks import Subject

#: The inventory's groups.
GROUPS = ("slurm_controller", "slurm_compute", "slurm_login", "slurm_database", "nfs_server", "monitoring")

_ALL = GROUPS
_SLURM = ("slurm_controller", "slurm_compute")
_USED = (*_SLURM, "slurm_login")
_USERS = ("slurm_controller", "slurm_login")
_CONTROLLER = ("slurm_controller",)
_COMPUTE = ("slurm_compute",)
_DATABASE = ("slurm_database",)

#: The probe's last word on a machine that it could enter.
ACCESS = Subject("access", names=("ready",))

#: By command: which groups' machines owe which subjects.
OWED: Mapping[str, Sequence[tuple[Collection[str], Subject]]] = {
    "preflight": (
        (_ALL, ACCESS),
        (_ALL, preflight.SUBJECT),
        (_ALL, users_before.SUBJECT),
        (_ALL, shared_storage.BEFORE),
        (_USED, engine.BEFORE),
        (_SLURM, job_images.BEFORE),
        (_SLURM, job_docker.BEFORE),
        (_CONTROLLER, slurm_image.BEFORE),
        (_USED, ddp_ready.BEFORE),
    ),
    "verify": (
        (_ALL, ACCESS),
        (_ALL, base_system.SUBJECT),
        (("nfs_server",), nfs_server.SUBJECT),
        (_ALL, shared_storage.BEFORE),
        (_ALL, shared_storage.SUBJECT),
        (_ALL, users_before.SUBJECT),
        (_ALL, cluster_users.SUBJECT),
        (_USED, engine.BEFORE),
        (_USED, engine.SUBJECT),
        (_USED, images.SUBJECT),
        (_SLURM, job_docker.BEFORE),
        (_SLURM, job_docker.SUBJECT),
        (_USED, munge.SUBJECT),
        (_USED, munge.MACHINE),
        (_CONTROLLER, slurm_image.BEFORE),
        (_CONTROLLER, slurm_image.SUBJECT),
        (_DATABASE, slurm_database.SUBJECT),
        (_DATABASE, slurm_accounts.SUBJECT),
        (_USERS, slurm_client.SUBJECT),
        (_USED, slurm_conf.SUBJECT),
        (_USED, slurm_running.SUBJECT),
        (_SLURM, job_images.BEFORE),
        (_SLURM, job_images.SUBJECT),
        (_USED, ddp_ready.BEFORE),
        (_USED, ddp_ready.SUBJECT),
        (_SLURM, slurm_daemons.SUBJECT),
        (_SLURM, slurm.SUBJECT),
        (_SLURM, gpus.SUBJECT),
        (_COMPUTE, hardware.SUBJECT),
        (_COMPUTE, driver.SUBJECT),
        (_COMPUTE, driver.BEFORE),
        (_COMPUTE, gpu_stage.PLANNED),
        (_COMPUTE, mig.SUBJECT),
        (_COMPUTE, toolkit.SUBJECT),
        (_COMPUTE, gpu_containers.SUBJECT),
        (_COMPUTE, gpudirect.SUBJECT),
        (_COMPUTE, rdma_ports.SUBJECT),
        (_COMPUTE, rdma_transfers.SUBJECT),
        (_SLURM, jobs.SUBJECT),
        (_USERS, session.SUBJECT),
        (("monitoring",), monitoring.SUBJECT),
    ),
}

#: What roles leave on machines is judged by their data alone: packages, files, services.
_MANAGED = tuple(
    (role.groups or _ALL, road.generic(name, role.kinds)) for name, role in road.ROLES.items() if not role.needs
)
#: What all machines owe where the inventory has a machine of a group.
OWED_WITH: Mapping[str, Sequence[Subject]] = {
    "monitoring": (
        monitoring.EXPORTERS,
        *(road.generic(name, role.kinds) for name, role in road.ROLES.items() if role.needs == "monitoring"),
    )
}

#: What the cluster as a whole owes, whichever machine a check then speaks about: by command.
OWED_BY_ALL: Mapping[str, Sequence[Subject]] = {"verify": (ddp.SUBJECT, nccl.SUBJECT)}


def owed(command: str, groups: Mapping[str, Collection[str]]) -> frozenset[tuple[str, str]]:
    """Return (machine, check id) for everything that ``command`` must tell of the machines in scope, by their groups.

    What the cluster owes as a whole has no machine; it is owed where compute nodes are in scope.
    """
    found = {
        (host, name)
        for groups_of, subject in (*OWED.get(command, ()), *(_MANAGED if command == "verify" else ()))
        for group in groups_of
        for host in groups.get(group, ())
        for name in subject.ids
    }
    if command == "verify":
        hosts = {host for members in groups.values() for host in members}
        found |= {
            (host, name)
            for group, subjects in OWED_WITH.items()
            if groups.get(group)
            for subject in subjects
            for name in subject.ids
            for host in hosts
        }
    if groups.get("slurm_compute"):
        found |= {("", name) for subject in OWED_BY_ALL.get(command, ()) for name in subject.ids}
    return frozenset(found)
