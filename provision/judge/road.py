"""The roles that are observed before they act: who judges each one's machine, and what of its answer goes on. Pure.

A role stands here when its tasks run only where one of its checks fails. ``ROLES`` is in the order of the stages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from provision.judge import (
    base_system,
    cluster_users,
    ddp_ready,
    engine,
    firewall,
    gpu_stage,
    hardware,
    images,
    job_docker,
    job_images,
    managed,
    monitoring,
    munge,
    nfs_server,
    preflight,
    shared_storage,
    slurm_accounts,
    slurm_client,
    slurm_conf,
    slurm_database,
    slurm_image,
    slurm_running,
)
from provision.model.checks import Check, Subject, Verdict
from provision.model.consequences import Kind
from provision.model.facts import MachineFacts, OperatingSystem
from provision.model.managed import Managed
from provision.slurm.at_start import at_start
from provision.slurm.gres import site_of

#: A role's own judge, for what packages, files and services do not say.
Judge = Callable[[MachineFacts, Mapping[str, Any]], Sequence[Check]]


@dataclass(frozen=True)
class Role:
    """A role on this road: the stage that it belongs to, its own judge, and the kinds of generic checks of its data.

    ``refuses``: it has nothing to do, and where one of its checks does not pass, nothing is done there. ``groups`` are
    those of the inventory whose machines it is for; none means all. ``needs`` is a group without which it is for
    nobody. ``asked_before``: some of its checks are made before anything is changed, so that preflight asks for them
    too. ``fix``: where provisioning the stage is not all that there is to say. ``beside_others``: its own judge sees
    one machine alone, and says where to act; for a verdict a task of the role compares machines.
    """

    stage: str
    judge: Judge | None = None
    kinds: tuple[str, ...] = ()
    refuses: bool = False
    groups: tuple[str, ...] = ()
    needs: str = ""
    asked_before: bool = False
    fix: str = ""
    beside_others: bool = False


def _can_be_provisioned(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Judge what is refused before anything is changed: the machine, and, where it runs jobs, its hardware."""
    found = preflight.checks(facts, wants["settings"])
    if "hardware" in facts:
        simulated = bool(wants["simulated"])
        site = site_of(**wants["slurm"], simulated=simulated)
        found += hardware.checks(facts["hardware"], wants["declared"], simulated=simulated, site=site)
    return found


#: Where SSSD answers questions about users of the site's directory, on machines that have it.
_SSSD = "/var/lib/sss/pipes"
#: Where cloud-init reads settings of others, on machines that have it.
_CLOUD_INIT = "/etc/cloud/cloud.cfg.d"
_SLURM = ("slurm_controller", "slurm_compute")
_USED = (*_SLURM, "slurm_login")
_COMPUTE = ("slurm_compute",)
_DATABASE = ("slurm_database",)

#: What is refused of their machines concerns the whole cluster: without them nothing works.
_NEEDED = frozenset({"slurm_controller", "slurm_database", "nfs_server"})
_GENERIC = ("packages", "files", "services")

ROLES: Mapping[str, Role] = {
    "preflight": Role("preflight", _can_be_provisioned, refuses=True),
    "base_system": Role("base", base_system.checks, _GENERIC),
    "nfs_server": Role("base", nfs_server.checks, _GENERIC, groups=("nfs_server",)),
    "shared_storage": Role("base", shared_storage.checks, ("packages", "files"), asked_before=True),
    "cluster_users": Role("base", cluster_users.checks, ("files", "services"), asked_before=True),
    "container_engine": Role("containers", engine.checks, _GENERIC, groups=_USED, asked_before=True),
    "container_images": Role("containers", images.checks, _GENERIC, groups=_USED),
    "job_docker": Role("containers", job_docker.checks, ("files", "services"), groups=_SLURM, asked_before=True),
    "nvidia_driver": Role("gpu", gpu_stage.nvidia_driver, groups=_SLURM, asked_before=True),
    "nvidia_mig": Role("gpu", gpu_stage.nvidia_mig, ("files",), groups=_COMPUTE),
    "cuda_toolkit": Role("gpu", gpu_stage.toolkits, ("packages", "files"), groups=_COMPUTE),
    "nvidia_containers": Role("gpu", gpu_stage.containers, ("files",), groups=_COMPUTE),
    "rdma_userspace": Role(
        "rdma", gpu_stage.rdma_userspace, ("packages", "files"), groups=_COMPUTE, beside_others=True
    ),
    "gpudirect_rdma": Role("rdma", gpu_stage.gpudirect_rdma, groups=_COMPUTE),
    "munge": Role("munge", munge.machine_checks, _GENERIC, groups=_USED),
    "slurm_image": Role("slurm", slurm_image.checks, groups=("slurm_controller",), asked_before=True),
    "slurm_database": Role("slurm", slurm_database.checks, (*_GENERIC, "containers"), groups=_DATABASE),
    "slurm_accounts": Role("slurm", slurm_accounts.checks, groups=_DATABASE),
    "slurm_conf": Role("slurm", slurm_conf.checks, ("files",), groups=_USED, fix=slurm_conf.SUBJECT.fix),
    "slurm_client": Role("slurm", slurm_client.checks, ("files",), groups=("slurm_controller", "slurm_login")),
    "slurm_service": Role("slurm", slurm_running.checks, ("files", "containers"), groups=_USED),
    "job_images": Role("slurm", job_images.checks, ("packages",), groups=_SLURM, asked_before=True),
    "ddp_validation": Role("slurm", ddp_ready.checks, ("files",), groups=_USED, asked_before=True),
    "machine_metrics": Role("monitoring", monitoring.exporters, _GENERIC, needs="monitoring"),
    "monitoring": Role("monitoring", monitoring.checks, _GENERIC, groups=("monitoring",)),
}


def generic(role: str, kinds: tuple[str, ...]) -> Subject:
    """Return the subject of a role's checks of these kinds; its stage mends what fails."""
    entry = ROLES[role]
    return Subject(role, kinds, fix=entry.fix or f"clusterctl provision {entry.stage}")


def roles_for(roles: Iterable[str], own: Collection[str], groups: Mapping[str, Collection[str]]) -> list[str]:
    """Return those of the roles that are for a machine in the groups ``own``, of an inventory with ``groups``."""
    return [
        name
        for name in roles
        if used(ROLES[name], groups) and (not ROLES[name].groups or set(ROLES[name].groups) & set(own))
    ]


def used(role: Role, groups: Mapping[str, Collection[str]]) -> bool:
    """Tell whether an inventory with these groups has what a role is for."""
    return not role.needs or bool(groups.get(role.needs))


def checks(
    role: str, facts: MachineFacts, wants: Managed, own: Mapping[str, Any], *, verify: bool = False
) -> list[Check]:
    """Return the checks of one role on one machine. ``own`` is what the role's own judge compares with.

    ``verify``: they are for a verdict, which has the rest from tasks that compare machines.
    """
    entry = ROLES[role]
    state: Mapping[str, Any] = facts.get("state") or {}
    found = managed.checks(generic(role, entry.kinds), wants, state)
    if entry.judge is not None and not (verify and entry.beside_others):
        found += managed.with_restarts(entry.judge(facts, own), wants, state)
    return found


def before(
    judged: Mapping[str, Sequence[Check]], groups: Collection[str]
) -> tuple[list[Check], dict[str, list[Check]]]:
    """Return what is judged before anything is changed on a machine in these groups, and of each role the rest.

    What of the first concerns the whole cluster is marked so.
    """
    first = {
        role: [check for check in checks if ROLES[role].refuses or check.before] for role, checks in judged.items()
    }
    rest = {role: [check for check in checks if check not in first[role]] for role, checks in judged.items()}
    needed = not _NEEDED.isdisjoint(groups)
    found = [check for checks in first.values() for check in checks]
    return [replace(check, whole=True) if needed and not check.ok else check for check in found], rest


def joins(judged: Mapping[str, Sequence[Check]], *, full: bool) -> list[str]:
    """Return the groups that a machine joins: of the roles that act there, and of those that replace a container."""
    failing = {
        role: [check for check in checks if check.verdict is Verdict.FAIL]
        for role, checks in judged.items()
        if not ROLES[role].refuses
    }
    replacing = [
        role
        for role, checks in failing.items()
        if any(one.kind is Kind.REPLACE for check in checks for one in check.consequences)
    ]
    return [f"pending_{role}" for role, checks in failing.items() if full or checks] + [
        f"replaces_{role}" for role in replacing
    ]


def roles_of(stages: Iterable[str]) -> list[str]:
    """Return the roles of these stages that are observed before they act, in order."""
    wanted = set(stages)
    return [
        name for name, role in ROLES.items() if role.stage in wanted or (role.asked_before and "preflight" in wanted)
    ]


def merge(options: MutableMapping[str, Any], name: str, value: Any) -> None:
    """Add what one role asks to what all roles ask: lists grow, mappings are joined, of numbers the highest counts."""
    if isinstance(value, list | tuple):
        options[name] = [*(there := options.get(name, [])), *(item for item in value if item not in there)]
    elif isinstance(value, Mapping):
        merged = options.setdefault(name, {})
        for key, part in value.items():
            merge(merged, key, part)
    elif isinstance(value, int):
        options[name] = max(value, options.get(name, value))
    else:
        options[name] = value


def handed_on(facts: MachineFacts, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what goes on from a machine's answer, as Ansible facts: each a word that a judge has understood.

    ``before`` are the machine's Ansible facts: what earlier questions of the run were about stays.

    ``cluster_machine``, what the role's own texts rest on; ``cluster_shared``, what other machines are compared with.
    """
    before = before or {}
    machine_before = before.get("cluster_machine") or {}
    shared, machine = _shared(facts), _of_machine(facts, machine_before.get("packages") or ())
    known = dict(before.get("cluster_shared") or {})
    if "images" in shared:
        shared["images"] = {**(known.get("images") or {}), **shared["images"]}
    silent = list(before.get("cluster_silent") or [])
    if facts.get("engine", {}).get("late") and "dockerd" not in silent:
        # So that no other question of the run waits for it.
        silent.append("dockerd")
    return {
        **({"cluster_silent": silent} if silent else {}),
        **({"cluster_lease": dict(facts["lease"])} if "lease" in facts else {}),
        **_distribution(facts.get("os")),
        "cluster_machine": {**machine_before, **machine},
        "cluster_shared": {**known, **shared},
    }


def _shared(facts: MachineFacts) -> dict[str, Any]:
    """Return what other machines are compared with."""
    shared: dict[str, Any] = {}
    for name, own in (("munge", facts.get("munge")), ("monitoring", facts.get("monitoring"))):
        if own is not None:
            shared[name] = {key: own.get(key, "") for key in ("salt", "fingerprint")}
    if "registry" in facts:
        shared["registry"] = facts["registry"].get("status") == 200
    made = facts.get("registry", {}).get("certificates")
    if made and made["problem"] is not None:
        # What is to be made anew is trusted by nobody: all wait for the new one.
        shared["authority"] = "" if made["problem"] else made["authority"]
    if "images" in facts:
        shared["images"] = {name: image["reference"] for name, image in facts["images"].items()}
    if "files" in (slurm := facts.get("slurm") or {}):
        # What slurmctld does not say is nothing that somebody could be accused of.
        resume = slurm["slurmctld"].get("resume")
        lines = [line.partition("=") for line in slurm["start"].splitlines()]
        start = at_start((name, value) for name, _, value in lines)
        shared["slurm"] = {"files": slurm["files"], "start": start, "resume": resume}
    if "saved" in (facts.get("slurm") or {}):
        shared["saved"] = facts["slurm"]["saved"]
    if "people" in facts:
        people = facts["people"]
        shared["people"] = {"users": people["ordinary_users"], "groups": people["ordinary_groups"]}
    if (drained := gpu_stage.drained(facts)) is not None:
        shared["drained"] = drained
    return shared


def _of_machine(facts: MachineFacts, had: Iterable[str]) -> dict[str, Any]:
    """Return what the texts of roles rest on; ``had`` are the packages that earlier questions have found."""
    machine: dict[str, Any] = {"container": bool(facts["container"])} if "container" in facts else {}
    if "engine" in facts:
        # Without its own words: what it answers and complains of is nobody's to rest on.
        machine["engine"] = {
            key: value for key, value in facts["engine"].items() if key not in ("server", "problem", "limit")
        }
    if "hostname" in facts:
        machine["hostname"] = facts["hostname"]
    if "memlock" in facts:
        machine["memlock"] = {key: facts["memlock"][key] for key in ("login_highest", "service_highest")}
    if "state" in facts and (pipes := facts["state"]["paths"].get(_SSSD)):
        machine["sssd"] = pipes.get("kind") == "directory"
    if "state" in facts and (settings := facts["state"]["paths"].get(_CLOUD_INIT)):
        machine["cloud_init"] = settings.get("kind") == "directory"
    if "firewall" in facts:
        machine["firewalls"] = firewall.stops(facts["firewall"])
    if "former" in facts.get("registry", {}):
        machine["former_registries"] = facts["registry"]["former"]
    if "state" in facts and (packages := facts["state"].get("packages")):
        machine["packages"] = sorted({*had, *packages})
    if "rdma" in facts:
        machine["rdma_adapters"] = len(facts["rdma"]["adapters"])
    return machine


def _distribution(system: OperatingSystem | None) -> dict[str, str]:
    """Return what Ansible calls the system, as far as roles ask."""
    if not system:
        return {}
    names = {"debian": "Debian", "ubuntu": "Ubuntu"}
    return {"distribution": names.get(system["id"], system["id"]), "distribution_version": system["version"]}
