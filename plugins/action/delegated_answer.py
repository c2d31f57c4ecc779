# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask the machine that the task is delegated to; that it cannot be reached is an answer: ``unreached`` says why.

``module`` is run with ``options``; what it returns is returned, a failure too. Under the name that ``fact`` gives, its
words are a fact of the machine that was asked, with C(delegate_facts): whoever needs them reads them there. The first
question that was not answered says of which machine, as ``asked``: the report names it.

Why not C(delegate_to) alone: Ansible takes a delegated task that reaches nobody for a failure of the machine that
asks, and a play of one machine, as the one that asks is, then ends the run; so does one that is out of time, before
``failed_when`` is looked at. What a verification asks the controller for must cost the nodes neither. A machine that
was silent is not asked again in the same run: each question would wait as long as the first. Nor is one that could
not be reached before the run, and is no part of it (``clusterctl_left_out``). No figure: safety, as one silent
machine must not end the run of all others.
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

#: The fact of the machine that is asked: that it was silent in this run, and why.
_FACT = "cluster_unreached"

#: What becomes a fact of an answer.
_WORDS = ("stdout", "stderr", "msg", "unreached")


class ActionModule(ActionBase):
    """``delegated_answer``: see the module's docstring."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        if TaskTimeoutError is None:
            raise AnsibleActionFail(
                f"ansible-core {__version__} ends a task that is out of time in a way that clusterctl does not know: a "
                "silent controller would take the nodes with it. Fix: install ansible-core 2.19, by 'ansible>=12,<13'"
            )
        args, asked = self._task.args, str(self._task.delegate_to or "")
        if set(args) - {"module", "options", "fact"} or "module" not in args or not asked:
            raise AnsibleActionFail("delegated_answer takes a module, its options and a fact's name, and is delegated")
        known = task_vars["ansible_delegated_vars"][asked].get("ansible_facts") or {}
        facts: dict[str, object] = {}
        if asked in (task_vars.get("clusterctl_left_out") or ()):
            result["unreached"] = f"{asked} could not be reached before the run"
        elif known.get(_FACT):
            result["unreached"] = str(known[_FACT])
        else:
            try:
                options = dict(args.get("options") or {})
                result.update(self._execute_module(args["module"], options, task_vars=task_vars))
                # Ours to say, of the machine that was asked: the answer is its own.
                result = {name: value for name, value in result.items() if name not in ("asked", "unreached")}
            except AnsibleConnectionFailure as error:
                facts[_FACT] = str(error)
            except TaskTimeoutError as error:
                facts[_FACT] = f"it did not answer within {error.timeout} s"
            if facts:
                result.update(asked=asked, unreached=facts[_FACT])
        if fact := args.get("fact"):
            facts[str(fact)] = {word: str(result[word]) for word in _WORDS if word in result}
        # Ours alone: what the machine calls a fact is none.
        return {**result, "ansible_facts": facts}
