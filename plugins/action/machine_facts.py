# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the module of the same name, and bracket the machine's clock between two readings of our own.

What the machine's clock showed when the module began cannot be earlier than our reading before the call, and what it
showed when the module ended cannot be later than our reading after it. So the offset lies between two bounds, whatever
the connection and the machine's load cost; a judgement by the bound nearest to zero never accuses a slow machine.
"""

from __future__ import annotations

import time

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """``machine_facts``: see the module's documentation."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        before = time.time()
        result.update(self._execute_module(task_vars=task_vars))
        after = time.time()
        clock = result.get("machine", {}).pop("clock", None)
        if clock:
            low, high = sorted((clock["ended"] - after, clock["begun"] - before))
            result["machine"]["clock_offset"] = {"low": round(low, 3), "high": round(high, 3)}
        return result
