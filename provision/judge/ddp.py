"""Can the cluster train? All DDP jobs of a run together: one check for each step, and who took no part. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provision.hostlist import fold
from provision.judge import nccl
from provision.judge.ddp_evidence import Evidence
from provision.judge.ddp_job import STEPS, SUBJECT, Court
from provision.judge.ddp_plan import Plan
from provision.model.checks import WORST, Check, Verdict

__all__ = ["STEPS", "SUBJECT", "checks"]


def checks(plan: Plan, jobs: Sequence[Evidence]) -> list[Check]:
    """Return one check per step of the proof, ``ddp.result``, ``ddp.nodes`` and ``gpudirect.traffic``.

    Args:
        plan: which nodes were to be proven together, and who was left out.
        jobs: the evidence of each of its jobs.
    """
    if not jobs:
        return _nothing(plan)
    judged = [(fold(evidence.wants.ranks), Court(evidence).checks) for evidence in jobs]
    merged = [_merged([(nodes, found[name]) for nodes, found in judged]) for name in (*STEPS, "result", "traffic")]
    return [*merged, _nodes(plan)]


def _nothing(plan: Plan) -> list[Check]:
    """Return all checks where no job was submitted."""
    if plan.silent:
        return [*SUBJECT.all_unknown(plan.silent), *nccl.SUBJECT.all_unknown(plan.silent)]
    if plan.out or plan.busy or not plan.apart:
        why = f"no node was free for a job: {_listed({**plan.out, **plan.busy}) or 'there is none'}"
        cause = "every node is out of service or busy"
        found = [*SUBJECT.all_unknown(why, cause=cause), *nccl.SUBJECT.all_unknown(why, cause=cause)]
    else:
        why = f"not proven: {_listed(plan.apart)}"
        found = [*SUBJECT.all_skipped(why, unproven=True), *nccl.SUBJECT.all_skipped(why, unproven=True)]
    return [check for check in found if check.id != "ddp.nodes"] + [_nodes(plan)]


def _merged(told: Sequence[tuple[str, Check]]) -> Check:
    """Return one check for what several jobs told: the worst, with all that is wrong."""
    if len(told) == 1:
        return told[0][1]
    worst = min((check.verdict for _, check in told), key=WORST.index)
    chosen = [(nodes, check) for nodes, check in told if check.verdict is worst]
    first = chosen[0][1]
    subject = SUBJECT if first.id.startswith(SUBJECT.name) else nccl.SUBJECT
    return subject.check(
        first.id.rpartition(".")[2],
        worst,
        " | ".join(f"{nodes}: {check.observed}" for nodes, check in told[:5]),
        first.expected,
        host=first.host if len(chosen) == 1 else "",
        source=first.source,
        cause=" | ".join(f"{nodes}: {check.cause}" for nodes, check in chosen[:5] if check.cause),
        fix=first.fix,
        simulated=any(check.simulated for _, check in told),
        unproven=any(check.unproven for _, check in told),
    )


def _listed(left: Mapping[str, str]) -> str:
    """Return nodes by the reason why they are left out: ``node[3-4] busy with other jobs``."""
    reasons = dict.fromkeys(left.values())
    texts = [f"{fold(node for node in left if left[node] == why)} {why}" for why in reasons]
    return "; ".join(texts[:5]) + (f"; and {len(texts) - 5} more reasons" if len(texts) > 5 else "")


def _nodes(plan: Plan) -> Check:
    """Return ``ddp.nodes``: the proof is of the whole cluster, or says of which nodes it is not."""
    expected = "every declared compute node takes part"
    proven = [node for job in plan.jobs for node in job.ranks]
    left = {**plan.out, **plan.busy, **plan.apart}
    parts = ", ".join(fold(job.ranks) for job in plan.jobs) or "none"
    said = f"{len(proven)} of {len(proven) + len(left)} nodes in {len(plan.jobs)} jobs: {parts}"
    if left:
        said += f"; without {_listed(left)}"
    if plan.out:
        return SUBJECT.check(
            "nodes",
            Verdict.UNKNOWN,
            said,
            expected,
            host=next(iter(plan.out)) if len(plan.out) == 1 else "",
            source="sinfo",
            cause=f"not proven: {_listed(plan.out)}",
            fix="sinfo -R; fix what it shows, then verify again",
        )
    if left:
        return SUBJECT.check("nodes", Verdict.SKIP, said, expected, source="sinfo", unproven=True)
    return SUBJECT.check("nodes", Verdict.PASS, said, expected, source="sinfo")
