# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare what machines have answered: ``checks`` of the result are those of each of ``hosts``, by host.

``made`` and ``decoded`` name the variables in which the machines' answers were registered; ``wants`` is what they are
compared with. It runs once for all, because which of them is the odd one shows only beside the others.

Why not a filter: it would have to be handed all machines' variables, and nothing could be said of what it reads. No
figure: safety, as what machines answer is read in one place.
"""

from __future__ import annotations

from ansible.plugins.action import ActionBase

from provision.judge import munge


class ActionModule(ActionBase):
    """``munge_compared``: see the module's docstring."""

    BYPASS_HOST_LOOP = True
    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args, hostvars = self._task.args, task_vars["hostvars"]
        seen = {}
        for host in map(str, args["hosts"]):
            variables = hostvars[host]
            proof, decoded = (variables.get(str(args[name])) for name in ("made", "decoded"))
            seen[host] = munge.Seen.from_results(proof, decoded, decoded)
        wants = args["wants"]
        found = munge.checks(
            seen,
            munge.Wants(
                controller=str(wants["controller"]),
                fingerprint=str(wants["fingerprint"]),
                mode=str(wants["mode"]),
                warn=int(wants["warn"]),
                fail=int(wants["fail"]),
            ),
        )
        checks = {host: [check.as_dict() for check in found if check.host == host] for host in seen}
        return {**result, "changed": False, "checks": checks}
