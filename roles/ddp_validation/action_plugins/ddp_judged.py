# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge the jobs that prove training, by what they and all their nodes have left: ``checks`` of the result.

``cluster_training`` of the result are the figures that a report draws.

``planned`` is the plan of ``ddp_planned``, ``job`` what ddp_submit.py answered, ``left`` the variable in which each
node's collected records were registered, ``directory`` where those were; ``simulated``, ``gpudirect`` (whether data has
to go that way) and ``release`` (of the program) are what they are compared with.

Why not a filter: it would have to be handed all machines' variables, and nothing could be said of what it reads. No
figure: safety, as what machines answer is read in one place.
"""

from __future__ import annotations

from ansible.plugins.action import ActionBase

from provision.judge.answers import mapping
from provision.judge.ddp import checks
from provision.judge.ddp_evidence import Wants, documents, evidence_from
from provision.judge.ddp_figures import training
from provision.judge.ddp_plan import Job, Plan
from provision.rdma.expected import unused_in


class ActionModule(ActionBase):
    """``ddp_judged``: see the module's docstring."""

    BYPASS_HOST_LOOP = True
    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args = self._task.args
        planned, job = mapping(args["planned"]), mapping(args["job"])
        submitted = [Job(**one) for one in planned.get("jobs") or ()]
        told = documents(str(job.get("stdout") or ""))
        complaint = str(job.get("unreached") or job.get("stderr") or job.get("msg") or "")
        found = []
        for number, one in enumerate(submitted):
            nodes = {node: _node(task_vars["hostvars"][node], str(args["left"])) for node in one.ranks}
            found.append(
                evidence_from(
                    told[number] if number < len(told) else None,
                    complaint,
                    {node: left for node, (left, _, _) in nodes.items()},
                    Wants(
                        dict(one.ranks),
                        one.gpus,
                        [str(word) for word in args["simulated"]],
                        bool(args["gpudirect"]),
                        {node: unused for node, (_, unused, _) in nodes.items()},
                        str(args["release"]),
                    ),
                    {node: rdma for node, (_, _, rdma) in nodes.items()},
                    str(args["directory"]),
                )
            )
        left_out = {key: planned[key] for key in ("busy", "apart", "out", "silent") if key in planned}
        if not planned:
            left_out["silent"] = "the machine that asks the controller was lost before it could"
        return {
            **result,
            "changed": False,
            "checks": [check.as_dict() for check in checks(Plan(submitted, **left_out), found)],
            "cluster_training": [training(one) for one in found],
        }


def _node(variables, left):
    """Return what a node's ranks have left, the ports that jobs do not use there, and what RDMA devices it has."""
    records = str(mapping(variables.get(left)).get("stdout") or "")
    rdma = mapping(variables.get("ansible_facts")).get("cluster_rdma")
    return records, unused_in(variables.get("node_rdma_unused")), rdma
