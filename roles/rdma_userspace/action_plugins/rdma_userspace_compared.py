# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Say what machines (``hosts``) have in common: ``group`` of the result is what most of them have.

``seen`` names the variable in which each machine's answer was registered. With ``measure``, the settings of transfers,
``plan`` is who moves data to whom, with what only this run's machines know (``token``). It runs once for all: each
machine would read all machines' answers, the square of their number.

Why not a filter: it would have to be handed all machines' variables, and nothing could be said of what it reads. No
figure: safety, as what machines answer is read in one place.
"""

from __future__ import annotations

from dataclasses import asdict

from ansible.plugins.action import ActionBase

from provision.judge import rdma
from provision.judge.answers import mapping
from provision.rdma import rounds
from provision.rdma.expected import majority, unused_in


class ActionModule(ActionBase):
    """``rdma_userspace_compared``: see the module's docstring."""

    BYPASS_HOST_LOOP = True
    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args, found, addresses, unused = self._task.args, {}, {}, {}
        for host in map(str, args["hosts"]):
            variables = task_vars["hostvars"][host]
            addresses[host] = str(variables.get("rdma_userspace_address") or host)
            unused[host] = unused_in(variables.get("node_rdma_unused"))
            machine = mapping(mapping(variables.get(str(args["seen"]))).get("machine"))
            if "rdma" in machine:
                found[host] = machine["rdma"]
        result.update(changed=False, group=asdict(majority(rdma.adapters_of(one) for one in found.values())))
        if measure := args.get("measure"):
            plan = rounds.plan(found, addresses, measure, unused)
            result["plan"] = {**plan, "token": str(measure["token"])}
        return result
