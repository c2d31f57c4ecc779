"""From groups and variables, as Ansible holds them, to the declared cluster; and from errors to sentences."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from provision import hostlist
from provision.errors import ClusterctlError, did_you_mean
from provision.inventory import declared_docker, declared_proof
from provision.inventory.declared_accounts import database_from, enforced_by, require_admitted
from provision.inventory.declared_directories import require_job_directories
from provision.inventory.declared_environment import adapters_of_jobs, environment_from, require_task_prolog
from provision.inventory.declared_gres import detection_from
from provision.inventory.declared_hardware import AGAIN, hardware_of
from provision.inventory.declared_hardware import NAMES as HARDWARE
from provision.inventory.declared_homes import require_homes, require_shown
from provision.inventory.declared_image_logins import require_image_logins
from provision.inventory.declared_images import images_from
from provision.inventory.declared_mirrors import mirrors_from
from provision.inventory.declared_partitions import partitions_from
from provision.inventory.declared_programs import require_programs
from provision.inventory.declared_proxy import require_proxy
from provision.inventory.declared_runtime import container_runtime_from, require_programs_of_images
from provision.inventory.declared_slurm import (
    cgroup_parameters_from,
    parameters_from,
    release_from,
    require_database_parameters,
    require_old_control_groups,
    require_ports,
    switch_from,
)
from provision.inventory.declared_slurm_files import files_from, require_files
from provision.inventory.declared_storage import mounts_from, unmounted_from
from provision.inventory.declared_users import people_from
from provision.inventory.loader import GROUPS
from provision.inventory.plain import refuse_templates
from provision.inventory.removed import require_apart
from provision.model.cluster import Cluster, Node
from provision.slurm.gres import require_gpus

Hosts = Mapping[str, Sequence[str]]
Variables = Mapping[str, Mapping[str, Any]]

#: One value for the whole cluster, whichever host it is read from.
_SITE = (
    *("cluster_name", "cluster_simulated", "cluster_mounts", "slurm_version", "slurm_partitions"),
    *("slurm_conf_parameters", "slurm_conf_cgroup_parameters", "slurm_conf_files"),
    *("slurm_conf_gpu_detection", "slurm_conf_cgroup_v1_allowed", "job_container_runtime"),
    "job_container_packages",
    *declared_docker.READ,
    *("job_environment", "job_offline"),
    *("cluster_users", "cluster_groups", "cluster_homes_shared", "job_images"),
    *declared_proof.READ,
    "slurm_database_parameters",
    "container_images_mirrors",
)
#: What a lab can have that is no hardware.
_SIMULATED = ("gpu", "rdma")
_NOT_SLURMS = {"cluster_users", "cluster_groups", "job_images", *declared_docker.READ}
#: Every variable that Slurm's configuration rests on.
READ = frozenset({*HARDWARE, *_SITE, "ansible_host"} - _NOT_SLURMS)

# A label of a host name, as a machine's own name can be; a letter in it, so that it is never taken for an address.
_NAME = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_RESERVED = frozenset({"all", "any", "default", "localhost", "none", "ungrouped"})


def cluster_from(groups: Hosts, hostvars: Variables) -> Cluster:
    """Return the cluster that an inventory declares.

    ``groups`` maps each group to its hosts, child groups included; ``hostvars`` maps each host to its variables.

    Raises:
        ClusterctlError: what is declared contradicts itself, or cannot stand in Slurm's files.
    """
    require_apart(groups)
    controller = _controller(groups)
    compute = tuple(dict.fromkeys(groups.get("slurm_compute", ())))
    if not compute:
        raise ClusterctlError(
            "the inventory has no compute node: group slurm_compute is empty",
            fix="write the names of the compute nodes under [slurm_compute]",
        )
    _require_logins(groups, controller)
    ours = tuple(dict.fromkeys(host for group in GROUPS for host in groups.get(group, ())))
    require_names(ours, groups)
    addresses = _addresses(ours, hostvars)
    require_proxy(hostvars)
    site = _site(controller, ours, hostvars)
    if site["cluster_name"] is None:
        raise ClusterctlError("cluster_name is not set", fix="write cluster_name=<name> under [all:vars]")
    version = release_from(site["slurm_version"])
    hardware = hardware_of(compute, hostvars, version)
    parameters = parameters_from(site["slurm_conf_parameters"], version)
    require_ports(parameters, alone=controller not in compute, database=bool(groups.get("slurm_database")))
    files = files_from(site["slurm_conf_files"], version)
    require_files(parameters, files)
    require_database_parameters(site["slurm_database_parameters"], version)
    mounts = mounts_from(site["cluster_mounts"], groups)
    require_job_directories(hostvars)
    of_nodes = [hostvars.get(name, {}) for name in compute]
    require_programs(parameters, files, mounts, hostvars.get(controller, {}), of_nodes)
    mirrors_from(hostvars.get(controller, {}), compute, controller)
    people = people_from(site["cluster_users"], site["cluster_groups"], hostvars)
    declared_docker.require_docker(site, people, addresses.values())
    require_homes(people, mounts, groups, site["cluster_homes_shared"])
    require_shown(files, people, mounts)
    images = images_from(site["job_images"])
    require_image_logins(hostvars.get(controller, {}).get("job_images_logins"), images)
    environment = environment_from(site["job_environment"], site["job_offline"], mounts, hostvars)
    require_task_prolog(environment, parameters, version)
    runtime = container_runtime_from(site["job_container_runtime"], files, site["job_container_packages"])
    require_programs_of_images(runtime, parameters)
    environment = adapters_of_jobs(environment, of_nodes)
    try:
        cluster = Cluster(
            name=site["cluster_name"],
            controller=controller,
            nodes=tuple(Node(name=name, address=addresses[name], hardware=hardware[name]) for name in compute),
            partitions=partitions_from(site["slurm_partitions"], compute, version),
            slurm_version=version,
            slurm_parameters=parameters,
            slurm_files=files,
            container_runtime=runtime,
            cgroup_parameters=cgroup_parameters_from(site["slurm_conf_cgroup_parameters"], version),
            gpu_detection=detection_from(site["slurm_conf_gpu_detection"]),
            cgroup_v1_allowed=switch_from("slurm_conf_cgroup_v1_allowed", site["slurm_conf_cgroup_v1_allowed"]),
            mounts=mounts,
            job_images=images,
            job_environment=environment,
            unmounted=unmounted_from(site["cluster_mounts"], groups),
            simulated=_simulated(site["cluster_simulated"]),
            people=people,
            database=database_from(groups, controller),
        )
    except ValidationError as error:
        raise ClusterctlError(
            f"cluster_name is '{site['cluster_name']}': it must be lower-case letters, digits, '-' and '_', "
            "beginning with a letter or digit, 40 at most",
            fix=AGAIN,
            said=("cluster_name", ""),
        ) from error
    require_old_control_groups(cluster)
    require_gpus(cluster)
    cluster = cluster.model_copy(update={"enforced": enforced_by(cluster, site)})
    proof = declared_proof.proof_from(site, people)
    require_admitted(cluster, proof)
    return cluster


def require_names(hosts: Iterable[str], groups: Hosts) -> None:
    """Refuse host names that could not be a machine's own, or would mean something else in Slurm's files.

    Raises:
        ClusterctlError: a name is malformed, reserved, or differs from another in upper and lower case only.
    """
    seen: dict[str, str] = {}
    for host in hosts:
        problem, shown = "", host if len(host) <= 70 else host[:67] + "..."
        if not _NAME.fullmatch(host):
            problem = (
                f"{shown!r} cannot be a host's name: 63 letters, digits, '-' "
                "and '_' at most, a letter among them, beginning with a letter or digit"
            )
            fix = "give the machine's short name (hostname -s), and its address as ansible_host=..."
        elif host.lower() in _RESERVED:
            problem = f"'{host}' cannot be a host's name: the word has a meaning of its own in Ansible or Slurm"
            fix = "give the machine's own short name (hostname -s); ansible_connection=local is fine with any name"
        elif (other := seen.setdefault(host.lower(), host)) != host:
            problem = f"'{other}' and '{host}' are the same name to a name server"
            fix = "rename one of the two machines"
        if problem:
            # It is written in the smallest, of two in the site's own: others have it from their children.
            found = [name for name in groups if host in groups[name]]
            group = min(found, key=lambda name: (len(groups[name]), name in GROUPS))
            raise ClusterctlError(problem, fix=fix, member=(group, host))


def _controller(groups: Hosts) -> str:
    controllers = tuple(dict.fromkeys(groups.get("slurm_controller", ())))
    if len(controllers) == 1:
        return controllers[0]
    if not controllers:
        raise ClusterctlError(
            "the inventory has no controller: group slurm_controller is empty",
            fix="write the controller's name under [slurm_controller]",
        )
    raise ClusterctlError(
        f"the inventory has {len(controllers)} controllers, {hostlist.fold(controllers)}; exactly one is supported",
        fix="leave one of them under [slurm_controller]",
        member=("slurm_controller", controllers[-1]),
    )


def _addresses(hosts: Sequence[str], hostvars: Variables) -> dict[str, str]:
    addresses: dict[str, str] = {}
    owners: dict[str, str] = {}
    for host in hosts:
        variables = hostvars.get(host, {})
        address = str(variables.get("ansible_ssh_host") or variables.get("ansible_host") or host)
        refuse_templates(host, "ansible_host", address)
        _require_address(host, address)
        if (other := owners.setdefault(address.lower(), host)) != host:
            raise ClusterctlError(
                f"{other} and {host} have the same address, {address}",
                fix="give each machine its own ansible_host, or remove the one that is written twice",
                said=("ansible_host", address),
            )
        addresses[host] = address
    return addresses


def _require_address(host: str, address: str) -> None:
    problem, fix = "", AGAIN
    if ":" in address:
        problem = "is of IPv6, which Slurm's daemons do not use here"
        fix = "give the machine's address of IPv4, or a name that has one"
    elif re.fullmatch(r"[0-9.]+", address):
        try:
            parsed = ipaddress.IPv4Address(address)
            if parsed.is_unspecified or parsed.is_multicast or address == "255.255.255.255":
                problem = "is no machine's address"
        except ValueError:
            problem = "is neither an address nor a name"
    elif not re.fullmatch(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})", address):
        problem = "is neither an address nor a name"
    if problem:
        raise ClusterctlError(
            f"{host}: ansible_host is {address[:70]!r}: it {problem}", fix=fix, said=("ansible_host", address)
        )


def _site(controller: str, hosts: Sequence[str], hostvars: Variables) -> dict[str, Any]:
    site = {name: hostvars.get(controller, {}).get(name) for name in _SITE}
    for name, value in site.items():
        refuse_templates(controller, name, value)
        others = [host for host in hosts if hostvars.get(host, {}).get(name) != value]
        if others:
            found = hostvars.get(others[0], {}).get(name)
            raise ClusterctlError(
                f"{name} is {value!r} for {controller} and {found!r} for {hostlist.fold(others)}, "
                "but is one value for the whole cluster",
                fix=f"set {name} once, under [all:vars] or in group_vars/all.yml",
            )
    return site


def _simulated(value: Any) -> tuple[str, ...]:
    words = value.split(",") if isinstance(value, str) else value or ()
    if not isinstance(words, list | tuple) or not all(
        isinstance(word, str) and re.fullmatch(r"[a-z_]*", word.strip()) for word in words
    ):
        raise ClusterctlError(
            f"cluster_simulated is {value!r}: it must be a list of words", fix="set it as cluster_simulated=gpu"
        )
    found = tuple(word.strip() for word in words if word.strip())
    for word in found:
        if word not in _SIMULATED:
            raise ClusterctlError(
                f"cluster_simulated names {word[:70]!r}: it must be one or more of {', '.join(_SIMULATED)}",
                fix=did_you_mean(word, _SIMULATED, "remove it"),
                said=("cluster_simulated", ""),
            )
    return found


def _require_logins(groups: Mapping[str, Sequence[str]], controller: str) -> None:
    """Refuse login hosts on which jobs run. The controller may be one: it has all that they have.

    Raises:
        ClusterctlError: a compute node is in the group slurm_login; ``member`` is the first of them.
    """
    compute = set(groups.get("slurm_compute", ())) - {controller}
    if both := [host for host in dict.fromkeys(groups.get("slurm_login", ())) if host in compute]:
        raise ClusterctlError(
            f"{hostlist.fold(both)}: in the groups slurm_login and slurm_compute; what keeps Slurm's configuration"
            " on a login host takes slurmd's port",
            fix="take it out of [slurm_login]: users get to a compute node by a job (srun --pty bash)",
            member=("slurm_login", both[0]),
        )
