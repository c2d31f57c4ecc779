# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write undeclared hardware beside the inventory. Runs on the control node: recording costs no connection.

``found`` and ``declared`` are mappings as provision.model.discovered takes them; ``directory`` is the ``host_vars``
directory, or empty. The result carries ``values`` (what was undeclared, also where nothing could be written) and
``path``. A machine that answers what no inventory may hold fails, alone, and nothing is written for it.

Why not C(ansible.builtin.template) on the control node: what a machine answers is input, and passes the inventory's
own model before it becomes inventory. No figure: safety, as a machine must not write an inventory's text.
"""

from __future__ import annotations

import datetime

from ansible.plugins.action import ActionBase

from provision.errors import ClusterctlError
from provision.inventory import hardware_file
from provision.inventory.declared_hardware import hardware_from
from provision.judge import hardware
from provision.model.discovered import read


def declared_only(declared):
    """Return what is declared as the role was given it, without what is left open."""
    return {name: value for name, value in declared.items() if value is not None}


class ActionModule(ActionBase):
    """``hardware_record``: see the module's docstring."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args = self._task.args
        host = str(task_vars["inventory_hostname"])
        found, declared = args["found"], dict(args["declared"])
        discovered = read(found, declared)
        bad = hardware_file.impossible(host, discovered.refused)
        values = discovered.values
        if not bad:
            try:
                new = {name: value for name, value, _ in values}
                hardware_from(host, {**task_vars, **declared_only(declared), **new})
            except ClusterctlError as error:
                bad = [hardware_file.contradiction(host, error)]
        if bad:
            told = "; ".join(f"{check.id}: {check.observed}: {check.expected}" for check in bad)
            result.update(changed=False, failed=True, values={}, path="", msg=f"{told}. Fix: {bad[0].fix}",
                          cluster_checks=[check.as_dict() for check in bad])  # fmt: skip
            return result
        if any(check.verdict == "fail" for check in hardware.checks(found, declared)):
            values = ()  # half of the truth beside half of an error would be worse than either
        result.update(changed=False, values={name: value for name, value, _ in values}, path="")
        if not values:
            return result
        try:
            plan = hardware_file.plan(str(args.get("directory") or ""), host, values, datetime.date.today())
            if plan.refusal:
                result.update(cluster_checks=[hardware_file.refused(host, plan).as_dict()], warnings=[plan.refusal])
                return result
            result.update(changed=True, path=str(plan.path))
            result["diff"] = {"before": plan.before, "after": plan.after, "before_header": str(plan.path),
                              "after_header": str(plan.path)}  # fmt: skip
            if not self._task.check_mode:
                hardware_file.write(plan)
        except OSError as error:
            result.update(failed=True, msg=f"{error.filename}: {error.strerror}. Fix: make the directory of the "
                          "inventory writable, or declare the hardware in the inventory")  # fmt: skip
        return result
