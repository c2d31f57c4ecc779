# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write where MIG instances lie beside the inventory, as discovered hardware. Runs on the control node.

``told`` is what ``nvidia-smi mig -lci`` has printed; ``directory`` is the ``host_vars`` directory, or empty. The result
carries ``devices``, as ``node_mig_devices`` has them.

Why not C(ansible.builtin.template): the file is the one of C(hardware_record), which adds to what is there and leaves
an operator's own file alone. No figure: without it the first provision of a node with MIG ends half-way.
"""

from __future__ import annotations

import datetime

from ansible.plugins.action import ActionBase

from provision.inventory import hardware_file
from provision.nvidia.mig import listed


class ActionModule(ActionBase):
    """``mig_record``: see the module's docstring."""

    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        host, args = str(task_vars["inventory_hostname"]), self._task.args
        devices = ",".join(str(device) for device in listed(str(args["told"])))
        result.update(changed=False, devices=devices)
        if not devices:
            return result
        values = (("node_mig_devices", devices, "nvidia-smi mig -lci"),)
        try:
            plan = hardware_file.plan(str(args["directory"] or ""), host, values, datetime.date.today())
            if plan.refusal:
                return {**result, "warnings": [f"{plan.refusal}; declare node_mig_devices={devices} for {host}"]}
            hardware_file.write(plan)
        except OSError as error:
            fix = f"make the inventory's directory writable, or declare node_mig_devices={devices} for {host}"
            return {**result, "failed": True, "msg": f"{error.filename}: {error.strerror}. Fix: {fix}"}
        return {**result, "changed": True}
