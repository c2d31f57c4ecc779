# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep the lease of the one who changes the cluster: on the controller, to which the task is delegated.

``state`` is what is wanted:

- ``seen``: nobody else changes the cluster, by what the controller has told with all else that it was asked. It asks
  nothing. ``roles`` are those that are observed: a run of those alone that preflight asks for changes nothing.
- ``held``: this run has the lease, or has it still, with a new sign of life. One call, to the controller. The machine
  joins the group ``leased``.
- ``released``: this run has it no more.
- ``told``: who has it is in the result, as C(holder), by one call. Nothing where it is free.

What somebody else holds fails the task, with who and where; C(cluster_lease_take) takes it. In check mode nothing is
done. A controller that does not answer is a warning: what goes on without it today goes on.

Why not C(delegate_to) alone: see C(delegated_answer). Measured (November 2026, over ssh, on a busy computer): a run
with nothing to do makes no call for this, and C(seen) takes it 0.08 s; C(held) takes 1.4 s where C(observe) takes 2.4
to 5 s.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from ansible import context
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from provision.judge import lease, road
from provision.model.text import one_line
from provision.runner import limits, process
from provision.runner.journal_files import user

try:
    from ansible._internal._errors._task_timeout import TaskTimeoutError
except ImportError:
    TaskTimeoutError = AnsibleConnectionFailure

#: How often somebody may be faster than this: two administrators, each with a run that has just ended or begun.
_TRIES = 3


class ActionModule(ActionBase):
    """``cluster_lease``: see the module's docstring."""

    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args, self.controller = self._task.args, str(self._task.delegate_to or "")
        state, roles = str(args.get("state", "")), args.get("roles") or ()
        ways = {"seen": self._seen, "held": self._held, "released": self._released, "told": self._holder}
        if set(args) - {"state", "roles"} or state not in ways or not self.controller:
            raise AnsibleActionFail("cluster_lease takes state: seen, held, released or told, and is delegated")
        result["changed"] = False
        reads = state == "seen" and set(roles) <= set(road.roles_of(["preflight"]))
        if self._task.check_mode or reads:
            return result
        self.variables = task_vars
        self.me = _me(task_vars)
        known = task_vars["ansible_delegated_vars"][self.controller].get("ansible_facts") or {}
        there = known.get("cluster_lease") or {}
        try:
            if state != "seen" and self.controller in (task_vars.get("clusterctl_left_out") or ()):
                raise AnsibleConnectionFailure("it could not be reached before the run")
            return {**result, **ways[state](there)}
        except (AnsibleConnectionFailure, TaskTimeoutError) as error:
            late = getattr(error, "timeout", None)
            why = f"it did not answer within {late} s" if late else str(error)
            said = f"nobody is kept from changing the cluster at the same time: {self.controller}: {why}"
            return {**result, "warnings": [said]}

    def _seen(self, there):
        return {} if self._answer(there) is not lease.Answer.HELD else self._refused(there)

    def _held(self, there):
        for _ in range(_TRIES):
            if self._answer(there) is lease.Answer.HELD:
                break
            answer = self._module(text=self.me.text, seen=there.get("text", ""))
            if answer.get("failed"):
                return answer
            there = answer["lease"]
            if answer["written"]:
                return {**_told(there, held=True), "add_group": "leased"}
        return self._refused(there)

    def _released(self, there):
        for _ in range(_TRIES):
            if there and self._answer(there) is not lease.Answer.MINE:
                break
            answer = self._module(text="", seen=there["text"]) if there else self._module()
            if answer.get("failed"):
                return answer
            there = answer["lease"]
        return _told(there, held=False)

    def _holder(self, _there):
        answer = self._module()
        if answer.get("failed") or self._answer(answer["lease"]) is not lease.Answer.HELD:
            return answer if answer.get("failed") else {}
        there = answer["lease"]
        found = asdict(lease.lease_from(there["text"]) or lease.Lease()) | {"renewed": int(time.time() - there["age"])}
        told = {name: value for name, value in found.items() if name not in ("process", "bound")}
        return {"cluster_lease": {"held": False, "holder": told}}

    def _module(self, **options):
        """Return what the module says, read as input."""
        answer = self._execute_module(module_name="cluster_lease", module_args=options, task_vars=self.variables)
        there = answer.get("lease")
        if answer.get("failed") or not isinstance(there, dict):
            said = one_line(answer.get("msg") or answer.get("module_stderr") or "it is none that the machine tells")
            return {"failed": True, "msg": f"the cluster's lease on {self.controller}: {said}"}
        with suppress(TypeError, ValueError):
            there = {"text": str(there.get("text", ""))[:4096], "age": float(there.get("age", 0))}
            return {"written": answer.get("written") is True, "lease": there}
        return {"failed": True, "msg": f"{self.controller} answered something else than a lease"}

    def _answer(self, there):
        found = lease.lease_from(there.get("text", ""))
        dead = found is not None and process.gone(found.process)
        take = boolean(self.variables.get("cluster_lease_take", False), strict=False)
        return lease.answer(found, there.get("age", 0), self.me, dead=dead, take=take)

    def _refused(self, there):
        holder = lease.lease_from(there.get("text", "")) or lease.Lease()
        cluster = str(self.variables.get("cluster_name", ""))
        problem, fix = lease.refusal(holder, there.get("age", 0), cluster=cluster, now=time.time())
        return {"failed": True, "msg": f"{problem}. Fix: {fix}", "cluster_lease": {"refused": problem, "fix": fix}}


def _told(there, held):
    """Return what the run, and the next question of it, are to know."""
    return {"cluster_lease": {"held": held}, "ansible_facts": {"cluster_lease": there}}


def _me(variables):
    """Return this run as the holder of a lease. Its process is clusterctl's, or Ansible's own."""
    groups = variables.get("groups") or {}
    now = int(time.time())
    factor = str(variables.get("clusterctl_time_factor") or variables.get("cluster_time_factor", 1))
    machines = len(groups.get("all") or ())
    given = " ".join(Path(path).name for path in context.CLIARGS.get("args") or ())
    return lease.Lease(
        run=str(variables.get("clusterctl_run", "")),
        user=user(),
        host=socket.gethostname(),
        directory=str(variables.get("inventory_dir") or Path.cwd()),
        command=str(variables.get("clusterctl_command") or f"ansible-playbook {given}"),
        # clusterctl's own, where it runs this: what is left of one that was killed keeps nobody.
        process=str(variables.get("clusterctl_process") or process.named(os.getppid())),
        since=now,
        renewed=now,
        # No stage may take longer: clusterctl ends it.
        bound=limits.longest(machines, int(factor) if factor.isascii() and factor.isdigit() else 1),
    )
