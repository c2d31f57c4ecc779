# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the module of the same name; with ``decode`` on the credentials that others of ``hosts`` have made.

``made`` names the variable in which each machine's answer to the first question was registered, ``controller`` the host
whose credentials all others decode. The result then carries ``clock_offset``, too: the machine's clock is measured by
this question, because one that a hung munged delays is not asked it.

Why not an expression in the task: it would read all machines' variables on each machine, and the clock would be a
question of its own.
"""

from __future__ import annotations

import time

from ansible.plugins.action import ActionBase

from provision.judge import munge
from provision.judge.clocks import between


class ActionModule(ActionBase):
    """``munge_proof``: see the module's documentation."""

    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args = dict(self._task.args)
        if not args.pop("decode", False):
            return {**result, **self._execute_module(module_args=args, task_vars=task_vars)}
        made, hostvars = str(args.pop("made")), task_vars["hostvars"]
        hosts = [str(host) for host in args.pop("hosts")]
        asked = munge.peers(hosts, str(task_vars["inventory_hostname"]), str(args.pop("controller")))
        own = task_vars.get(made)
        proofs = {} if munge.hung(own) else {host: hostvars[host].get(made) for host in asked}
        before = time.time()
        answer = self._execute_module(module_args={"credentials": munge.credentials(proofs)}, task_vars=task_vars)
        return {**result, **answer, "clock_offset": between(answer.get("clock"), before, time.time())}
