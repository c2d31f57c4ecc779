"""Judge one DDP job: checks that name the guilty rank, node and parameter. Pure.

A missing piece is ``unknown`` or ``fail`` and never a pass; what was simulated is marked so in every check.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from provision.judge import nccl
from provision.judge.ddp_blame import accuse, all_alike, host_of, names, who_broke
from provision.judge.ddp_evidence import Accused, Evidence, Node, Record, Result, Step
from provision.judge.ddp_logs import cause_in, last_words
from provision.judge.ddp_waiting import CLEARING, why
from provision.model.checks import Check, Level, Subject, Verdict
from provision.rdma.gpudirect_machine import redirecting

#: Job states (and none at all) in which Slurm has not started anything yet.
_NOT_STARTED = ("", "PENDING", "CONFIGURING", "REQUEUED", "COMPLETING")

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
        "the comparison missed a known difference, so its 'all equal' proves nothing",
        "use the ddp_proof of this release, and report it if it is",
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

SUBJECT = Subject("ddp", names=(*STEPS, "result", "nodes"), level=Level.JOB)


class Court:
    """The evidence of one job, read once."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.wants = evidence.wants
        self.job = evidence.job
        self.records = sorted(
            (record for node in evidence.nodes.values() for record in node.records),
            key=lambda record: (record.rank, record.node),
        )
        #: By node, what is wrong with its evidence.
        self.problems = {name: list(node.problems) for name, node in evidence.nodes.items() if node.problems}
        self.result, self.author = self._result()

    def _result(self) -> tuple[Result | None, str]:
        """Return the result and whose it is: rank 0's node has it, and nobody else."""
        heads = sorted({record.node for record in self.records if record.rank == 0})
        for name, node in self.evidence.nodes.items():
            if node.result is not None and heads != [name]:
                said = f"it has a result, and rank 0 ran on {' and '.join(heads) or 'no node that tells'}"
                self.problems.setdefault(name, []).append(said)
        if len(heads) != 1:
            return None, ""
        return self.evidence.nodes[heads[0]].result, heads[0]

    @property
    def checks(self) -> dict[str, Check]:
        """All checks of this job by name, ``traffic`` for ``gpudirect.traffic``."""
        if self.result is not None:
            judged = {name: self._step(name, self.result.steps.get(name)) for name in STEPS}
            return {**judged, "result": self._whole(self.result), "traffic": self._traffic()}
        started = self.records or self.job.state not in _NOT_STARTED
        reason = "the job ended without a result" if started else "the job did not start"
        judged = {name: self._unproven(name, reason) for name in STEPS}
        return {**judged, "result": self._broken() if started else self._not_started(), "traffic": self._traffic()}

    def _check(self, name: str, verdict: str, **texts: Any) -> Check:
        return SUBJECT.check(name, Verdict(verdict), simulated=bool(self.wants.simulated), **texts)

    @property
    def _ended(self) -> str:
        return f"job {self.job.id or '-'} {self.job.state or 'unknown'}, exit code {self.job.exit_code}"

    def _unproven(self, name: str, reason: str) -> Check:
        """Return a step of which no result speaks. What ranks recorded is told, and is no proof alone."""
        words = sorted({record.outcomes[name] for record in self.records if name in record.outcomes})
        said = f"{reason}; before that, ranks recorded {' and '.join(words)}" if words else reason
        return self._check(name, "unknown", observed=said, expected="a result", fix="see ddp.result")

    def _not_started(self) -> Check:
        """Return ``ddp.result`` of a job that did not start, with Slurm's own reason."""
        cause, fix = why(self.job, self.wants.ranks)
        return self._check(
            "result",
            "unknown",
            observed=f"job {self.job.id or '-'} {self.job.state or 'not accepted'}: {self.job.reason or 'no reason'}",
            expected="the job starts in time",
            source="ddp_validation_start_timeout",
            cause=cause,
            fix=fix,
        )

    def _disputed(self, name: str, step: Step) -> str:
        """Return why a step's word on other machines does not count: no other machine recorded that it failed."""
        others = [r for r in self.records if r.node != self.author and name in r.outcomes]
        if not others or not any(accused.node != self.author for accused in step.guilty):
            return ""
        if any(record.outcomes[name] == step.verdict for record in others):
            return ""
        told = Counter(record.outcomes[name] for record in others).most_common(1)[0][0]
        return f"{self.author} says that this step ended as {step.verdict}, the other nodes' ranks recorded {told}"

    def _step(self, name: str, step: Step | None) -> Check:
        """Return the program's own word on one step; a step that it does not speak of is unknown."""
        cause, fix = STEPS[name]
        if step is None:
            said = "the result does not mention this step"
            return self._check(name, "unknown", observed=said, expected="an outcome", cause=cause, fix=fix)
        disputed = self._disputed(name, step)
        guilty: list[Accused] = [] if disputed else step.guilty
        return self._check(
            name,
            step.verdict,
            host=host_of(guilty, self.wants.ranks),
            observed=step.observed,
            expected=step.expected,
            source="ddp_proof",
            cause=". ".join(text for text in (cause, names(guilty), step.split, disputed) if text),
            fix=fix,
        )

    def _other_than_declared(self, result: Result) -> list[str]:
        """Return where the job was another one than the inventory declares."""
        told, wants, world = [], self.wants, sum(self.wants.ranks.values())
        if set(result.simulated) != set(wants.simulated):
            said, true = (", ".join(words) or "nothing" for words in (result.simulated, wants.simulated))
            told.append(f"it says that {said} was simulated, the inventory says {true}")
        if result.world != world:
            told.append(f"it was made by {result.world} ranks, the inventory declares {world}")
        if wants.release and result.program != wants.release:
            told.append("it comes from another release's program: clusterctl provision slurm installs it")
        if wants.cuda and (result.device != "cuda" or result.backend != "nccl"):
            told.append(
                f"it was made on {result.device} over {result.backend}, the inventory declares {wants.gpus} GPUs a node"
            )
        return told

    def _whole(self, result: Result) -> Check:
        """Return ``ddp.result``: the job's code, the result and every rank's own record must tell the same story."""
        problems = self._other_than_declared(result)
        if result.sabotage:
            problems.append(f"it was made with the test hook '{result.sabotage}'")
        if result.job_id != self.job.id:
            problems.append(f"it is of job {result.job_id}, not of job {self.job.id}")
        guilty = self._culprits()
        trained = result.steps.get("parameters")
        if trained is not None and trained.verdict == "pass":
            other = [record for record in self.records if record.parameters != trained.digest]
            guilty += [accuse(r.rank, r.node, "recorded other parameters than the result says") for r in other]
        guilty += [
            accuse(record.rank, record.node, f"recorded that {name} failed, the result says {step.verdict}")
            for name, step in result.steps.items()
            for record in self.records
            if record.outcomes.get(name) == "fail" and step.verdict != "fail"
        ]
        if guilty:
            problems.append(names(guilty))
        verdicts = {name: result.steps[name].verdict if name in result.steps else "unknown" for name in STEPS}
        bad = [name for name, verdict in verdicts.items() if verdict in ("fail", "unknown")]
        if self.job.exit_code != 0 and not bad:
            problems.append("the job failed although every step passed")
        failed = bool(problems) or "fail" in verdicts.values()
        if bad:
            problems.append(f"did not pass: {', '.join(bad)}")
        return self._check(
            "result",
            "fail" if failed else "unknown" if bad else "pass",
            host=host_of(guilty, self.wants.ranks),
            observed=f"{self._ended}, {len(self.records)} records",
            expected="exit code 0, a result of this run, and a record of every rank that agrees",
            source="ddp_validation",
            cause="; ".join(problems),
            fix=f"see the steps above; all evidence is in {self.evidence.directory} on the nodes",
        )

    def _culprits(self) -> list[Accused]:
        """Return who broke the job; a node whose evidence is not what a run leaves behind is accused of that alone."""
        broken = [
            accuse(None, node, f"its evidence is broken: {'; '.join(said[:3])}") for node, said in self.problems.items()
        ]
        found = who_broke(self.records, self.wants.ranks)
        return broken + [accused for accused in found if accused.rank is not None or accused.node not in self.problems]

    def _log_of(self, accused: Accused) -> list[str]:
        """Return the last lines of the accused rank's log, or of its node's where it never wrote one."""
        node = self.evidence.nodes.get(accused.node, Node())
        rank = -1 if accused.rank is None else accused.rank
        return list(node.logs.get(rank) or node.node_log)

    def _broken(self) -> Check:
        """Return ``ddp.result`` of a job that ended without a result, with its culprit and the end of its log."""
        nodes = self.evidence.nodes.values()
        guilty = self._culprits()
        if not guilty and all(record.state == "done" for record in self.records):
            first: Record = self.records[0]
            guilty = [accuse(0, first.node, "finished, and wrote no result.json")]
        logs = [log for log in map(self._log_of, guilty) if log]
        logs += [list(node.node_log) for node in nodes] + [list(node.job_log) for node in nodes]
        cause, fix = cause_in(logs)
        if self.job.state == "TIMEOUT":
            clearing = re.search(CLEARING[0], self.job.reason)
            cause = cause or (CLEARING[1] if clearing else "the job did not end within its time limit")
        said = names(guilty) or all_alike(self.records)
        last = last_words(logs)
        return self._check(
            "result",
            "fail",
            host=host_of(guilty, self.wants.ranks),
            observed=f"{self._ended}, no result.json of this run",
            expected="exit code 0 and a result of this run",
            source="ddp_validation",
            cause=". ".join(text for text in (said, cause, f"The log ends: {last}" if last else "") if text),
            fix=fix or f"read rank-*.log and node.log in {self.evidence.directory} on the named node",
        )

    def _traffic(self) -> Check:
        """Return ``gpudirect.traffic``: what NCCL itself said about its ways between the machines."""
        wants, rdma = self.wants, self.evidence.rdma
        without = ""
        if "gpu" in wants.simulated:
            without = "the GPUs are simulated, so the job did not use NCCL"
        elif not wants.gpus:
            without = "the nodes declare no GPU"
        elif len(wants.ranks) < 2:
            without = "there is one machine"
        elif rdma and all(adapters(told) == 0 for told in rdma.values()):
            without = "no machine has an RDMA adapter: data goes over TCP"
        if without:
            return nccl.SUBJECT.check("traffic", Verdict.SKIP, without, simulated="gpu" in wants.simulated)
        redirected = {node: _bridges(told) for node, told in rdma.items()}
        bridges = "; ".join(f"{', '.join(found)} of {node}" for node, found in sorted(redirected.items()) if found)
        logs = {node: "\n".join(self.evidence.nodes[node].nccl) for node in wants.ranks}
        rails = {node: nccl.Rails(told, wants.gpus, wants.unused.get(node, ())) for node, told in rdma.items()}
        [check] = nccl.checks(logs, bridges=bridges, required=wants.gpudirect_required, rails=rails)
        return check


def adapters(told: Any) -> int:
    """Return how many RDMA adapters a machine told of; -1 where it did not tell."""
    listed = told.get("adapters") if isinstance(told, Mapping) else None
    return len(listed) if isinstance(listed, list) else -1


def _bridges(told: Any) -> list[str]:
    """Return the bridges that keep GPUDirect away, as the machine told; none where that cannot be read."""
    try:
        return sorted(str(bridge) for bridge in redirecting(told))
    except (AttributeError, KeyError, TypeError, ValueError):
        return []
