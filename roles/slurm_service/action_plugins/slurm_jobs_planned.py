# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose on which nodes the proof's jobs can be tried: ``words`` of the result are a script's arguments.

``said`` is what slurmctld printed, ``scope`` the compute nodes of this run, ``user`` who submits, and ``machines`` the
variable in which each node's own answer was registered. What is not tried, and why, becomes the controller's fact
C(cluster_jobs_planned) with C(delegate_facts), by node. ``sessions`` are what is tried once for each kind of node in
each partition; they become the fact C(cluster_sessions_planned). Partitions that are not for this user become the fact
C(cluster_partitions_foreign).

Why not a filter: it would have to be handed all machines' variables, and nothing could be said of what it reads. No
figure: safety, as what machines answer is read in one place.
"""

from __future__ import annotations

from ansible.plugins.action import ActionBase

from provision.judge import job_plan, session
from provision.judge.answers import mapping
from provision.slurm.admission import Submitter


class ActionModule(ActionBase):
    """``slurm_jobs_planned``: see the module's docstring."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args, hostvars = self._task.args, task_vars["hostvars"]
        scope = [str(name) for name in args["scope"]]
        answers = {name: mapping(hostvars[name].get(str(args["machines"]))) for name in scope}
        machines = {name: str(answer.get("stdout") or "") for name, answer in answers.items()}
        said, user = str(args["said"]), args["user"]
        groups, accounts = ([str(one) for one in user[name]] for name in ("groups", "accounts"))
        host = str(self._task.delegate_to or "")
        reservation = str(user["reservation"])
        proof = Submitter(groups, accounts, qos=str(user["qos"]), host=host, reservation=reservation)
        who = job_plan.submitter(said, proof)
        made = job_plan.plan(said, scope, who, machines)
        planned = {name: made.as_dict(name) for name in scope}
        fit = [name for name, _, _ in made.targets]
        sessions = session.targets(said, fit, who)
        return {
            **result,
            "changed": False,
            "words": made.words,
            "sessions": sessions,
            "ansible_facts": {
                "cluster_jobs_planned": planned,
                "cluster_sessions_planned": sessions,
                "cluster_partitions_foreign": job_plan.foreign(said, who),
            },
        }
