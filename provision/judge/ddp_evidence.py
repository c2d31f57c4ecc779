"""What the DDP job's judge looks at, from what machines printed. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def _document(text: str) -> dict[str, Any]:
    """Return a printed JSON object; an empty one where a machine printed anything else."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def evidence_from(
    job: str,
    complaint: str,
    left: Mapping[str, str],
    expected: Mapping[str, int],
    simulated: Sequence[str],
    rdma: Mapping[str, Any],
    directory: str,
) -> dict[str, Any]:
    """Return the evidence for :func:`provision.judge.ddp.judge`.

    Args:
        job: what ddp_submit.py printed, and ``complaint`` what it said on its standard error.
        left: what ddp_collect.py printed, by node.
        expected: ranks by node, as the inventory declares them.
        simulated: what is not real in this cluster.
        rdma: what each node's module ``machine_facts`` told of its adapters; None where it was not asked.
        directory: the role's directory on the nodes.
    """
    told = _document(job)
    nodes = {node: _document(text) for node, text in left.items()}
    log = [line for node in nodes.values() for line in node.get("job_log") or []]
    reason = told.get("reason") or complaint.strip() or "ddp_submit.py printed nothing"
    return {
        "run_id": told.get("run_id", ""),
        "expected": dict(expected),
        "simulated": list(simulated),
        "job": {**told, "reason": reason, "log": log},
        "nodes": nodes,
        "rdma": dict(rdma),
        "directory": f"{directory}/runs/{told.get('run_id', '')}",
    }
