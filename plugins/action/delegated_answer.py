# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask the machine that the task is delegated to; that it cannot be reached is an answer: ``unreached`` says why.

Ansible takes a delegated task that reaches nobody for a failure of the machine that it was about, and with ``run_once``
takes every machine out of the play. What a verification asks the controller for must cost the nodes neither.
"""

from __future__ import annotations

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """``delegated_answer``: ``module`` is run with ``options``; what it returns is returned, a failure too."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args = self._task.args
        if set(args) - {"module", "options"} or "module" not in args:
            raise AnsibleActionFail("delegated_answer takes a module and its options")
        try:
            answer = self._execute_module(args["module"], dict(args.get("options") or {}), task_vars=task_vars)
        except AnsibleConnectionFailure as error:
            answer = {"unreached": str(error)}
        return {**result, **answer}
