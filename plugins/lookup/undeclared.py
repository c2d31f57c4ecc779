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
    discovery always records. It takes no terms, and asks no machine.
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
        return [str(node) for node in nodes if any(hostvars[node].get(name) is None for name in ALWAYS)]
