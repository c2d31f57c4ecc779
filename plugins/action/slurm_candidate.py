# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a slurmctld that nobody can reach whether it starts with the inventory's configuration, and judge its answer.

The module of this name starts it on the machine. What it refuses fails the task, with Slurm's own words and the line of
the inventory that they speak of; where no slurmctld could be asked, that is a warning.
"""

from __future__ import annotations

from pathlib import Path

from ansible.plugins.action import ActionBase

from provision.image_files import sums
from provision.inventory.where import spoken_written
from provision.judge.slurm_conf import candidate
from provision.slurm.candidate import prepared, spoken_of


class ActionModule(ActionBase):
    """``slurm_candidate``: see the module's documentation; ``texts`` are as they are to be written."""

    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        texts = {str(name): str(text) for name, text in self._task.args["texts"].items()}
        module_args = {**self._task.args, "texts": prepared(texts), "sums": sums(texts)}
        answer = self._execute_module(module_args=module_args, task_vars=task_vars)
        lines = [str(line) for line in answer.get("lines") or [answer.get("msg") or ""] if line]
        code = str(answer.get("code", ""))
        spoken = spoken_of(texts, lines) if code == "refused" else None
        check = candidate(code, lines, _place(spoken, task_vars) if spoken else "")
        result.update(changed=False, lines=lines, cluster_checks=[check.as_dict()])
        return result if check.ok else {**result, "failed": True, "msg": check.sentence}


def _place(spoken, task_vars):
    """Return where in the inventory that is."""
    files = task_vars.get("slurm_conf_files") or {}
    source = task_vars.get("inventory_file")
    return spoken_written(Path(source), spoken, files) if source else ""
