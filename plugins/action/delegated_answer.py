# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask the machine that the task is delegated to; that it cannot be reached is an answer: ``unreached`` says why.

Why not C(delegate_to) alone: Ansible takes a delegated task that reaches nobody for a failure of the machine that
it was about, and with ``run_once`` takes every machine out of the play; so does one that is out of time, before
``failed_when`` is looked at. What a verification asks the controller for must cost the nodes neither. A machine
that was silent is not asked again in the same run: each question would wait as long as the first. Nor is one that
could not be reached before the run, and is no part of it (``clusterctl_left_out``).
"""

from __future__ import annotations

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.release import __version__

# What ends a task that is out of time has no public name. It is no Exception, so that no other except clause meets it.
try:
    from ansible._internal._errors._task_timeout import TaskTimeoutError
except ImportError:
    TaskTimeoutError = None

#: The fact of the machines that ask: who was silent in this run, and why.
_FACT = "cluster_unreached"


class ActionModule(ActionBase):
    """``delegated_answer``: ``module`` is run with ``options``; what it returns is returned, a failure too."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        if TaskTimeoutError is None:
            raise AnsibleActionFail(
                f"ansible-core {__version__} ends a task that is out of time in a way that clusterctl does not know: a "
                "silent controller would take the nodes with it. Fix: install ansible-core 2.19, by 'ansible>=12,<13'"
            )
        args = self._task.args
        if set(args) - {"module", "options"} or "module" not in args:
            raise AnsibleActionFail("delegated_answer takes a module and its options")
        asked = str(self._task.delegate_to or "")
        known = dict((task_vars.get("ansible_facts") or {}).get(_FACT) or {})
        if asked in known:
            return {**result, "unreached": known[asked]}
        if asked in (task_vars.get("clusterctl_left_out") or ()):
            return {**result, "unreached": f"{asked} could not be reached before the run"}
        try:
            return {
                **result,
                **self._execute_module(args["module"], dict(args.get("options") or {}), task_vars=task_vars),
            }
        except AnsibleConnectionFailure as error:
            why = str(error)
        except TaskTimeoutError as error:
            why = f"it did not answer within {error.timeout} s"
        return {**result, "unreached": why, "ansible_facts": {_FACT: {**known, asked: why}}}
