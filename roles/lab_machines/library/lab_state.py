#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ask Docker which machines of a lab there are and what they are doing."""

from __future__ import annotations

import json

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: lab_state
short_description: Ask Docker which machines of a lab there are and what they are doing
description: Read-only. The answer is in C(cluster_data), where clusterctl looks for what a command shall show.
options:
  name:
    description: The lab's name.
    type: str
    required: true
"""

EXAMPLES = """
- name: Ask for the machines of a lab
  lab_state:
    name: lab
"""

RETURN = """
cluster_data:
  description: The lab's machines, the controller first; C(state) is Docker's word, such as running or exited.
  returned: always
  type: dict
  sample: {"machines": [{"name": "head", "address": "172.18.0.10", "state": "running", "container": "lab-head"}]}
"""


def machines_of(inspected):
    """Return the machines that C(docker inspect) described, the controller first and the others by their number."""
    found = []
    for container in inspected:
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
                "container": container["Name"].lstrip("/"),
            }
        )
    return sorted(found, key=lambda machine: (machine["name"] != "head", len(machine["name"]), machine["name"]))


def main():
    """Run as an Ansible module."""
    module = AnsibleModule(argument_spec={"name": {"type": "str", "required": True}}, supports_check_mode=True)
    label = "label=clusterctl.lab=" + module.params["name"]
    identities = module.run_command(
        ["docker", "ps", "--all", "--quiet", "--filter", label], check_rc=True, environ_update={"LC_ALL": "C"}
    )[1].split()
    inspected = []
    if identities:
        inspected = json.loads(module.run_command(["docker", "inspect", *identities], check_rc=True)[1])
    module.exit_json(changed=False, cluster_data={"machines": machines_of(inspected)})


if __name__ == "__main__":
    main()
