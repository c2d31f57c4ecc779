# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The compute nodes of which the inventory does not say all that every machine has."""

from __future__ import annotations

from ansible.plugins.lookup import LookupBase

from provision.model.discovered import ALWAYS

DOCUMENTATION = """
name: undeclared
short_description: Compute nodes that the inventory does not describe in full
description:
  - Names, in the inventory's order, of the hosts in C(slurm_compute) for which one of the values is undefined that a
    discovery always records, or that has C(node_mig) and not C(node_mig_devices). It takes no terms, asks no machine.
options: {}
"""


class LookupModule(LookupBase):
    """``query('undeclared')``."""

    def run(self, terms, variables=None, **kwargs):
        nodes = (variables.get("groups") or {}).get("slurm_compute") or []
        # Where playbooks are only read (--syntax-check, --list-tasks) no machine has variables.
        hostvars = variables.get("hostvars")
        if hostvars is None:
            return []
        return [str(node) for node in nodes if undeclared(hostvars[node])]


def undeclared(told):
    """Tell whether a node lacks what a discovery records, or the places of MIG instances that are yet to be made."""
    by_files = told.get("slurm_conf_gpu_detection") != "nvml"
    places = told.get("node_mig") and by_files and not told.get("node_mig_devices")
    return bool(places) or any(told.get(name) is None for name in ALWAYS)
