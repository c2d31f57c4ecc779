# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines on which a role has something to do, as their observation found."""

from __future__ import annotations

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

DOCUMENTATION = """
name: pending
short_description: Machines on which one of these roles has something to do
description:
  - Names of the hosts that C(observe) has put into C(pending_<role>), role by role, each host once. It asks no machine.
  - No host is an empty list. A play for nobody has the pattern C(!all); a group that does not exist would be a warning.
options:
  _terms: {description: Names of roles, type: list, elements: str, required: true}
  on:
    description: All of them, the controller alone, or all but the controller.
    type: str
    choices: [all, controller, others]
    default: all
"""


class LookupModule(LookupBase):
    """``query('pending', 'munge', on='others')``."""

    def run(self, terms, variables=None, **kwargs):
        which = kwargs.pop("on", "all")
        if kwargs or which not in ("all", "controller", "others"):
            raise AnsibleLookupError("pending takes names of roles, and on: all, controller or others")
        groups = variables.get("groups") or {}
        controller = groups.get("slurm_controller") or []
        hosts = dict.fromkeys(str(host) for role in terms for host in groups.get(f"pending_{role}") or [])
        return [host for host in hosts if which == "all" or (host in controller) == (which == "controller")]
