# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's door into the judges of Slurm's daemons, nodes and jobs. Translation only."""

from __future__ import annotations

from provision.judge import gpus, jobs, session, slurm, slurm_answers, slurm_daemons, slurm_facts
from provision.model import mounts
from provision.model.text import sections
from provision.nvidia import cuda_toolkit
from provision.slurm.names import OF_SLURMCTLD


def wanted(wants):
    """Return what is wanted of one machine, from the role's mapping."""
    partitions = wants.get("partitions") or []
    return slurm_facts.Wants(
        host=str(wants["host"]),
        daemons=tuple(str(name) for name in wants["daemons"]),
        image=str(wants["image"]),
        version=str(wants["version"]),
        gres=wants["gres"],
        gpus=bool(wants["gpus"]),
        simulated=tuple(str(word) for word in wants["simulated"]),
        memlock=int(wants["memlock"]),
        address=str(wants["address"]),
        partitions=slurm_facts.declared_partitions(partitions),
        verifying=bool(wants["verifying"]),
        directories=tuple(str(path) for path in wants["directories"]),
        home=str(wants["home"]),
        containers=str(wants["containers"]),
        reservation=str(wants["reservation"]),
    )


def slurm_service_checks(machine, controller, problem, wants):
    """Return the checks of one machine, from what the role's scripts printed there and on the controller."""
    facts, want = slurm_facts.Facts.of(str(machine), str(controller), str(problem)), wanted(wants)
    found = [*slurm_daemons.checks(facts, want), *slurm.checks(facts, want), *gpus.checks(facts, want)]
    return [check.as_dict() for check in found]


def slurm_unheard(controller, scope):
    """Return name and port of each node that slurmctld does not hear, as a script's arguments."""
    return slurm.unheard(str(controller), [str(name) for name in scope])


def slurm_settled(controller, scope):
    """Tell whether the nodes' states are worth judging."""
    said = sections(str(controller)).get("nodes", "")
    return slurm_answers.settled(said, [str(name) for name in scope])


def slurm_status(nodes, queue, reached):
    """Return nodes and jobs as clusterctl status shows them."""
    return slurm_answers.status(str(nodes), str(queue), str(reached))


def slurm_places(nodes):
    """Return name and port of each node's slurmd, as a script's arguments."""
    return slurm_answers.places(slurm_answers.nodes_in(str(nodes)).values())


def slurm_job_said(printed, host):
    """Return what the proof's jobs said on one node."""
    return jobs.said(str(printed), str(host))


def slurm_job_checks(printed, problem, left, plan, machine, wants, cgroup_version, uid):
    """Return the checks of one machine's jobs."""
    want = wanted(wants)
    planned = plan.get(want.host) or {}
    facts = jobs.JobFacts(str(printed), str(problem), str(left), planned, str(machine))
    found = jobs.checks(facts, want, cgroup_version=int(cgroup_version), uid=int(uid))
    return [check.as_dict() for check in found]


def slurm_service_only(files, names):
    """Return those of the files, by name, that slurmctld hands on and that have one of these names, None being all."""
    if files is None:
        return None
    handed = {name: text for name, text in files.items() if name not in OF_SLURMCTLD}
    return handed if names is None else {name: text for name, text in handed.items() if name in names}


def slurm_service_seen(declared, directories, read_only, toolkits):
    """Return what jobs see of the machine's directories, as the container engine takes it; null is as if left out."""
    directories, read_only = directories or [], ["/opt"] if read_only is None else read_only
    versions = [str(version) for version in toolkits["versions"]]
    places = cuda_toolkit.places(versions, toolkits["installers"], str(toolkits["default"]))
    return mounts.seen_by_jobs(declared, map(str, directories), map(str, read_only), places)


def slurm_service_shared(declared, path, machines):
    """Tell whether a path is on the same file system on all of these machines."""
    return mounts.shared_by(declared, str(path), [str(name) for name in machines])


def slurm_service_awaited(declared, machine):
    """Return the words by which slurmd's first process waits for what is mounted on the machine."""
    return [word for path in mounts.mounted_on(declared, str(machine)) for word in ("--mounted", path)]


def slurm_session_checks(said, asked, user, accounting, shared_home, installed, host, login=False):
    """Return the checks of a user's session on a machine; ``login``: on another one than the controller."""
    problem = said.get("unreached") or said.get("stderr") or said.get("msg") or ""
    who = {name: str(user[name]) for name in ("account", "qos")}
    want = session.Wants(
        int(user["uid"]),
        str(user["name"]),
        **who,
        accounting=bool(accounting),
        shared_home=bool(shared_home),
        installed=bool(installed),
        login=bool(login),
    )
    found = session.checks(str(said.get("stdout") or ""), str(problem), asked, want)
    return [check.as_dict() | {"host": str(host)} for check in found]


def slurm_session_alone(target):
    """Return what is tried on a login host, of what is tried on the controller: no two jobs side by side."""
    return [*map(str, target[:3]), "alone"]


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {
            "slurm_service_only": slurm_service_only,
            "slurm_service_seen": slurm_service_seen,
            "slurm_service_shared": slurm_service_shared,
            "slurm_service_awaited": slurm_service_awaited,
            "slurm_service_checks": slurm_service_checks,
            "slurm_unheard": slurm_unheard,
            "slurm_settled": slurm_settled,
            "slurm_places": slurm_places,
            "slurm_status": slurm_status,
            "slurm_job_said": slurm_job_said,
            "slurm_job_checks": slurm_job_checks,
            "slurm_session_alone": slurm_session_alone,
            "slurm_session_checks": slurm_session_checks,
        }
