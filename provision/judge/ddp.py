"""Judge the DDP job: from what its ranks left behind to checks that name the guilty rank, node and parameter.

Pure. The evidence is what the role ddp_validation collected (see :func:`judge`). A missing piece is ``unknown`` or
``fail`` and never a pass; what was simulated is marked so in every check.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provision.judge import nccl
from provision.judge.ddp_blame import accuse, cause_in, who_broke
from provision.model.checks import Check, Level, Subject, Verdict
from provision.rdma.gpudirect_machine import redirecting

#: Job states (and none at all) in which Slurm has not started anything yet.
_NOT_STARTED = (None, "", "PENDING", "CONFIGURING", "REQUEUED")

#: Lines at a log's end that hide what was said before them: stacks of C++, rules, and where there is no file.
_NOISE = re.compile(
    r"^\s*(frame #\d+|[=-]+)|^\s*$|error_file: <N/A>|traceback : To enable|^[WE]\d{4} .*torch/distributed/elastic"
)

#: Each step of the proof: what it shows, and where to look when it fails.
STEPS: dict[str, tuple[str, str]] = {
    "identity": (
        "the job did not run on exactly the devices that were granted",
        "compare node_gres in the inventory with 'scontrol show node', then look at the device options in node.log",
    ),
    "collectives": (
        "communication delivers wrong numbers: memory, NIC or driver of the named rank's machine",
        "drain the node, run its GPU memory and link diagnostics, then verify again without it",
    ),
    "broadcast": (
        "the ranks do not start from the same weights",
        "look at the named rank's log; its image or its torch may differ",
    ),
    "gradients": (
        "the averaged gradient is not the mean of the ranks' gradients",
        "equal data on two ranks is a sampler fault; otherwise drain the named rank's node and run its diagnostics",
    ),
    "negative_control": (
        "the check that says 'all equal' is blind, so its word is worth nothing",
        "use the ddp_proof.py of this release, and report it if it is",
    ),
    "parameters": (
        "the ranks no longer hold the same model",
        "drain the named rank's node and run its GPU memory diagnostics; repeat with the nodes in another order",
    ),
    "reference": (
        "the ranks together did not do the work that one process does alone",
        "look at the named rank: its data, its memory, its arithmetic",
    ),
    "learning": (
        "the loss does not fall as it must on this task",
        "look at the loss curve in result.json; compare with a run on fewer nodes",
    ),
    "speed": ("the speed was not measured", "look at the job's log for why the timed steps are missing"),
}

SUBJECT = Subject("ddp", names=(*STEPS, "result"), level=Level.JOB)


@dataclass(frozen=True)
class _Court:
    """The evidence, read once."""

    evidence: Mapping[str, Any]
    records: list[Mapping[str, Any]]
    result: Mapping[str, Any] | None

    @property
    def job(self) -> Mapping[str, Any]:
        """Slurm's word on the job."""
        job: Mapping[str, Any] = self.evidence["job"]
        return job

    @property
    def ended(self) -> str:
        """How the job ended, as text."""
        code = self.job.get("exit_code")
        return f"job {self.job.get('id') or '-'} {self.job.get('state') or 'unknown'}, exit code {code}"

    def check(self, name: str, verdict: str, **texts: Any) -> Check:
        """Return one check of this job."""
        return SUBJECT.check(name, Verdict(verdict), simulated=bool(self.evidence["simulated"]), **texts)

    def log_of(self, accused: Mapping[str, Any]) -> list[str]:
        """Return the last lines of the accused rank's log, or of its node's where it never wrote one."""
        node = self.evidence["nodes"].get(accused.get("node"), {})
        return list(node.get("logs", {}).get(str(accused.get("rank"))) or node.get("node_log") or [])


def checks(evidence: Mapping[str, Any]) -> list[Check]:
    """Return one check per step of the proof, ``gpudirect.traffic``, and ``ddp.result`` for the whole.

    Args:
        evidence: ``run_id``; ``expected``, ranks by node; ``simulated``, words; ``job`` with ``id``, ``state`` and
            ``reason`` in Slurm's words, ``exit_code`` (None while it has none) and ``log`` (last lines);
            ``nodes``, by name: ``records``, ``result``, ``logs`` (last lines by rank), ``node_log``, ``nccl`` (its
            lines on connections); ``rdma``, what each node told of its adapters (none where it was not asked);
            ``directory``.
    """
    run = evidence["run_id"]
    nodes = evidence["nodes"].values()
    records = [record for node in nodes for record in node.get("records") or [] if record.get("run_id") == run]
    records.sort(key=lambda record: (int(record["rank"]), str(record["node"])))
    results = [node["result"] for node in nodes if (node.get("result") or {}).get("run_id") == run]
    court = _Court(evidence, records, results[0] if results else None)
    if court.result is not None:
        return [*_steps(court, court.result), *_traffic(court), _whole(court, court.result)]
    if not records and court.job.get("state") in _NOT_STARTED:
        return [*_nothing(court, "the job did not start"), *_traffic(court), _not_started(court)]
    return [*_nothing(court, "the job ended without a result"), *_traffic(court), _broken(court)]


def _named(accused: Mapping[str, Any]) -> str:
    """Return one accusation as text: who, which parameter, and what speaks against it."""
    rank, node = accused.get("rank"), accused.get("node") or "an unknown node"
    who = f"node {node}" if rank is None else f"rank {rank} on {node}"
    parameter = f", parameter {accused['parameter']}" if accused.get("parameter") else ""
    return f"{who}{parameter}: {accused['detail']}"


def _names(guilty: Sequence[Mapping[str, Any]]) -> str:
    """Return the first accusations as text, and how many more there are."""
    more = f"; and {len(guilty) - 5} more" if len(guilty) > 5 else ""
    return "; ".join(_named(accused) for accused in guilty[:5]) + more


def _host(guilty: Sequence[Mapping[str, Any]]) -> str:
    """Return the machine of the first accused."""
    return str(guilty[0].get("node") or "").split(",")[0] if guilty else ""


def _nothing(court: _Court, why: str) -> list[Check]:
    """Return every step as unknown: no result speaks of it. What ranks recorded is told, and is no proof alone."""
    unknown = []
    for name in STEPS:
        words = {str(record["outcomes"][name]) for record in court.records if name in record.get("outcomes", {})}
        said = f"{why}; before that, ranks recorded {' and '.join(sorted(words))}" if words else why
        unknown.append(court.check(name, "unknown", observed=said, expected="a result", fix="see ddp.result"))
    return unknown


def _not_started(court: _Court) -> Check:
    """Return ``ddp.result`` of a job that waited in vain, with Slurm's own reason."""
    state = court.job.get("state") or "not accepted"
    return court.check(
        "result",
        "unknown",
        observed=f"job {court.job.get('id') or '-'} {state}: {court.job.get('reason') or 'no reason given'}",
        expected="the job starts in time",
        source="ddp_validation_start_timeout",
        cause="Slurm did not start the job",
        fix="sinfo -R; squeue --start; mend what they show, then verify again",
    )


def _steps(court: _Court, result: Mapping[str, Any]) -> list[Check]:
    """Return the program's own word on each step; a step it does not speak of is unknown."""
    judged = []
    for name, (cause, fix) in STEPS.items():
        step = result["steps"].get(name)
        if step is None:
            said = "the result does not speak of this step"
            judged.append(court.check(name, "unknown", observed=said, expected="an outcome", cause=cause, fix=fix))
            continue
        guilty = step.get("guilty") or []
        judged.append(
            court.check(
                name,
                step["verdict"],
                host=_host(guilty),
                observed=step["observed"],
                expected=step["expected"],
                source="ddp_proof.py",
                cause=f"{cause}. {_names(guilty)}" if guilty else cause,
                fix=fix,
            )
        )
    return judged


def _traffic(court: _Court) -> list[Check]:
    """Return ``gpudirect.traffic``: what NCCL itself said about its ways between the machines."""
    nodes, rdma = court.evidence["nodes"], court.evidence["rdma"]
    without, simulated = "", "gpu" in court.evidence["simulated"]
    if simulated:
        without = "the GPUs are simulated, so the job did not use NCCL"
    elif court.result is not None and court.result["backend"] != "nccl":
        without = f"the job used {court.result['backend']}, not NCCL: there are no GPUs"
    elif len(court.evidence["expected"]) < 2:
        without = "there is one machine"
    elif rdma and all(told is not None and not told["adapters"] for told in rdma.values()):
        without = "no machine has an RDMA adapter: data goes over TCP"
    if without:
        return [nccl.SUBJECT.check("traffic", Verdict.SKIP, without, simulated=simulated)]
    redirected = {node: sorted(redirecting(told)) for node, told in rdma.items() if told}
    bridges = "; ".join(f"{', '.join(found)} of {node}" for node, found in sorted(redirected.items()) if found)
    logs = {node: "\n".join(nodes.get(node, {}).get("nccl") or ()) for node in court.evidence["expected"]}
    return nccl.checks(logs, bridges=bridges)


def _broken(court: _Court) -> Check:
    """Return ``ddp.result`` of a job that ended without a result, with its culprit and the end of its log."""
    records, nodes = court.records, court.evidence["nodes"].values()
    guilty = who_broke(records, court.evidence["expected"])
    if not guilty and all(record["state"] == "done" for record in records):
        guilty = [accuse(0, str(records[0]["node"]), "finished, and wrote no result.json")]
    logs = [court.log_of(accused) for accused in guilty]
    logs += [list(node.get("node_log") or []) for node in nodes] + [list(court.job.get("log") or [])]
    cause, fix = cause_in(logs)
    if court.job.get("state") == "TIMEOUT":
        cause = cause or "the job did not end within its time limit"
    named = _names(guilty)
    if not named:
        where = Counter(str(record["waiting"]) for record in records).most_common(1)[0][0]
        named = f"every rank was in '{where}' and lost the others: the network between the nodes"
    last = [line for line in next((log for log in logs if log), []) if not _NOISE.search(line)][-4:]
    return court.check(
        "result",
        "fail",
        host=_host(guilty),
        observed=f"{court.ended}, no result.json of this run",
        expected="exit code 0 and a result of this run",
        source="ddp_validation",
        cause=". ".join(text for text in (named, cause, f"The log ends: {' | '.join(last)}" if last else "") if text),
        fix=fix or f"read rank-*.log and node.log in {court.evidence['directory']} on the named node",
    )


def _whole(court: _Court, result: Mapping[str, Any]) -> Check:
    """Return ``ddp.result``: the job's code, the result and every rank's own record must tell the same story."""
    job, problems = court.job, []
    if result["sabotage"]:
        problems.append(f"it was made with the test hook '{result['sabotage']}'")
    if str(result["job_id"]) != str(job.get("id")):
        problems.append(f"it is of job {result['job_id']}, not of job {job.get('id')}")
    if set(result["simulated"]) != set(court.evidence["simulated"]):
        told, true = (", ".join(words) or "nothing" for words in (result["simulated"], court.evidence["simulated"]))
        problems.append(f"it says that {told} was simulated, the inventory says {true}")
    guilty = who_broke(court.records, court.evidence["expected"])
    trained = result["steps"].get("parameters", {})
    if trained.get("verdict") == "pass":
        other = [record for record in court.records if record.get("parameters") != trained["digest"]]
        guilty += [accuse(r["rank"], r["node"], "recorded other parameters than the result says") for r in other]
    if guilty:
        problems.append(_names(guilty))
    verdicts = {name: step["verdict"] for name, step in result["steps"].items()}
    bad = [name for name, verdict in verdicts.items() if verdict in ("fail", "unknown")]
    if job.get("exit_code") != 0 and not bad:
        problems.append("the job failed although every step passed")
    failed = bool(problems) or "fail" in verdicts.values()
    if bad:
        problems.append(f"did not pass: {', '.join(bad)}")
    return court.check(
        "result",
        "fail" if failed else "unknown" if bad else "pass",
        host=_host(guilty),
        observed=f"{court.ended}, {len(court.records)} records",
        expected="exit code 0, a result of this run, and a record of every rank that agrees",
        source="ddp_validation",
        cause="; ".join(problems),
        fix=f"see the steps above; all evidence is in {court.evidence['directory']} on the nodes",
    )
