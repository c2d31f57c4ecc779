#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a machine everything in one round trip. Reads only, so check mode is no different.

Why not C(ansible.builtin.setup), C(package_facts), C(service_facts) and C(stat): each is a task, and their questions
have no time limit of their own: one that hangs takes all others along. Measured (November 2026, over ssh, the least
of three): those four take 1.2 s of the control node's processor a machine, this 0.24 s, with the connection in both.
"""

from __future__ import annotations

import platform
import socket
import time

from ansible.module_utils import (
    hosts_text,
    image_recipe,
    image_store,
    job_image_sources,
    lease_file,
    machine_commands,
    machine_engine,
    machine_firewall,
    machine_gpu,
    machine_hardware,
    machine_key,
    machine_proxy,
    machine_rdma,
    machine_registry,
    machine_slurm,
    machine_state,
    machine_system,
    machine_users,
    store_users,
)
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: machine_facts
short_description: Report a machine's hardware in Slurm's terms and the state it is in
description:
  - Reads only. One call replaces a dozen tasks, because every task costs a connection.
  - Its action also measures how far the machine's clock is from the control node's.
options:
  gather:
    description:
      - What to report. C(hardware) includes the GPUs on the bus; C(gpu) is NVIDIA's hardware and driver in full,
        C(rdma) the adapters of InfiniBand and RoCE.
    type: list
    elements: str
    choices: [hardware, system, gpu, rdma]
    default: [hardware, system]
  names:
    description: Host names whose addresses are looked up on the machine.
    type: list
    elements: str
    default: []
  disk_paths:
    description: Directories whose free space is reported; they need not exist.
    type: list
    elements: str
    default: []
  packages:
    description: Packages of which C(rdma) reports the missing ones.
    type: list
    elements: str
    default: []
  lock_timeout:
    description: Seconds to wait for another package manager to finish before it is reported.
    type: int
    default: 0
  login_user:
    description: An ordinary user whose locked memory limit after a login is reported. Empty reports none.
    type: str
    default: ""
  files:
    description: Files whose content is reported with C(gpu), null where there is none. For small files of ours.
    type: list
    elements: path
    default: []
  apt:
    description: Report with C(gpu) also from where apt takes packages, which costs half a second.
    type: bool
    default: false
  state:
    description:
      - "What roles manage: C(paths), C(contents) (those read), C(texts) (those told), C(packages), C(services),
        C(containers)."
    type: dict
    default: {}
  munge:
    description: "Report mode, owner and salted hash of munge's key: C(path), and C(salt), a new one where it is empty."
    type: dict
    default: {}
  monitoring:
    description: "Report the same of the key with which the machines' figures are read: C(path), C(salt)."
    type: dict
    default: {}
  hosts:
    description:
      - "Report whether a hosts file is as wanted: C(path), C(entries), C(own_names), as for C(hosts_file);
        and whether these C(containers), of those of C(state), know the C(entries)."
    type: dict
    default: {}
  images:
    description:
      - By its name, a recipe as C(cluster_image) takes it, with the hashes of its files, C(sums), for their texts;
        reported is under which digest the registry has it.
    type: dict
    default: {}
  image_store:
    description: "Where images are, of what C(images) says: C(push), C(pull), C(cache), C(revision)."
    type: dict
    default: {}
  job_images:
    description:
      - "Report of the images of jobs, on the controller (C(images), C(store), C(repository), C(own)) which the registry
        has and from what they are made; on a node (C(node): C(store), C(repository), C(wanted)) what is in its store."
    type: dict
    default: {}
  engine:
    description:
      - Report which container engine there is, what its daemon.json says, and whether it answers within C(seconds);
        with C(disk_paths) also what is free where its images are to be (C(data_root)).
    type: dict
    default: {}
  registry:
    description:
      - Report whether the images' registry at C(host) answers within C(seconds). With C(login) also as whom the engine
        logs in, with C(certificates), C(directory), C(client), C(host) and C(days), whether the registry's are good.
    type: dict
    default: {}
  slurm:
    description:
      - "Report with which configuration Slurm's daemons run: on the controller C(directory) of the files and
        slurmctld's C(container), on a node C(cache), where slurmd keeps what it fetched, and C(ready), which is put
        there anew whenever a slurmd has come up; and, with C(belongs), of which cluster there is something, by the
        files C(state) and C(conf)."
    type: dict
    default: {}
  firewall:
    description:
      - "Report what the machine's own firewall stops of the C(ways) in: C(port), C(protocol), C(sources), C(purpose),
        with the networks of each of the C(sources), groups of machines, as a text."
    type: dict
    default: {}
  proxy:
    description: "Report whether the proxy at C(host) and C(port) takes a question that has no password."
    type: dict
    default: {}
  people:
    description:
      - "Report who is known: of C(users) and C(groups) by name, C(uids) and C(gids) by number, C(homes) by path."
    type: dict
    default: {}
  commands:
    description: "Programs that are asked, by name: C(argv), C(stdin), C(seconds). What they print is reported."
    type: dict
    default: {}
  lease:
    description: Report who says that he changes the cluster, by its lease on this machine, the controller.
    type: bool
    default: false
  patience:
    description: How many times longer than usual a question may take.
    type: int
    default: 1
  root:
    description: Directory below which files are read. Tests point it at a made-up machine.
    type: path
    default: /
"""


ARGUMENTS = {
    "gather": {
        "type": "list",
        "elements": "str",
        "choices": ["hardware", "system", "gpu", "rdma"],
        "default": ["hardware", "system"],
    },
    "names": {"type": "list", "elements": "str", "default": []},
    "disk_paths": {"type": "list", "elements": "str", "default": []},
    "packages": {"type": "list", "elements": "str", "default": []},
    "lock_timeout": {"type": "int", "default": 0},
    "login_user": {"type": "str", "default": ""},
    "files": {"type": "list", "elements": "path", "default": []},
    "apt": {"type": "bool", "default": False},
    "state": {"type": "dict", "default": {}},
    "munge": {"type": "dict", "default": {}},
    "monitoring": {"type": "dict", "default": {}},
    "hosts": {"type": "dict", "default": {}},
    "images": {"type": "dict", "default": {}},
    "image_store": {"type": "dict", "default": {}},
    "job_images": {"type": "dict", "default": {}},
    "engine": {"type": "dict", "default": {}},
    "registry": {"type": "dict", "default": {}},
    "slurm": {"type": "dict", "default": {}},
    "firewall": {"type": "dict", "default": {}},
    "proxy": {"type": "dict", "default": {}},
    "people": {"type": "dict", "default": {}},
    "commands": {"type": "dict", "default": {}},
    "lease": {"type": "bool", "default": False},
    "patience": {"type": "int", "default": 1},
    "root": {"type": "path", "default": "/"},
}


def gathered(root, asked):
    """Return what C(gather) names."""
    machine = {}
    gather, contained = asked["gather"], bool(machine_system.container(root))
    if "hardware" in gather:
        machine["hardware"] = {**machine_hardware.collect(root), **machine_gpu.bus(root, contained)}
        machine["hardware"]["rdma_ports"] = machine_rdma.port_count(root, contained)
    if "gpu" in gather:
        machine["gpu"] = machine_gpu.collect(root, files=asked["files"], apt=asked["apt"], contained=contained)
        machine.update(machine_system.identity(root))
    if "rdma" in gather:
        machine["rdma"] = machine_rdma.collect(
            root, login_user=asked["login_user"], packages=asked["packages"], contained=contained
        )
    if "system" in gather:
        names = ("names", "disk_paths", "lock_timeout", "login_user")
        machine.update(machine_system.collect(root, **{name: asked[name] for name in names}))
    return machine


def job_images(root, asked, patience):
    """Return what there is of the images of jobs, and, on the controller, of C(images) those that are made for them."""
    found, states = {}, {}
    if "images" in asked:
        there = job_image_sources.look(asked["images"], job_image_sources.SECONDS * patience)
        states = job_image_sources.states(asked, patience, there)
        found["sources"] = job_image_sources.sources(there, asked["images"], asked.get("mounts") or (), root)
        found["kept"] = job_image_sources.kept(asked) if asked["own"] else []
        found["garbage"] = asked["own"] and job_image_sources.garbage(asked["store"]).exists()
    if "node" in asked and not image_store.unreadable(asked["node"]["store"]):
        found["stored"] = store_users.collect(asked["node"])
    return found, states


def collect(asked):
    """Return the machine's answer to all that is asked."""
    root, patience, hosts = asked["root"], asked["patience"], asked["hosts"]
    machine = {"python": platform.python_version(), **gathered(root, asked)}
    if asked["state"]:
        machine.update(machine_system.identity(root))
    simple = {
        "state": lambda ask: machine_state.collect(root, {**ask, "hosts": hosts}, patience),
        "munge": lambda ask: machine_key.collect(root, ask),
        "monitoring": lambda ask: machine_key.collect(root, ask),
        "engine": lambda ask: machine_engine.collect(root, ask, patience),
        "registry": lambda ask: machine_registry.collect(root, ask, patience),
        "slurm": lambda ask: machine_slurm.collect(root, ask, patience),
        "firewall": lambda ask: machine_firewall.collect(ask, patience),
        "proxy": lambda ask: machine_proxy.collect(ask, root, patience),
        "people": lambda ask: machine_users.collect(root, ask, patience),
        "commands": lambda ask: {name: machine_commands.answer(one, patience) for name, one in ask.items()},
    }
    for name, look in simple.items():
        if asked[name]:
            machine[name] = look(asked[name])
    if "path" in hosts:
        machine["hosts"] = hosts_text.collect(root, {**hosts, "own_names": [*hosts["own_names"], socket.gethostname()]})
    if asked["lease"]:
        machine["lease"] = lease_file.look(root.rstrip("/") + lease_file.PATH)
    if asked["engine"] and "disks" in machine:
        machine["disks"].update(machine_system.disks(root, [machine["engine"]["images_at"]]))
    if asked["images"] and asked["image_store"]:
        machine["images"] = image_recipe.collect(asked["images"], asked["image_store"], patience)
    if asked["job_images"]:
        machine["job_images"], states = job_images(root, asked["job_images"], patience)
        if "images" in asked["job_images"]:
            machine.setdefault("images", {}).update(states)
    return machine


def main():
    begun = time.time()
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    machine = collect(module.params)
    machine["clock"] = {"begun": begun, "ended": time.time()}
    module.exit_json(changed=False, machine=machine)


if __name__ == "__main__":
    main()
