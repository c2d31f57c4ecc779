# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put data into the run's report, from the control node: ``status`` is ``cluster_status`` of the result.

Why not C(ansible.builtin.set_stats): its values come with the end of the run, and one that is killed has none. No
figure: safety, as a killed run has to be told as it was.
"""

from __future__ import annotations

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """``cluster_report``: see the module's docstring."""

    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        if set(self._task.args) != {"status"}:
            raise AnsibleActionFail("cluster_report takes exactly one thing: status")
        result.update(changed=False, cluster_status=self._task.args["status"])
        return result
