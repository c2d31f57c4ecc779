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

from provision.model.facts import facts_from
from provision.model.text import clean


class ActionModule(ActionBase):
    """``machine_facts``: see the module's documentation."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        before = time.time()
        answer = self._execute_module(task_vars=task_vars)
        after = time.time()
        if self._discovered_interpreter_key:
            # Not from the answer: it says which program runs on this machine from now on.
            result["ansible_facts"] = {self._discovered_interpreter_key: self._discovered_interpreter}
        if answer.get("failed") or "machine" not in answer:
            return {**result, "failed": True, "msg": self._why(answer)}
        try:
            machine: dict = dict(facts_from(answer["machine"], self._task.args.get("gather") or ()))
        except ValueError as error:
            return {**result, "failed": True, "msg": f"the machine answered something else than facts: {error}"}
        if clock := machine.pop("clock", None):
            low, high = sorted((clock.get("ended", 0) - after, clock.get("begun", 0) - before))
            machine["clock_offset"] = {"low": round(low, 3), "high": round(high, 3)}
        return {**result, "changed": False, "machine": machine}

    @staticmethod
    def _why(answer):
        """Return one line: the module's own words, or the last ones of what ran in its place."""
        said = answer.get("msg")
        words = [said] if isinstance(said, str) and said else ["the machine answered something else than facts"]
        for stream in ("module_stderr", "module_stdout"):
            lines = str(answer.get(stream) or "")[-500:].strip().splitlines()
            words += lines[-1:]
        return " ".join(clean("; ".join(dict.fromkeys(words)), 1000).split())
