# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the module of this name; a change that it has taken back becomes a check, by which the run has its exit code."""

from __future__ import annotations

from ansible.plugins.action import ActionBase

from provision.judge.slurm_running import rolled_back
from provision.model.text import one_line

#: What a failure is told by; it comes from the machine.
_TEXTS = {"msg", "stderr", "module_stderr"}


class ActionModule(ActionBase):
    """``slurmctld_refresh``: see the module's documentation."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        result.update(self._execute_module(module_args=dict(self._task.args), task_vars=task_vars))
        for key in _TEXTS & result.keys():
            result[key] = one_line(result[key])
        if result.get("failed") and result.get("rolled_back") is True:
            result["cluster_checks"] = [rolled_back(str(result.get("msg", ""))).as_dict()]
        return result
