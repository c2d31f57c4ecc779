# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare a container with what the engine says of it, and run the module of the same name only where it differs."""

from __future__ import annotations

import time

from ansible.plugins.action import ActionBase

from provision.judge import containers
from provision.model.facts import answered
from provision.model.managed import container


class ActionModule(ActionBase):
    """``cluster_container``: see the module's documentation."""

    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        want = container(self._task.args)
        if not want.image or not want.known:
            what = "image" if want.known else "settings"
            return {**result, "failed": True, "msg": f"of which {what} {want.name} should be is not known"}
        before = time.time()
        answer = self._execute_module(
            module_name="machine_facts",
            module_args={"gather": [], "state": {"containers": [want.name]}},
            task_vars=task_vars,
        )
        try:
            told = answered(answer, (), before, time.time())["state"]["containers"]
        except ValueError as error:
            return {**result, "failed": True, "msg": str(error)}
        if told is None:
            return {**result, "failed": True, "msg": f"{want.name}: the container engine did not answer in time"}
        action = containers.needed(want, told)
        found = (told.get("found") or {}).get(want.name) or {}
        wrong = containers.differences(want, found, told) if action == "replace" else []
        result.update(changed=action != "nothing", action=action, differences=wrong)
        if self._task.diff and wrong:
            result["diff"] = {"prepared": "".join(f"{want.name} {one}\n" for one in wrong)}
        if action == "nothing" or self._task.check_mode:
            return result
        done = self._execute_module(
            module_args={**self._task.args, "action": action, "raised": bool(told.get("raised"))},
            task_vars=task_vars,
        )
        return {**result, **done}
