# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the module of the same name, read its answer as input, and bracket the machine's clock between two of our own.

What the machine's clock showed when the module began cannot be earlier than our reading before the call, and what it
showed when the module ended cannot be later than our reading after it. So the offset lies between two bounds, whatever
the connection and the machine's load cost; a judgement by the bound nearest to zero never accuses a slow machine.

A machine's Python can answer anything. Nothing of it goes on but facts of the right types and within bounds; what is
something else is this machine's failure.
"""

from __future__ import annotations

import time

from ansible.plugins.action import ActionBase

from provision.model.facts import answered


class ActionModule(ActionBase):
    """``machine_facts``: see the module's documentation."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        before = time.time()
        answer = self._execute_module(task_vars=task_vars)
        after = time.time()
        facts = result.setdefault("ansible_facts", {})
        if self._discovered_interpreter_key:
            # Not from the answer: it says which program runs on this machine from now on.
            facts[self._discovered_interpreter_key] = self._discovered_interpreter
        try:
            machine = answered(answer, self._task.args.get("gather") or (), before, after)
        except ValueError as error:
            return {**result, "failed": True, "msg": str(error)}
        if "rdma" in machine:
            # The proof of training is compared with it, whichever role has asked.
            facts["cluster_rdma"] = machine["rdma"]
        return {**result, "changed": False, "machine": dict(machine)}
