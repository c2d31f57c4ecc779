# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge a fact and record the judgement. Runs on the control node: a check costs no connection.

Either one check (``id``, ``observed``, ``expected``, ...) or a list of finished ones (``results``, as a filter
plugin made them). What was not observed is ``unknown``. By default a fail or unknown ends the host's run, so that
provisioning stops at the first thing that is not as declared. Where ``cluster_check_collect`` is true it is recorded
and the play goes on; such a play ends with ``conclude: true``, which fails if anything was recorded for the host. With
``judged`` it also fails where nobody judges the run as a whole (clusterctl, or the callback beside our playbooks): what
never ran is missed by them alone. The record is a file of this run's own: facts and variables could be set by a
machine's answer.

Why not C(ansible.builtin.assert): it knows true and false and no unknown, has one sentence for all conditions, and
leaves nothing from which the verdict of a run could be made. No figure: capability, as a check that was not answered
is neither of the two.
"""

from __future__ import annotations

import os

from ansible import constants as C  # noqa: N812 - Ansible's own name for it
from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from provision.model.checks import check_from
from provision.runner.bad_checks import record, recorded

_TEXTS = ("observed", "expected", "source", "cause", "fix")
_KNOWN = {"id", "results", "conclude", "judged", "passed", "severity", "level", "simulated", "host", *_TEXTS}

_NO_JUDGE = (
    "run.judged: unknown: observed nobody who would miss what never ran. "
    "Fix: ansible-playbook loads callback_plugins/cluster_door.py beside the playbook: its warning says why it did not"
)


def _judged(task_vars):
    """Say whether somebody looks at the whole run: clusterctl, which names each of its runs, or cluster_door."""
    return "clusterctl_run" in task_vars or bool(os.environ.get("CLUSTERCTL_JUDGE"))


def _text(value):
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value)
    return str(value).strip()


class ActionModule(ActionBase):
    """``cluster_check``: see the module's docstring."""

    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args = dict(self._task.args)
        if unknown := set(args) - _KNOWN:
            raise AnsibleActionFail(f"cluster_check does not know {', '.join(sorted(unknown))}")
        if boolean(args.get("conclude", False), strict=False):
            bad = recorded(C.DEFAULT_LOCAL_TMP, task_vars["inventory_hostname"])
            if boolean(args.get("judged", False), strict=False) and not _judged(task_vars):
                bad.append(_NO_JUDGE)
            result.update(changed=False, failed=bool(bad), msg="\n".join(bad))
            return result
        host = args.get("host") or task_vars["inventory_hostname"]
        checks = [dict(item) for item in args["results"]] if "results" in args else [self._judge(args)]
        for check in checks:
            check.setdefault("host", host)
            check["host"] = check["host"] or host
        failing = [check.sentence for check in map(check_from, checks) if not check.ok]
        result.update(changed=False, cluster_checks=checks)
        if boolean(task_vars.get("cluster_check_collect", False), strict=False):
            record(C.DEFAULT_LOCAL_TMP, task_vars["inventory_hostname"], failing)
        elif failing:
            result.update(failed=True, msg="\n".join(failing))
        return result

    @staticmethod
    def _judge(args):
        check = {key: _text(args.get(key, "")) for key in _TEXTS}
        check.update(
            id=str(args["id"]),
            host=args.get("host", ""),
            level=args.get("level", "host"),
            simulated=boolean(args.get("simulated", False), strict=False),
        )
        severity = args.get("severity", "fail")
        if severity not in ("fail", "warn"):
            raise AnsibleActionFail("cluster_check: severity is fail or warn")
        if "observed" not in args or args["observed"] is None:
            check.update(verdict="unknown", observed="nothing could be observed")
            return check
        passed = args["passed"] if "passed" in args else check["observed"] == check["expected"]
        check["verdict"] = "pass" if boolean(passed, strict=False) else severity
        if check["verdict"] == "pass":
            check.update(cause="", fix="")
        return check
