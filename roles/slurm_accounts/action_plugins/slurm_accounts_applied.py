# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Change the accounting database to what is declared, by sacctmgr, and tell what was changed.

``ask`` is the program that shows what the database has, as C(machine_facts) takes it; ``inside`` runs a script where
sacctmgr is; ``wants`` is what the judge of the role compares with. What cannot be set yet is left, without failing: the
role's proof says whether it was set in the end.

Why not tasks: which commands there are follows from the answer, and each would be a task of its own. No figure:
capability, as a play cannot know before how many commands there are.
"""

from __future__ import annotations

import shlex
import time

from ansible.plugins.action import ActionBase

from provision.errors import ClusterctlError
from provision.judge import slurm_accounts
from provision.model.facts import answered
from provision.slurm.account_changes import commands

#: One command of sacctmgr's; the first that fails ends the script, with its words.
TELL = (
    "said=$(sacctmgr --immediate --quiet {words} 2>&1 </dev/null) || "
    '{{ printf "%s: %s\\n" {shown} "$said"; exit 1; }}\n'
)


class ActionModule(ActionBase):
    """``slurm_accounts_applied``: see the module's docstring."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args = self._task.args
        if not args["ask"]:
            return {**result, "changed": False}
        before = time.time()
        answer = self._execute_module(
            module_name="machine_facts",
            module_args={"gather": [], "commands": {"slurm_accounts": args["ask"]}},
            task_vars=task_vars,
        )
        try:
            found = slurm_accounts.different(answered(answer, (), before, time.time()), args["wants"])
        except (ValueError, ClusterctlError) as error:
            return {**result, "failed": True, "msg": str(error)}
        script = "".join(
            TELL.format(words=shlex.join(command), shown=shlex.quote(" ".join(command))) for command in commands(found)
        )
        if not script:
            return {**result, "changed": False}
        done = self._execute_module(
            module_name="ansible.legacy.command",
            module_args={"argv": list(args["inside"]), "stdin": script},
            task_vars=task_vars,
        )
        said = [change.says for change in found if change.commands]
        result.update(changed=True, said=said)
        if self._task.diff:
            result["diff"] = {"prepared": "".join(f"{one}\n" for one in said)}
        if done.get("rc") != 0:
            why = str(done.get("stdout") or done.get("stderr") or done.get("msg") or "").strip()[-500:]
            result.update(failed=True, msg=f"the accounting database refuses: {why or 'it did not answer in time'}")
        return result
