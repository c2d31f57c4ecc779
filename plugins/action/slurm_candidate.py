# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a slurmctld that nobody can reach whether it starts with the inventory's configuration, and judge its answer.

The module of this name starts it on the machine. What it refuses fails the task, with Slurm's own words and the line of
the inventory that they speak of; where no slurmctld could be asked, that is a warning. What takes something away that
jobs use fails the task, too, unless C(end_jobs) says that they may end.
"""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from provision.image_files import sums
from provision.inventory.where import spoken_written
from provision.judge.queue import queue
from provision.judge.slurm_conf import candidate
from provision.slurm.candidate import prepared, spoken_of
from provision.slurm.taken import FORMAT


class ActionModule(ActionBase):
    """``slurm_candidate``: see the module's documentation; ``texts`` are as they are to be written."""

    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        texts = {str(name): str(text) for name, text in self._task.args["texts"].items()}
        module_args = {**self._task.args, "texts": prepared(texts), "sums": sums(texts), "format": FORMAT}
        ends = boolean(module_args.pop("end_jobs", False), strict=False)
        answer = self._execute_module(module_args=module_args, task_vars=task_vars)
        lines = [str(line) for line in answer.get("lines") or [answer.get("msg") or ""] if line]
        code = str(answer.get("code", ""))
        spoken = spoken_of(texts, lines) if code == "refused" else None
        checks = [candidate(code, lines, _place(spoken, task_vars) if spoken else "")]
        if code != "same":
            used = [answer.get(name) for name in ("live", "queue", "reservations")]
            checks.append(queue(used[0], texts["slurm.conf"], used[1], str(used[2] or ""), ends=ends))
        bad = [check.sentence for check in checks if not check.ok]
        result.update(changed=False, lines=lines, cluster_checks=[check.as_dict() for check in checks])
        return {**result, "failed": True, "msg": "\n".join(bad)} if bad else result


def _place(spoken, task_vars):
    """Return where in the inventory that is."""
    files = task_vars.get("slurm_conf_files") or {}
    source = task_vars.get("inventory_file")
    return spoken_written(Path(source), spoken, files) if source else ""
