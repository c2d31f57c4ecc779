# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the inventory says of all machines together, and what follows from it: the one place that reads it for roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from provision.errors import ClusterctlError
from provision.inventory import declared_mirrors, declared_proof, ports
from provision.inventory.declared import GROUPS, READ, cluster_from
from provision.inventory.declared_images import images_from, told
from provision.model import addresses, gres
from provision.model.users import UsersError
from provision.model.users_declared import users_from
from provision.nvidia import releases
from provision.slurm.at_start import at_start
from provision.slurm.conf import parameters, unconfined
from provision.slurm.render import render

DOCUMENTATION = """
name: declared
short_description: What follows from the inventory as a whole
description:
  - One value for each term. No machine is asked, and nothing of it rests on C(--limit).
  - All machines' variables are read for each term. What every machine needs is therefore made a fact once, by the first
    play of a run; 200 machines would read 200 machines' variables each.
options:
  _terms:
    description:
      - C(addresses), all addresses (IPv4) of O(hosts), of what they mount, and of the images' registry.
      - C(entries), address and names of each of O(hosts) whose address the inventory gives, as lines of a hosts file.
      - C(mirrors), the mirror of the images' registry that is near each compute node, by node.
      - C(ranks), how many ranks of a training job each compute node gets, one for each GPU.
      - C(slurm), the texts of Slurm's configuration by name, as C(clusterctl render) writes them. Not by the lookup
        C(template), which copies all variables for each file (0.2 s of processor here).
      - C(at_start), what of that configuration a start of Slurm's daemons rests on (provision.slurm.at_start).
      - C(torch), what pip is asked for to have a PyTorch that runs on the drivers that nodes declare.
      - C(proof), the user whose jobs prove the cluster, as roles read it.
      - C(mounts), the shared file systems, each with the machines that have it.
      - C(unmounted), what machines have had of those and are to have no longer, with the machines.
      - C(ports), every port that machines need from one another; C(ways_in), which of these O(rows) end at a
        O(machine), and from which addresses (O(entries)).
      - C(job_images), the images that users start jobs from, with what of them comes with the inventory.
      - C(unconfined), why Slurm's configuration confines no job, empty where it does.
    type: list
    elements: str
    required: true
  rows: {description: What C(ports) has given., type: list, elements: dict, default: []}
  entries: {description: What C(entries) has given., type: list, elements: dict, default: []}
  machine: {description: One machine of the inventory., type: str}
  hosts: {description: Of which machines the entries are., type: list, elements: str, default: []}
  without_gpus: {description: Ranks on a node that declares no GPU., type: int, default: 1}
"""


#: Variables in which machines of the cluster, or those that it rests on, are named by their addresses.
_WITH_ADDRESSES = (
    *addresses.ADDRESS_VARIABLES, "rdma_userspace_address", "cluster_mounts", "container_images_registry",
)  # fmt: skip


def plain(value):
    """Copy Ansible's lazy containers, which hold placeholders until they are iterated over, into ordinary ones."""
    if isinstance(value, Mapping):
        return {str(key): plain(value[key]) for key in value}
    return [plain(item) for item in value] if isinstance(value, Sequence) and not isinstance(value, str) else value


def read(hostvars, hosts, names):
    """Return of each host those of its variables that are named and set, as plain values."""
    found = ((str(host), hostvars[host]) for host in hosts)
    return {host: {name: plain(told[name]) for name in names if name in told} for host, told in found}


class LookupModule(LookupBase):
    """``lookup('declared', 'ranks')``."""

    def run(self, terms, variables=None, **kwargs):
        values = {
            "addresses": _addresses, "at_start": _at_start, "entries": _entries, "job_images": _job_images,
            "mirrors": _mirrors, "mounts": _mounts, "ports": _ports, "proof": _proof, "ranks": _ranks,
            "slurm": _slurm, "torch": _torch, "unconfined": _unconfined, "unmounted": _unmounted, "ways_in": _ways_in,
        }  # fmt: skip
        if unknown := [str(term) for term in terms if term not in values]:
            raise AnsibleLookupError(f"declared does not know {', '.join(unknown)}")
        groups, hostvars = variables.get("groups") or {}, variables.get("hostvars") or {}
        if "job_images" in terms:
            kwargs["home"] = str(variables.get("inventory_dir") or "")
        return [values[term](groups, hostvars, **kwargs) for term in terms]


def _addresses(_groups, hostvars, hosts=()):
    told = read(hostvars, [str(host) for host in hosts], _WITH_ADDRESSES)
    return sorted(addresses.addresses_in(told) | addresses.addresses_in(list(told)))


def _at_start(groups, hostvars):
    return _of_the_cluster(lambda cluster: at_start(line[:2] for line in parameters(cluster)), groups, hostvars)


def _entries(_groups, hostvars, hosts=()):
    names = [str(host) for host in hosts]
    return addresses.hosts_entries(read(hostvars, names, addresses.ADDRESS_VARIABLES), names)


def _mirrors(groups, hostvars):
    controller = [str(host) for host in groups.get("slurm_controller") or ()][:1]
    site = read(hostvars, controller, declared_mirrors.READ).get(controller[0], {}) if controller else {}
    nodes = [str(node) for node in groups.get("slurm_compute") or ()]
    try:
        return declared_mirrors.mirrors_from(site, nodes, controller[0] if controller else "")
    except ClusterctlError as error:
        raise AnsibleLookupError(f"{error.problem}\nFix: {error.fix}") from None


def _mounts(groups, hostvars):
    return _of_the_cluster(lambda cluster: [one.as_dict(groups) for one in cluster.mounts], groups, hostvars)


def _ports(groups, hostvars):
    members = _members(groups)
    hosts = [host for group in GROUPS for host in members.get(group, ())]
    told = read(hostvars, hosts, ports.READ_OF_EACH)
    for host in members.get("slurm_controller", ())[:1]:
        told[host].update(read(hostvars, [host], ports.READ)[host])
    rows = _of_the_cluster(lambda cluster: ports.ports_from(members, told, cluster), groups, hostvars)
    return [row.as_dict() for row in rows]


def _proof(groups, hostvars):
    """Of one machine's variables: they are the same for all (provision.inventory.valid), and people are many."""
    controller = [str(host) for host in groups.get("slurm_controller") or ()][:1]
    told = read(hostvars, controller, [*declared_proof.READ, "cluster_users", "cluster_groups"])
    site = told[controller[0]] if controller else {}
    try:
        people = users_from(site.get("cluster_users"), site.get("cluster_groups"))
        return declared_proof.proof_from(site, people).as_dict()
    except (ClusterctlError, UsersError) as error:
        raise AnsibleLookupError(f"{error.problem}\nFix: {error.fix}") from None


def _job_images(groups, hostvars, home=""):
    """Of one machine's variables, as those of people. Files beside the inventory are read: once in a run."""
    controller = [str(host) for host in groups.get("slurm_controller") or ()][:1]
    site = read(hostvars, controller, ["job_images"])
    try:
        return told(images_from(site[controller[0]].get("job_images") if controller else None), Path(home))
    except (ClusterctlError, OSError) as error:
        problem = f"{error.problem}\nFix: {error.fix}" if isinstance(error, ClusterctlError) else f"job_images: {error}"
        raise AnsibleLookupError(problem) from None


def _ranks(groups, hostvars, without_gpus=1):
    nodes = [str(node) for node in groups.get("slurm_compute") or ()]
    told = read(hostvars, nodes, ["node_gres"])
    return {node: gres.gpus(told[node].get("node_gres")) or int(without_gpus) for node in nodes}


def _slurm(groups, hostvars):
    return _of_the_cluster(render, groups, hostvars)


def _torch(groups, hostvars):
    nodes = [str(node) for node in groups.get("slurm_compute") or ()]
    told = [
        str(node.get("nvidia_driver_branch", "")) for node in read(hostvars, nodes, ["nvidia_driver_branch"]).values()
    ]
    return releases.torch_for({int(branch) for branch in told if branch.isdecimal()})


def _unconfined(groups, hostvars):
    return _of_the_cluster(unconfined, groups, hostvars)


def _unmounted(groups, hostvars):
    return _of_the_cluster(lambda cluster: [dict(one) for one in cluster.unmounted], groups, hostvars)


def _members(groups):
    return {str(group): [str(host) for host in hosts] for group, hosts in groups.items()}


def _ways_in(groups, _hostvars, rows=(), entries=(), machine=""):
    """No machine's variables are read, as each machine asks for its own."""
    return ports.ways_in(plain(rows), _members(groups), plain(entries), str(machine))


def _of_the_cluster(value, groups, hostvars):
    members = _members(groups)
    hosts = dict.fromkeys(host for group in GROUPS for host in members.get(group, ()))
    try:
        return value(cluster_from(members, read(hostvars, hosts, READ)))
    except ClusterctlError as error:
        raise AnsibleLookupError(f"{error.problem}\nFix: {error.fix}") from None
