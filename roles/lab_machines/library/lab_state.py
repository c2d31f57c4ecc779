#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ask Docker and QEMU which machines of a lab there are and what they are doing.

Why not C(community.docker.docker_container_info): it asks for one container by its name, wants a Python library, and
knows nothing of virtual machines. No figure: capability, as it tells containers and virtual machines alike.
"""

from __future__ import annotations

import json
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from provision.lab import computer

DOCUMENTATION = """
module: lab_state
short_description: Ask Docker and QEMU which machines of a lab there are and what they are doing
description: Read-only. The answer is in C(cluster_data), where clusterctl looks for what a command shall show.
options:
  name:
    description: The lab's name.
    type: str
    required: true
  directory:
    description: Where the module lab_vms keeps the lab's virtual machines.
    type: path
    required: true
"""

EXAMPLES = """
- name: Ask for the machines of a lab
  lab_state:
    name: lab
    directory: /root/.local/state/clusterctl/labs/lab/vm
"""

RETURN = """
cluster_data:
  description:
    - The lab's machines, the controller first; C(state) is Docker's word, such as running or exited, also for a virtual
      machine; C(container) is empty for one.
  returned: always
  type: dict
  sample: {"machines": [{"name": "head", "address": "172.18.0.10", "state": "running", "kind": "vm", "container": ""}]}
"""


def machines_of(inspected):
    """Return the machines that C(docker inspect) described."""
    found = []
    for container in inspected:
        if container["Config"]["Labels"].get("clusterctl.machine") == "depot":
            continue
        networks = container["NetworkSettings"]["Networks"]
        assigned = [
            network.get("IPAddress") or (network.get("IPAMConfig") or {}).get("IPv4Address", "")
            for network in networks.values()
        ]
        found.append(
            {
                "name": container["Config"]["Labels"].get("clusterctl.machine", ""),
                "address": next((address for address in assigned if address), ""),
                "state": container["State"]["Status"],
                "kind": "container",
                "container": container["Name"].lstrip("/"),
            }
        )
    return found


def virtual_machines(directory, running):
    """Return the machines that have a directory with their description; ``running`` are those with a process."""
    found = []
    for description in directory.glob("*/machine.json"):
        name = description.parent.name
        made = json.loads(description.read_text(encoding="utf-8"))
        state = "running" if name in running else "exited"
        found.append({"name": name, "address": made["address"], "state": state, "kind": "vm", "container": ""})
    return found


def in_order(machines):
    """Return the controller first and the others by their number."""
    return sorted(machines, key=lambda machine: (machine["name"] != "head", len(machine["name"]), machine["name"]))


def main():
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={"name": {"type": "str", "required": True}, "directory": {"type": "path", "required": True}},
        supports_check_mode=True,
    )
    lab, directory = module.params["name"], Path(module.params["directory"])
    label = f"label=clusterctl.lab={lab}"
    identities = module.run_command(
        ["docker", "ps", "--all", "--quiet", "--filter", label, "--filter", "label=clusterctl.machine"],
        check_rc=True,
        environ_update={"LC_ALL": "C"},
    )[1].split()
    inspected = []
    if identities:
        inspected = json.loads(module.run_command(["docker", "inspect", *identities], check_rc=True)[1])
    found = machines_of(inspected) + virtual_machines(directory, computer.running(lab))
    module.exit_json(changed=False, cluster_data={"machines": in_order(found)})


if __name__ == "__main__":
    main()
