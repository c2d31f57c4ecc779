# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose which jobs prove training on which nodes: ``arguments`` of the result is what ddp_submit.py takes.

``sinfo`` is what Slurm said, ``ranks`` those of every declared node, ``scope`` the nodes of this run, ``partition``
the one to take, ``foreign`` those that are not for who submits, ``reservation`` the one that the jobs use, ``image``
empty where there is none yet. What the nodes declare is the inventory's, and what became of their own jobs in this run
is the controller's facts. With C(delegate_facts) the plan is one of them, C(cluster_ddp_planned).

Why not a filter: it would have to be handed all machines' variables, and nothing could be said of what it reads. No
figure: safety, as what machines answer is read in one place.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from ansible.plugins.action import ActionBase

from provision.judge import jobs
from provision.judge.answers import mapping
from provision.judge.ddp_plan import Plan, divided, plan
from provision.model.gres import gpus


class ActionModule(ActionBase):
    """``ddp_planned``: see the module's docstring."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args, hostvars = self._task.args, task_vars["hostvars"]
        if args.get("image") == "":
            return _told(result, Plan(silent="unproven: there is no image to train with; see ddp_validation.image"))
        ranks = {str(host): int(count) for host, count in args["ranks"].items()}
        declared = {host: _declared(hostvars[host]) for host in ranks}
        facts = task_vars["ansible_delegated_vars"][str(self._task.delegate_to)].get("ansible_facts") or {}
        tried = mapping(facts.get("cluster_jobs_planned"))
        said = str(mapping(facts.get("cluster_jobs_said")).get("stdout") or "")
        unfit = {host: jobs.unfit(tried, said, host) for host in ranks}
        found = plan(
            str(args["sinfo"]),
            ranks,
            {host: gpus(gres) for host, (gres, _) in declared.items()},
            mig=[host for host, told in declared.items() if divided(*told)],
            scope=[str(host) for host in args["scope"]],
            partition=str(args["partition"]),
            unfit={host: why for host, why in unfit.items() if why},
            foreign=mapping(args["foreign"]),
            reserved=bool(args["reservation"]),
        )
        return _told(result, found)


def _told(result, found):
    planned = asdict(found)
    result.update(planned, changed=False, arguments=json.dumps([job.as_dict() for job in found.jobs]))
    return {**result, "ansible_facts": {"cluster_ddp_planned": planned}}


def _declared(variables):
    return variables.get("node_gres"), variables.get("node_mig")
