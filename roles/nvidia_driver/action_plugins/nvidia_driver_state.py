# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a machine for its GPUs and its driver, decide, and judge: one task, so that a machine without GPUs costs one.

``wants`` are the role's variables without its name. ``purpose`` is ``plan`` (refuse what is impossible, and processes
that Slurm does not know; prove the driver where nothing is to be done) or ``verify`` (prove it). The result carries
``machine``, ``plan``, ``activation``.

Why not a task for each step: a machine without GPUs would skip them one by one. Measured (November 2026, ten machines,
the least of three): a task that is skipped is 0.011 s of the control node's processor a machine.
"""

from __future__ import annotations

from ansible.plugins.action import ActionBase

from provision.judge import driver as verify_driver
from provision.model import gpu_facts
from provision.nvidia import driver as nvidia_driver
from provision.nvidia import driver_packages as nvidia_driver_packages
from provision.nvidia import driver_state as nvidia_driver_state


class ActionModule(ActionBase):
    """``nvidia_driver_state``: see the module's docstring."""

    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        wants = dict(self._task.args["wants"].items())
        asked = {
            "gather": ["gpu"],
            "files": list(nvidia_driver_packages.PLACES),
            "apt": wants["source"] == "distribution",
        }
        answer = self._execute_module(module_name="machine_facts", module_args=asked, task_vars=task_vars)
        if "machine" not in answer:
            return {**result, **answer}
        try:
            machine = gpu_facts.read(answer["machine"])
        except ValueError:
            # It plans nothing, and its checks say what is wrong with its answer.
            return {**result, **self._judged(verify_driver.checks(answer["machine"], wants), task_vars)}
        plan = nvidia_driver.plan(machine, wants)
        state = nvidia_driver_state.activation(machine["gpu"], plan.flavour)
        if self._task.args["purpose"] == "plan" and (plan.refusals or plan.pending):
            warnings = [check for check in verify_driver.refused(plan) if check.ok]
            checks = [*warnings, *verify_driver.preflight(machine, plan, wants)]
        else:
            checks = verify_driver.checks(machine, wants)
        result.update(self._judged(checks, task_vars))
        result.update(plan=plan.as_dict(), machine=machine, changed=False)
        return {**result, "activation": {"action": state.action, "reason": state.reason}}

    def _judged(self, checks, task_vars):
        """Have the checks recorded, or fail, as cluster_check does it."""
        task = self._task.copy()
        task.args = {"results": [check.as_dict() for check in checks]}
        parts = {"connection": self._connection, "play_context": self._play_context, "loader": self._loader,
                 "templar": self._templar, "shared_loader_obj": self._shared_loader_obj}  # fmt: skip
        judge = self._shared_loader_obj.action_loader.get("cluster_check", task=task, **parts)
        return judge.run(task_vars=task_vars)
